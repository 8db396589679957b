/** What both trees, the host's and an environment's, must answer alike. Works on a folder that the test can see. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import type { EnvironmentTree, TreeEntry } from "../../../environments/base.ts";
import type { HostTree } from "../../../environments/tree/host.ts";

/** Names that break what takes names for text, options, patterns or lines; one character per byte. */
export const ODD_NAMES = [
  "-rf",
  ".run",
  "--help",
  " lead and trail ",
  "new\nline",
  "two\n\nlines\n",
  "back\\slash",
  "back\\rough\\n\\101\\\\",
  "quote'\"`$(touch pwned)",
  "a*b",
  "[x]",
  ":(top)weird",
  "\xff\xfe not utf-8",
  Buffer.from("Тестовый файл.txt").toString("latin1"),
  Buffer.from("😀").toString("latin1"),
  "tab\there",
  "cr\rhere",
  "x".repeat(250),
] as const;

export interface Subject {
  readonly tree: HostTree | EnvironmentTree;
  /** A fresh folder that is both the host's and the tree's. */
  readonly fresh: () => string;
}

const at = (root: string, path: string) =>
  Buffer.concat([Buffer.from(`${root}/`), Buffer.from(path, "latin1")]);
const sha = (bytes: Uint8Array | string) => createHash("sha256").update(bytes).digest("hex");
const facts = ({ path, kind, mode, size, linkTarget }: TreeEntry) =>
  linkTarget === undefined ? { path, kind, mode, size } : { path, kind, size, linkTarget };

async function contents(tree: Subject["tree"], root: string, paths: readonly string[]) {
  const found: Record<string, string> = {};
  await tree.pack(root, paths, async ({ path, content, size }) => {
    const chunks: Buffer[] = [];
    for await (const chunk of content) chunks.push(chunk);
    const bytes = Buffer.concat(chunks);
    expect(bytes.length).toBe(size);
    found[path] = bytes.toString("latin1");
  });
  return found;
}

export function treeCases(subject: () => Subject): void {
  it("scan() lists every kind with mode, size and link target, parents first", async () => {
    const { tree, fresh } = subject();
    const root = fresh();
    mkdirSync(join(root, "d/empty"), { recursive: true });
    chmodSync(join(root, "d/empty"), 0o1750);
    writeFileSync(join(root, "d/f"), "12345");
    chmodSync(join(root, "d/f"), 0o640);
    symlinkSync("../nowhere -> 'x'", join(root, "d/l"));
    symlinkSync("d", join(root, "to-d"));
    execFileSync("mkfifo", ["-m", "600", join(root, "p")]);
    mkdirSync(join(root, ".moorage-stage-1"));
    const { entries, closed, root: real } = await tree.scan(root);
    expect(real).toBe(root);
    expect(closed).toEqual([]);
    expect(entries.map(facts)).toEqual([
      { path: "d", kind: "directory", mode: 0o755, size: 0 },
      { path: "d/empty", kind: "directory", mode: 0o1750, size: 0 },
      { path: "d/f", kind: "file", mode: 0o640, size: 5 },
      { path: "d/l", kind: "symlink", size: 0, linkTarget: "../nowhere -> 'x'" },
      { path: "p", kind: "fifo", mode: 0o600, size: 0 },
      { path: "to-d", kind: "symlink", size: 0, linkTarget: "d" },
    ]);
  });

  it("scan(), hash(), pack() and writer() carry names of any bytes (SY-16)", async () => {
    const { tree, fresh } = subject();
    const [root, copy] = [fresh(), fresh()];
    for (const name of ODD_NAMES) writeFileSync(at(root, name), `content of ${name}`, "latin1");
    const names = [...ODD_NAMES].sort();
    const { entries } = await tree.scan(root);
    expect(entries.map(({ path }) => path).sort()).toEqual(names);
    const hashes = await tree.hash(root, names);
    expect(Object.fromEntries(hashes)).toEqual(
      Object.fromEntries(names.map((name) => [name, sha(Buffer.from(`content of ${name}`, "latin1"))])),
    );
    const packed = await contents(tree, root, names);
    expect(packed).toEqual(Object.fromEntries(names.map((name) => [name, `content of ${name}`])));
    const writer = tree.writer(copy);
    for (const name of names) {
      const bytes = Buffer.from(packed[name] ?? "", "latin1");
      await writer.stage({ path: name, size: bytes.length, mode: 0o600, modifiedAt: 1_000_000 }, [bytes]);
    }
    const outcome = await writer.finish({});
    expect(outcome.failed).toEqual([]);
    expect(readdirSync(copy, { encoding: "latin1" }).sort()).toEqual(names);
    for (const name of names) expect(readFileSync(at(copy, name), "latin1")).toBe(`content of ${name}`);
  });

  it("scan() of named paths gives those that are there, and the stamp tells a change", async () => {
    const { tree, fresh } = subject();
    const root = fresh();
    mkdirSync(join(root, "d"));
    for (const name of ["a", "b", "d/c"]) writeFileSync(join(root, name), "1");
    const paths = ["a", "d", "d/c", "missing", "../escape", "/etc"];
    const before = (await tree.scan(root, { paths })).entries;
    expect(before.map(({ path }) => path)).toEqual(["a", "d", "d/c"]);
    expect((await tree.scan(root, { paths })).entries.map(({ stamp }) => stamp)).toEqual(
      before.map(({ stamp }) => stamp),
    );
    writeFileSync(join(root, "a"), "22");
    const after = (await tree.scan(root, { paths: ["a"] })).entries;
    expect(after[0]?.stamp).not.toBe(before[0]?.stamp);
    expect(after[0]?.settled).toBe(false);
  });

  it("scan() refuses a root that is missing or a file", async () => {
    const { tree, fresh } = subject();
    const root = fresh();
    writeFileSync(join(root, "f"), "");
    await expect(tree.scan(join(root, "missing"))).rejects.toMatchObject({ code: "FILE_MISSING" });
    await expect(tree.scan(join(root, "f"))).rejects.toMatchObject({ code: "NOT_A_DIRECTORY" });
  });

  it("pack() and hash() leave out what is missing, a folder, a link or a pipe, and give the rest", async () => {
    const { tree, fresh } = subject();
    const root = fresh();
    mkdirSync(join(root, "d"));
    writeFileSync(join(root, "big"), Buffer.alloc(3_000_000, "x"));
    writeFileSync(join(root, "zero"), "");
    execFileSync("mkfifo", [join(root, "p")]);
    execFileSync("ln", [join(root, "zero"), join(root, "hard")]);
    const found = await contents(tree, root, ["missing", "zero", "big", "hard"]);
    expect(found).toEqual({ zero: "", big: "x".repeat(3_000_000), hard: "" });
    expect([...(await tree.hash(root, ["missing", "zero", "hard"])).keys()].sort()).toEqual(["hard", "zero"]);
  });

  it("writer() replaces, removes, links and sets modes, and shows nothing before finish()", async () => {
    const { tree, fresh } = subject();
    const root = fresh();
    mkdirSync(join(root, "old/deep"), { recursive: true });
    writeFileSync(join(root, "old/deep/f"), "");
    writeFileSync(join(root, "was-file"), "");
    mkdirSync(join(root, "was-folder"));
    writeFileSync(join(root, "mode"), "");
    symlinkSync("x", join(root, "was-link"));
    const writer = tree.writer(root);
    const file = (path: string, mode: number) => ({ path, size: 3, mode, modifiedAt: 1_600_000_000 });
    await writer.stage(file("new/a/f", 0o4755), [Buffer.from("abc")]);
    await writer.stage(file("was-folder", 0o600), [Buffer.from("def")]);
    await writer.stage(file("was-link", 0o644), [Buffer.from("ghi")]);
    expect(readdirSync(root).filter((name) => !name.startsWith(".moorage-"))).toEqual([
      "mode",
      "old",
      "was-file",
      "was-folder",
      "was-link",
    ]);
    const outcome = await writer.finish({
      remove: ["old", "old/deep", "old/deep/f", "was-file", "was-folder", "never-there"],
      folders: [
        { path: "was-file", mode: 0o700 },
        { path: "new", mode: 0o755 },
        { path: "new/a", mode: 0o555 },
        { path: "empty/in/empty", mode: 0o711 },
      ],
      links: [{ path: "new/l", target: "../\xff 'q'" }],
      modes: [{ path: "mode", mode: 0o444 }],
    });
    expect(outcome.failed).toEqual([]);
    const { entries } = await tree.scan(root);
    expect(entries.map(facts)).toEqual([
      { path: "empty", kind: "directory", mode: 0o755, size: 0 },
      { path: "empty/in", kind: "directory", mode: 0o755, size: 0 },
      { path: "empty/in/empty", kind: "directory", mode: 0o711, size: 0 },
      { path: "mode", kind: "file", mode: 0o444, size: 0 },
      { path: "new", kind: "directory", mode: 0o755, size: 0 },
      { path: "new/a", kind: "directory", mode: 0o555, size: 0 },
      { path: "new/a/f", kind: "file", mode: 0o4755, size: 3 },
      { path: "new/l", kind: "symlink", size: 0, linkTarget: "../\xff 'q'" },
      { path: "was-file", kind: "directory", mode: 0o700, size: 0 },
      { path: "was-folder", kind: "file", mode: 0o600, size: 3 },
      { path: "was-link", kind: "file", mode: 0o644, size: 3 },
    ]);
    expect(lstatSync(join(root, "new/a/f")).mtimeMs).toBe(1_600_000_000_000);
    // A link is as old as its making.
    expect(Date.now() - lstatSync(join(root, "new/l")).mtimeMs).toBeLessThan(3_600_000);
    expect(readdirSync(root).filter((name) => name.startsWith(".moorage-"))).toEqual([]);
  });

  it("writer() writes nowhere through a link, and nowhere outside (SY-01, SY-02, SY-04)", async () => {
    const { tree, fresh } = subject();
    const [root, outside] = [fresh(), fresh()];
    symlinkSync(outside, join(root, "x"));
    writeFileSync(join(outside, "f"), "theirs");
    const file = (path: string) => ({ path, size: 3, mode: 0o644, modifiedAt: 1 });
    for (const path of ["../f", "/etc/f", "a/../../f", "", ".", "a//b", ".moorage-stage-1/f", "a\0b"]) {
      const writer = tree.writer(root);
      await expect(writer.stage(file(path), [Buffer.from("abc")])).rejects.toMatchObject({
        code: "PATH_DENIED",
      });
      await expect(writer.finish({ remove: [path] })).rejects.toMatchObject({ code: "PATH_DENIED" });
      await writer.discard();
    }
    const writer = tree.writer(root);
    await writer.stage(file("x/pwn"), [Buffer.from("abc")]);
    await writer.stage(file("fine"), [Buffer.from("abc")]);
    const outcome = await writer.finish({ remove: [], modes: [{ path: "x/f", mode: 0o777 }] });
    expect(outcome.done).toEqual(["fine"]);
    expect(outcome.failed.map(({ path }) => path).sort()).toEqual(["x/f", "x/pwn"]);
    expect(readdirSync(outside)).toEqual(["f"]);
    expect(lstatSync(join(outside, "f")).mode & 0o777).toBe(0o644);
    const second = tree.writer(root);
    await second.finish({ remove: ["x/f"] });
    expect(readFileSync(join(outside, "f"), "utf8")).toBe("theirs");
    expect(readlinkSync(join(root, "x"))).toBe(outside);
  });

  it("writer() reaches files of many folders, those that are new too, and none through a link or in a file's place", async () => {
    const { tree, fresh } = subject();
    const [root, outside] = [fresh(), fresh()];
    symlinkSync(outside, join(root, "link"));
    writeFileSync(join(root, "file"), "theirs");
    const folders = ["1", "2", "2/new\nline", "3 $(x)", "-4", "\xff 'q'"];
    mkdirSync(join(root, "2"));
    writeFileSync(join(root, "2/f"), "old");
    const writer = tree.writer(root);
    const paths = [...folders, "link", "link/deep", "file"].map((folder) => `${folder}/f`);
    for (const path of paths)
      await writer.stage({ path, size: 3, mode: 0o640, modifiedAt: 1 }, [Buffer.from("new")]);
    writer.unstage("1/f");
    const outcome = await writer.finish({ folders: [{ path: "3 $(x)", mode: 0o750 }] });
    expect([...outcome.done].sort()).toEqual(["3 $(x)", ...paths.slice(1, 6)].sort());
    expect(outcome.failed.map(({ path }) => path).sort()).toEqual(["file/f", "link/deep/f", "link/f"]);
    for (const path of paths.slice(1, 6)) expect(readFileSync(at(root, path), "utf8")).toBe("new");
    expect(readdirSync(outside)).toEqual([]);
    expect(readFileSync(join(root, "file"), "utf8")).toBe("theirs");
    expect(readdirSync(root).filter((name) => name === "1" || name.startsWith(".moorage-"))).toEqual([]);
  });

  it("writer() takes files larger than a request, and refuses one that comes short", async () => {
    const { tree, fresh } = subject();
    const root = fresh();
    const chunk = Buffer.alloc(1024 * 1024, "0123456789");
    const writer = tree.writer(root);
    const size = 20 * chunk.length;
    await writer.stage({ path: "d/large \xff", size, mode: 0o640, modifiedAt: 5 }, Array(20).fill(chunk));
    await expect(
      writer.stage({ path: "short", size: 4, mode: 0o644, modifiedAt: 1 }, [Buffer.from("abc")]),
    ).rejects.toMatchObject({ code: "FILE_CHANGED" });
    expect((await writer.finish({})).failed).toEqual([]);
    expect(sha(readFileSync(at(root, "d/large \xff")))).toBe(sha(Buffer.concat(Array(20).fill(chunk))));
    expect(readdirSync(root)).toEqual(["d"]);
  });

  it("writer() leaves alone what is another by now than was expected, and does the rest", async () => {
    const { tree, fresh } = subject();
    const root = fresh();
    for (const name of ["edited", "same \xff", "gone", "kept"]) writeFileSync(at(root, name), "old");
    const seen = new Map((await tree.scan(root)).entries.map((entry) => [entry.path, entry]));
    // The second one meets a few paths only, which an environment compares in another way than many.
    for (const extra of [300, 0]) {
      const writer = tree.writer(root);
      const many = Array.from({ length: extra }, (_, index) => `many/${index}`);
      const staged = ["edited", "same \xff", "new/deep/f", "begun/f", "taken/f", ...many];
      for (const path of staged)
        await writer.stage({ path, size: 3, mode: 0o640, modifiedAt: 1 }, [Buffer.from("new")]);
      writeFileSync(join(root, "edited"), "theirs");
      writeFileSync(join(root, "kept"), "theirs");
      for (const folder of ["begun", "taken", "begun/g"]) mkdirSync(join(root, folder));
      writeFileSync(join(root, "taken/f"), "theirs");
      const outcome = await writer.finish({
        remove: ["gone", "kept"],
        folders: ["new", "new/deep", "begun", "taken", ...(extra > 0 ? ["many"] : [])].map((path) => ({
          path,
          mode: 0o750,
        })),
        expected: new Map([...staged, "gone", "kept"].map((path) => [path, seen.get(path) ?? null])),
      });
      expect(outcome.failed).toEqual([]);
      expect(outcome.changed).toEqual(new Set(["edited", "kept", "taken/f"]));
      const done = ["begun", "begun/f", "gone", "new", "new/deep", "new/deep/f", "same \xff", "taken"];
      expect([...outcome.done].sort()).toEqual([...done, ...many, ...(extra > 0 ? ["many"] : [])].sort());
      for (const path of ["edited", "kept", "taken/f"])
        expect(readFileSync(at(root, path), "utf8")).toBe("theirs");
      expect(readFileSync(at(root, "same \xff"), "utf8")).toBe("new");
      expect(lstatSync(join(root, "new/deep")).mode & 0o777).toBe(0o750);
      for (const folder of ["new", "begun", "taken", "many"])
        rmSync(join(root, folder), { recursive: true, force: true });
      for (const name of ["edited", "same \xff", "gone", "kept"]) writeFileSync(at(root, name), "old");
      for (const { path, ...entry } of (await tree.scan(root)).entries) seen.set(path, { path, ...entry });
    }
    expect(readdirSync(root).filter((name) => name.startsWith(".moorage-"))).toEqual([]);
  });

  it("writer() gives links, folders and files that stay to whom they are to belong, and keeps their modes", async ({
    skip,
  }) => {
    skip(process.getuid?.() !== 0, "only root can give a file to somebody else");
    const { tree, fresh } = subject();
    const owner = { uid: 1234, gid: 2345 };
    for (const isScanned of [false, true]) {
      const [root, outside] = [fresh(), fresh()];
      if (isScanned) await tree.scan(root);
      for (const name of ["stays \xff", "closed"]) writeFileSync(at(root, name), "1");
      mkdirSync(join(root, "old"));
      writeFileSync(join(outside, "f"), "theirs");
      symlinkSync(outside, join(root, "x"));
      const writer = tree.writer(root);
      await writer.stage({ path: "new/f", size: 1, mode: 0o4755, modifiedAt: 1, owner }, [Buffer.from("1")]);
      const outcome = await writer.finish({
        folders: ["new", "old"].map((path) => ({ path, mode: 0o2750, owner })),
        links: ["new/l", "l"].map((path) => ({ path, target: "nowhere", owner })),
        modes: [
          { path: "stays \xff", mode: 0o6755, owner },
          { path: "closed", mode: 0, owner },
          { path: "x/f", mode: 0o600, owner },
        ],
      });
      expect(outcome.failed.map(({ path }) => path)).toEqual(["x/f"]);
      const { entries } = await tree.scan(root);
      expect(
        entries
          .filter(({ path }) => path !== "x")
          .map(({ path, uid, gid, mode, kind }) => [
            path,
            uid,
            gid,
            kind === "symlink" ? "link" : mode.toString(8),
          ]),
      ).toEqual(
        [
          ["closed", "0"],
          ["l", "link"],
          ["new", "2750"],
          ["new/f", "4755"],
          ["new/l", "link"],
          ["old", "2750"],
          ["stays \xff", "6755"],
        ].map(([path, mode]) => [path, owner.uid, owner.gid, mode]),
      );
      expect(lstatSync(join(outside, "f")).uid).toBe(0);
    }
  });

  it("writer() takes many files of the same folders in any order, more than one request holds, and their owners", async () => {
    const { tree, fresh } = subject();
    const isRoot = process.getuid?.() === 0;
    for (const owner of [undefined, { uid: isRoot ? 1234 : 0, gid: isRoot ? 2345 : 0 }]) {
      const root = fresh();
      await tree.scan(root);
      const writer = tree.writer(root);
      const folders = Array.from({ length: 20 }, (_, index) => `d${index}/deep \xff`);
      const files = Array.from({ length: 600 }, (_, index) => `${folders[index % 20]}/${index}`);
      const bytes = Buffer.alloc(10_000, "x");
      for (const path of files)
        await writer.stage(
          { path, size: bytes.length, mode: 0o640, modifiedAt: 7, ...(owner && { owner }) },
          [bytes],
        );
      const links = folders.map((path) => ({ path: `${path}/link`, target: "0" }));
      const made = [...folders, ...folders.map((path) => path.slice(0, path.indexOf("/")))];
      const outcome = await writer.finish({ folders: made.map((path) => ({ path, mode: 0o755 })), links });
      expect(outcome.failed).toEqual([]);
      expect(outcome.done.length).toBe(files.length + links.length + made.length);
      const { entries } = await tree.scan(root);
      const found = entries.filter(({ kind }) => kind === "file");
      expect(found.map(({ path }) => path).sort()).toEqual([...files].sort());
      const mine = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
      const { uid, gid } = isRoot && owner ? owner : mine;
      for (const entry of found)
        expect(entry).toMatchObject({ size: bytes.length, mode: 0o640, modifiedAt: 7, uid, gid });
      expect(readdirSync(root).filter((name) => name.startsWith(".moorage-"))).toEqual([]);
    }
  });

  it("writer() makes folders of every mode with many files and links, one for all that is in them", async () => {
    const { tree, fresh } = subject();
    const root = fresh();
    await tree.scan(root);
    const modes = [0o755, 0o555, 0o700, 0o2775];
    const folders = modes.flatMap((mode, index) => [
      { path: `${index}`, mode },
      { path: `${index}/in`, mode },
      { path: `${index}/empty \xff`, mode },
    ]);
    const writer = tree.writer(root);
    const files = folders.flatMap(({ path }) =>
      path.includes("empty") ? [] : Array.from({ length: 30 }, (_, index) => `${path}/f${index}`),
    );
    for (const [index, path] of files.entries())
      await writer.stage({ path, size: 1, mode: index % 2 === 0 ? 0o644 : 0o500, modifiedAt: index }, [
        Buffer.from("x"),
      ]);
    const links = [{ path: "0/in/link", target: "nowhere" }];
    const outcome = await writer.finish({ folders, links });
    expect(outcome.failed).toEqual([]);
    expect([...outcome.done].sort()).toEqual(
      [...folders, ...links]
        .map(({ path }) => path)
        .concat(files)
        .sort(),
    );
    const { entries } = await tree.scan(root);
    expect(
      entries.filter(({ kind }) => kind === "directory").map(({ path, mode }) => ({ path, mode })),
    ).toEqual([...folders].sort((a, b) => (a.path < b.path ? -1 : 1)));
    expect(
      entries
        .filter(({ kind }) => kind === "file")
        .map(({ mode, modifiedAt }) => [mode, modifiedAt])
        .sort(),
    ).toEqual(files.map((_, index) => [index % 2 === 0 ? 0o644 : 0o500, index]).sort());
    expect(readdirSync(root).sort()).toEqual(["0", "1", "2", "3"]);
  });

  it("discard() leaves nothing", async () => {
    const { tree, fresh } = subject();
    const root = fresh();
    const writer = tree.writer(root);
    await writer.stage({ path: "f", size: 1, mode: 0o644, modifiedAt: 1 }, [Buffer.from("x")]);
    await writer.discard();
    await writer.discard();
    expect(readdirSync(root)).toEqual([]);
    rmSync(root, { recursive: true });
  });
}
