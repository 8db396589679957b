/** Writing, and sets of changes that happen whole or not at all. */
import { createHash } from "node:crypto";
import { expect } from "vitest";
import type { BaseEnvironment } from "../../environments/base.ts";
import { type Cases, expectCode, isRoot, pseudoRandom, scratch } from "./support.ts";

const hashOf = (bytes: Uint8Array | string): string =>
  `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

async function textOf(environment: BaseEnvironment, path: string): Promise<string> {
  return (await environment.files.readFile(path)).bytes.toString();
}

async function namesIn(environment: BaseEnvironment, folder: string): Promise<readonly string[]> {
  return (await environment.files.list(folder)).map(({ name }) => name).sort();
}

export const fileChanges = {
  "writeFile() makes a file and its parents, with the mode of the umask": async ({ environment }) => {
    const folder = await scratch(environment);
    const path = `${folder}/a/b/c.txt`;
    expect(await environment.files.writeFile(path, "é\n")).toEqual({
      realPath: path,
      hash: hashOf("é\n"),
      bytesWritten: 3,
      created: true,
    });
    expect(await textOf(environment, path)).toBe("é\n");
    const umask = Number.parseInt((await environment.exec("umask")).output, 8);
    expect((await environment.files.stat(path)).mode).toBe(0o666 & ~umask);
    expect(await namesIn(environment, `${folder}/a/b`)).toEqual(["c.txt"]);
  },
  "writeFile() replaces a file": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.files.writeFile(`${folder}/f`, "a longer first text");
    expect(await environment.files.writeFile(`${folder}/f`, "b")).toEqual({
      realPath: `${folder}/f`,
      hash: hashOf("b"),
      bytesWritten: 1,
      created: false,
    });
    expect(await textOf(environment, `${folder}/f`)).toBe("b");
  },
  "writeFile() writes bytes as they are (FT-04, FT-20)": async ({ environment }) => {
    const folder = await scratch(environment);
    for (const text of [
      "",
      "a\r\nb\r\n",
      "no newline",
      "\ufeffbom\n",
      "“q” ‘s’ – …\u00a0",
      "\0\0",
      "EOF\n",
      "'",
      "\\n",
      "trail\n\n\n",
    ]) {
      await environment.files.writeFile(`${folder}/f`, text);
      expect(await textOf(environment, `${folder}/f`)).toBe(text);
    }
    const bytes = pseudoRandom(3_000_000, 13);
    expect(await environment.files.writeFile(`${folder}/f`, bytes)).toMatchObject({
      hash: hashOf(bytes),
      bytesWritten: bytes.length,
    });
    expect((await environment.exec(`sha256sum < ${folder}/f`)).output).toBe(`${hashOf(bytes).slice(7)}  -\n`);
  },
  "writeFile() of 20 MiB is exact": async ({ environment }) => {
    const folder = await scratch(environment);
    const bytes = pseudoRandom(20 * 1024 * 1024, 17);
    await environment.files.writeFile(`${folder}/f`, bytes);
    expect((await environment.exec(`sha256sum < ${folder}/f`)).output).toBe(`${hashOf(bytes).slice(7)}  -\n`);
  },
  "writeFile() takes a mode for a new file and keeps that of an old one (FT-23)": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.files.writeFile(`${folder}/new`, "x", { mode: 0o755 });
    expect((await environment.files.stat(`${folder}/new`)).mode).toBe(0o755);
    for (const mode of [0o755, 0o600, 0o664, 0o400, 0o4755]) {
      await environment.exec(`rm -f f; echo x > f; chmod ${mode.toString(8)} f`, { cwd: folder });
      await environment.files.writeFile(`${folder}/f`, "y", { mode: 0o777 });
      expect(await environment.files.stat(`${folder}/f`)).toMatchObject({ mode, size: 1 });
    }
  },
  "writeFile() keeps the owner of a file (FT-23)": async ({ environment, skip }) => {
    if (!(await isRoot(environment))) skip("only root can give files away");
    const folder = await scratch(environment);
    const given = await environment.exec("echo x > f; chmod 640 f; chown 1234:2345 f", { cwd: folder });
    if (given.exitCode !== 0) skip(`files cannot be given away here: ${given.output.trim()}`);
    await environment.files.writeFile(`${folder}/f`, "y");
    expect(await environment.files.stat(`${folder}/f`)).toMatchObject({ uid: 1234, gid: 2345, mode: 0o640 });
  },
  "writeFile() writes through a link and leaves it (FT-25)": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec(
      "mkdir d; echo x > d/real; ln -s d/real link; ln -s link again; ln -s d/new dangling",
      { cwd: folder },
    );
    expect(await environment.files.writeFile(`${folder}/again`, "y")).toMatchObject({
      realPath: `${folder}/d/real`,
      created: false,
    });
    expect(await environment.files.stat(`${folder}/again`, { follow: false })).toMatchObject({
      kind: "symlink",
      linkTarget: "link",
    });
    expect(await textOf(environment, `${folder}/d/real`)).toBe("y");
    expect(await environment.files.writeFile(`${folder}/dangling`, "z")).toMatchObject({
      realPath: `${folder}/d/new`,
      created: true,
    });
    expect(await environment.files.stat(`${folder}/dangling`, { follow: false })).toMatchObject({
      kind: "symlink",
    });
  },
  "writeFile() and readFile() go through links to folders and files, which stay links (DK-31)": async ({
    environment,
  }) => {
    const folder = await scratch(environment);
    await environment.exec("mkdir real; ln -s real ln; ln -s ln/f file", { cwd: folder });
    expect(await environment.files.writeFile(`${folder}/ln/f`, "x")).toMatchObject({
      realPath: `${folder}/real/f`,
    });
    expect(await textOf(environment, `${folder}/ln/f`)).toBe("x");
    expect(await textOf(environment, `${folder}/file`)).toBe("x");
    await environment.files.writeFile(`${folder}/file`, "y");
    expect(await textOf(environment, `${folder}/real/f`)).toBe("y");
    for (const name of ["ln", "file"]) {
      expect(await environment.files.stat(`${folder}/${name}`, { follow: false })).toMatchObject({
        kind: "symlink",
      });
    }
  },
  "writeFile() is seen whole or not at all": async ({ environment }) => {
    const folder = await scratch(environment);
    const one = "1".repeat(200_000);
    const two = "2".repeat(300_000);
    await environment.files.writeFile(`${folder}/f`, one);
    const reader = environment.exec(
      "until [ -e stop ]; do cat f | tr -d '\\n' | sed 's/^1*$/ok/; s/^2*$/ok/' | head -c 100; echo; done | sort | uniq -c",
      { cwd: folder, timeoutMs: 30_000 },
    );
    for (let turn = 0; turn < 15; turn += 1)
      await environment.files.writeFile(`${folder}/f`, turn % 2 ? one : two);
    await environment.files.writeFile(`${folder}/stop`, "");
    expect(await reader).toMatchObject({ exitCode: 0, output: expect.stringMatching(/^ *\d+ ok\n$/) });
    expect(await namesIn(environment, folder)).toEqual(["f", "stop"]);
  },
  "writeFile() leaves no temporary file, and follows no planted link (FT-28)": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec(
      "echo safe > victim; for n in .f.tmp f.tmp .f f~ '#f#' .f.swp .tmp; do ln -s victim \"$n\"; done",
      { cwd: folder },
    );
    const before = await namesIn(environment, folder);
    await environment.files.writeFile(`${folder}/f`, "x");
    await expectCode(
      environment.files.writeFile(`${folder}/f`, "y", { expectedHash: hashOf("other") }),
      "FILE_CHANGED",
    );
    expect(await textOf(environment, `${folder}/victim`)).toBe("safe\n");
    expect(await namesIn(environment, folder)).toEqual([...before, "f"].sort());
  },
  "writeFile() with a hash writes only over that content": async ({ environment }) => {
    const folder = await scratch(environment);
    const path = `${folder}/f`;
    const { hash } = await environment.files.writeFile(path, "one", { expectedHash: "absent" });
    await expectCode(
      environment.files.writeFile(path, "again", { expectedHash: "absent" }),
      "FILE_CHANGED",
      "FILE_EXISTS",
    );
    await environment.files.writeFile(path, "two", { expectedHash: hash });
    expect(
      await expectCode(environment.files.writeFile(path, "three", { expectedHash: hash }), "FILE_CHANGED"),
    ).toContain(path);
    expect(await textOf(environment, path)).toBe("two");
    await environment.files.remove(path);
    await expectCode(
      environment.files.writeFile(path, "three", { expectedHash: hash }),
      "FILE_CHANGED",
      "FILE_MISSING",
    );
    expect(await namesIn(environment, folder)).toEqual([]);
  },
  "one of many writers that expect the same content wins": async ({ environment }) => {
    const folder = await scratch(environment);
    const path = `${folder}/f`;
    const { hash } = await environment.files.writeFile(path, "start");
    const outcomes = await Promise.allSettled(
      Array.from({ length: 8 }, (_, index) =>
        environment.files.writeFile(path, `writer ${index}`, { expectedHash: hash }),
      ),
    );
    const winners = outcomes.flatMap((outcome, index) =>
      outcome.status === "fulfilled" ? [`writer ${index}`] : [],
    );
    expect(winners).toEqual([await textOf(environment, path)]);
    expect(await namesIn(environment, folder)).toEqual(["f"]);
  },
  "writeFile() tells a full or forbidden place without its temporary name (FT-27)": async ({
    environment,
    skip,
  }) => {
    if (await isRoot(environment)) skip("commands run as root, to whom no permission is refused");
    const folder = await scratch(environment);
    await environment.exec("mkdir locked; chmod 555 locked", { cwd: folder });
    const message = await expectCode(
      environment.files.writeFile(`${folder}/locked/f`, "x"),
      "FILE_PERMISSION",
    );
    expect(message).toContain(`"${folder}/locked/f"`);
  },
  "mkdir() makes parents, takes a mode, and is content with a folder that is there": async ({
    environment,
  }) => {
    const folder = await scratch(environment);
    await environment.files.mkdir(`${folder}/a/b`, { mode: 0o700 });
    await environment.files.mkdir(`${folder}/a/b`);
    await environment.files.mkdir("c/d", { cwd: folder });
    expect(await environment.files.stat(`${folder}/a/b`)).toMatchObject({ kind: "directory", mode: 0o700 });
    expect(await environment.files.stat(`${folder}/c/d`)).toMatchObject({ kind: "directory" });
  },
  "remove() takes files, links and empty folders, and full ones when told": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec(
      "mkdir -p full/deep empty; echo x > full/deep/f; echo x > f; ln -s full link; mkfifo p",
      { cwd: folder },
    );
    await environment.files.remove(`${folder}/link`);
    expect(await textOf(environment, `${folder}/full/deep/f`)).toBe("x\n");
    await environment.files.remove(`${folder}/f`);
    await environment.files.remove(`${folder}/p`);
    await environment.files.remove(`${folder}/empty`);
    await expect(environment.files.remove(`${folder}/full`)).rejects.toMatchObject({ name: "MoorageError" });
    expect(await namesIn(environment, folder)).toEqual(["full"]);
    await environment.files.remove("full", { cwd: folder, recursive: true });
    expect(await namesIn(environment, folder)).toEqual([]);
  },
  "remove() of a tree follows no link out of it": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec("mkdir outside tree; echo x > outside/f; ln -s ../outside tree/link", {
      cwd: folder,
    });
    await environment.files.remove(`${folder}/tree`, { recursive: true });
    expect(await textOf(environment, `${folder}/outside/f`)).toBe("x\n");
  },
  "rename() moves, and refuses an existing target unless told to replace it": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec("echo a > a; echo b > b; mkdir d", { cwd: folder });
    await expectCode(environment.files.rename(`${folder}/a`, `${folder}/b`), "FILE_EXISTS");
    expect(await textOf(environment, `${folder}/b`)).toBe("b\n");
    await environment.files.rename(`${folder}/a`, `${folder}/b`, { replace: true });
    await environment.files.rename("b", "d/c", { cwd: folder });
    await environment.files.rename(`${folder}/d`, `${folder}/e`);
    expect(await textOf(environment, `${folder}/e/c`)).toBe("a\n");
    expect(await namesIn(environment, folder)).toEqual(["e"]);
  },
  "rename() onto a folder does not move into it": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec("echo a > a; mkdir d", { cwd: folder });
    await expectCode(environment.files.rename(`${folder}/a`, `${folder}/d`), "FILE_EXISTS");
    expect(await namesIn(environment, `${folder}/d`)).toEqual([]);
    expect(await namesIn(environment, folder)).toEqual(["a", "d"]);
  },
  "rename() moves a link, not its target": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec("echo a > a; ln -s a l", { cwd: folder });
    await environment.files.rename(`${folder}/l`, `${folder}/m`);
    expect(await environment.files.stat(`${folder}/m`, { follow: false })).toMatchObject({
      kind: "symlink",
      linkTarget: "a",
    });
    expect(await namesIn(environment, folder)).toEqual(["a", "m"]);
  },
  "apply() makes all changes in their order": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec("echo a > a; echo b > b; echo c > c", { cwd: folder });
    const receipts = await environment.files.apply(
      [
        { kind: "write", path: "new/f", bytes: Buffer.from("f") },
        { kind: "remove", path: "a" },
        { kind: "rename", from: "b", to: "moved/b" },
        { kind: "write", path: "moved/b", bytes: Buffer.from("changed") },
        { kind: "write", path: "a", bytes: Buffer.from("again"), options: { expectedHash: "absent" } },
        { kind: "write", path: "c", bytes: Buffer.from("C"), options: { expectedHash: hashOf("c\n") } },
      ],
      { cwd: folder },
    );
    expect(receipts.map(({ realPath }) => realPath)).toEqual([
      `${folder}/new/f`,
      `${folder}/moved/b`,
      `${folder}/a`,
      `${folder}/c`,
    ]);
    expect(await textOf(environment, `${folder}/new/f`)).toBe("f");
    expect(await textOf(environment, `${folder}/moved/b`)).toBe("changed");
    expect(await textOf(environment, `${folder}/a`)).toBe("again");
    expect(await textOf(environment, `${folder}/c`)).toBe("C");
    expect(await namesIn(environment, folder)).toEqual(["a", "c", "moved", "new"]);
  },
  "apply() takes everything back when one change fails (FT-13)": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec("echo a > a; chmod 755 a; echo b > b; echo c > c; echo d > d", { cwd: folder });
    const attempt = environment.files.apply(
      [
        { kind: "write", path: "a", bytes: Buffer.from("changed") },
        { kind: "remove", path: "b" },
        { kind: "rename", from: "c", to: "moved" },
        { kind: "write", path: "new", bytes: Buffer.from("new") },
        { kind: "write", path: "d", bytes: Buffer.from("D"), options: { expectedHash: hashOf("other") } },
      ],
      { cwd: folder },
    );
    await expectCode(attempt, "FILE_CHANGED");
    expect(await namesIn(environment, folder)).toEqual(["a", "b", "c", "d"]);
    for (const name of ["a", "b", "c", "d"])
      expect(await textOf(environment, `${folder}/${name}`)).toBe(`${name}\n`);
    expect((await environment.files.stat(`${folder}/a`)).mode).toBe(0o755);
  },
  "apply() refuses a missing or changed file before it changes any": async ({ environment }) => {
    const folder = await scratch(environment);
    await environment.exec("echo a > a; echo b > b", { cwd: folder });
    const write = { kind: "write", path: `${folder}/a`, bytes: Buffer.from("x") } as const;
    await expectCode(
      environment.files.apply([write, { kind: "remove", path: `${folder}/none` }]),
      "FILE_MISSING",
    );
    await expectCode(
      environment.files.apply([write, { kind: "rename", from: `${folder}/none`, to: `${folder}/z` }]),
      "FILE_MISSING",
    );
    await expectCode(
      environment.files.apply([write, { kind: "rename", from: `${folder}/b`, to: `${folder}/a` }]),
      "FILE_EXISTS",
    );
    await expectCode(
      environment.files.apply([
        write,
        { kind: "remove", path: `${folder}/b`, expectedHash: hashOf("other") },
      ]),
      "FILE_CHANGED",
    );
    expect(await textOf(environment, `${folder}/a`)).toBe("a\n");
    expect(await namesIn(environment, folder)).toEqual(["a", "b"]);
  },
  "apply() of nothing does nothing": async ({ environment }) => {
    expect(await environment.files.apply([])).toEqual([]);
  },
} satisfies Cases;
