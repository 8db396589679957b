import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, describe, expect, it, vi } from "vitest";
import type { CheckpointSettings } from "../../src/checkpoints/checkpoints.ts";
import { squeeze, unsqueeze } from "../../src/checkpoints/states.ts";
import { CheckpointStore } from "../../src/checkpoints/store.ts";
import { MoorageError } from "../../src/errors.ts";
import { createMoorage, type Moorage } from "../../src/moorage.ts";
import { picture } from "../environments/tree/picture.ts";

const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-checkpoints-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let count = 0;

interface Fixture extends AsyncDisposable {
  readonly moorage: Moorage;
  readonly workspace: string;
  readonly stateDir: string;
  readonly at: (path: string) => string;
  /** Calls a tool and gives its output; a failure fails the test. */
  readonly call: (name: string, args: Record<string, unknown>) => Promise<Record<string, unknown>>;
  readonly restore: (id: unknown, options?: object) => ReturnType<Moorage["checkpoints"]["restore"]>;
}

async function fixture(
  checkpoints: CheckpointSettings = {},
  { workspace = join(base, `w${count++}`), stateDir = join(base, `s${count++}`) } = {},
): Promise<Fixture> {
  mkdirSync(workspace, { recursive: true });
  const moorage = await createMoorage({ environments: "local", workspace, stateDir, checkpoints });
  return {
    moorage,
    workspace,
    stateDir,
    at: (path) => join(workspace, path),
    call: async (name, args) => {
      const result = await moorage.call({ name, arguments: args });
      if (!result.ok) throw new Error(JSON.stringify(result.error));
      return result.content;
    },
    restore: (id, options) => moorage.checkpoints.restore(String(id), moorage.environment(), options),
    [Symbol.asyncDispose]: () => moorage.stop(),
  };
}

const ID = /^cp-[0-9a-f]{12}$/;

describe("checkpoints", () => {
  it("write_file and patch name the checkpoint of the files that they change", async () => {
    await using f = await fixture();
    writeFileSync(f.at("a"), "old\n");
    chmodSync(f.at("a"), 0o751);
    const wrote = await f.call("write_file", { path: "a", content: "new\n" });
    expect(wrote.checkpoint).toMatch(ID);
    const patched = await f.call("patch", { path: "a", old_string: "new", new_string: "newer" });
    expect(patched.checkpoint).toMatch(ID);
    expect(
      (await f.moorage.checkpoints.list()).map(({ scope, reason, paths }) => ({ scope, reason, paths })),
    ).toEqual([
      { scope: "files", reason: "before patch: a", paths: 1 },
      { scope: "files", reason: "before write_file: a", paths: 1 },
    ]);
    expect(await f.restore(patched.checkpoint)).toMatchObject({ restored: ["a"], removed: [], failed: [] });
    expect(readFileSync(f.at("a"), "utf8")).toBe("new\n");
    expect(await f.restore(wrote.checkpoint)).toMatchObject({ restored: ["a"] });
    expect(picture(f.workspace)).toEqual({ a: "file 751 old\n" });
  });

  it("a checkpoint is a moment: restoring it undoes every later change too", async () => {
    await using f = await fixture();
    writeFileSync(f.at("a"), "a0");
    writeFileSync(f.at("b"), "b0");
    mkdirSync(f.at("e/f"), { recursive: true });
    const before = picture(f.workspace);
    const first = await f.call("write_file", { path: "a", content: "a1" });
    await f.call("write_file", { path: "b", content: "b1" });
    await f.call("write_file", { path: "deep/new/c", content: "c" });
    await f.call("terminal", {
      command: "rm -r e; ln -s a link; chmod 600 a; mkdir made; echo x > made/x; mv b b2",
    });
    await f.call("write_file", { path: "a", content: "a2" });
    const report = await f.restore(first.checkpoint);
    expect(report.failed).toEqual([]);
    expect(report.others).toEqual([]);
    expect(picture(f.workspace)).toEqual(before);
  });

  it("the list says which command it was, on one line, and what is asked for in vain is refused", async () => {
    await using f = await fixture();
    writeFileSync(f.at("a"), "a");
    const { checkpoint } = await f.call("terminal", { command: `rm a\n\t\x1b[2J # ${"é".repeat(80)}` });
    const [listed] = await f.moorage.checkpoints.list();
    expect(listed?.reason).toBe(`before terminal: rm a [2J # ${"é".repeat(49)}...`);
    await expect(f.restore(checkpoint, { paths: ["nosuch"] })).rejects.toMatchObject({
      code: "INVALID_ARGUMENTS",
      message: 'The checkpoint knows nothing of "nosuch"',
    });
    expect(await f.restore(checkpoint, { paths: ["a"] })).toMatchObject({ restored: ["a"] });
  });

  it("readers cost no checkpoint, everything else one of the tree", async () => {
    await using f = await fixture();
    writeFileSync(f.at("a"), "a");
    for (const command of [
      "ls -l",
      "cat a | grep a",
      "echo hi > /dev/null 2>&1",
      "cd . && pwd",
      "find . -name a",
    ]) {
      expect((await f.call("terminal", { command })).checkpoint).toBeUndefined();
    }
    for (const command of [
      "echo x > b",
      "sed -i s/a/b/ a",
      "find . -name b -delete",
      "cat <(touch c)",
      "$X",
      "ls() { rm a; }",
    ]) {
      expect((await f.call("terminal", { command })).checkpoint).toMatch(ID);
    }
    expect((await f.call("terminal", { command: "ls" })).checkpoint, "ls is a function by then").toMatch(ID);
    expect(existsSync(f.at("a"))).toBe(false);
  });

  it("what is written to a process that runs costs one too, and following it none", async () => {
    await using f = await fixture();
    writeFileSync(f.at("a"), "1");
    const { session_id } = await f.call("terminal", { command: "sh", background: true });
    writeFileSync(f.at("a"), "a person's own");
    const written = await f.call("process", { action: "submit", session_id, data: "rm a; exit" });
    expect(written.checkpoint).toMatch(ID);
    const waited = await f.call("process", { action: "wait", session_id });
    expect(waited).toMatchObject({ outcome: "exited" });
    expect(waited).not.toHaveProperty("checkpoint");
    expect(existsSync(f.at("a"))).toBe(false);
    await f.restore(written.checkpoint);
    expect(readFileSync(f.at("a"), "utf8")).toBe("a person's own");
  });

  it("undo can be undone, exactly (CP-18)", async () => {
    await using f = await fixture();
    writeFileSync(f.at("a"), "1");
    const first = await f.call("terminal", {
      command: "echo 2 > a; mkdir d; echo new > d/n; ln -s ../a d/l; chmod 711 d",
    });
    writeFileSync(f.at("mine"), "user's");
    const present = picture(f.workspace);
    const undone = await f.restore(first.checkpoint);
    expect(picture(f.workspace)).toEqual({ a: "file 644 1", mine: "file 644 user's" });
    expect(undone.others).toEqual(["mine"]);
    const redone = await f.restore(undone.undo);
    expect(picture(f.workspace)).toEqual(present);
    await f.restore(redone.undo);
    expect(picture(f.workspace)).toEqual({ a: "file 644 1", mine: "file 644 user's" });
  });

  it("what the agent made goes, what the user made stays unless its removal is asked for (CP-16)", async () => {
    await using f = await fixture();
    const made = await f.call("terminal", { command: "echo agent > new.txt; mkdir both" });
    writeFileSync(f.at("mine.txt"), "mine");
    writeFileSync(f.at("both/mine.txt"), "mine");
    const report = await f.restore(made.checkpoint);
    expect(report.removed).toEqual(["new.txt"]);
    expect(report.others).toEqual(["both", "both/mine.txt", "mine.txt"]);
    expect(Object.keys(picture(f.workspace))).toEqual(["both", "both/mine.txt", "mine.txt"]);
    await f.restore(made.checkpoint, { removeOthers: true });
    expect(picture(f.workspace)).toEqual({});
  });

  it("what a later call writes anew goes with what a command made before it (CP-16)", async () => {
    await using f = await fixture();
    writeFileSync(f.at("old"), "1");
    const first = await f.call("terminal", { command: "echo 1 >by-command" });
    await f.call("write_file", { path: "new/folder/written", content: "1" });
    await f.call("patch", {
      mode: "patch",
      patch: "*** Begin Patch\n*** Add File: patched\n+1\n*** End Patch",
    });
    await f.call("write_file", { path: "old", content: "2" });
    mkdirSync(f.at("new/mine"));
    const report = await f.restore(first.checkpoint);
    expect(report).toMatchObject({
      restored: ["old"],
      removed: ["by-command", "new/folder", "new/folder/written", "patched"],
      others: ["new", "new/mine"],
      failed: [],
    });
    expect(Object.keys(picture(f.workspace))).toEqual(["new", "new/mine", "old"]);
    await f.restore(report.undo);
    expect(readFileSync(f.at("new/folder/written"), "utf8")).toBe("1");
  });

  it("a file beyond the size cap is listed, and neither changed nor removed (CP-11)", {
    tags: ["slow"],
  }, async () => {
    await using f = await fixture({ maxFileBytes: 1_000_000 });
    writeFileSync(f.at("data.bin"), Buffer.alloc(2_000_000));
    writeFileSync(f.at("a.txt"), "a");
    const edit = await f.call("terminal", { command: "echo b > a.txt; echo x >> data.bin" });
    expect(edit.note).toMatch(/does not hold data\.bin: it has more than 1000000 bytes/);
    const report = await f.restore(edit.checkpoint);
    expect(report.left).toEqual([{ path: "data.bin", reason: "its content was not kept" }]);
    expect(statSync(f.at("data.bin")).size).toBe(2_000_002);
    expect(readFileSync(f.at("a.txt"), "utf8")).toBe("a");
  });

  it("leaves out a file that no program of ours holds in one piece, whatever the cap, and keeps the rest", async () => {
    await using f = await fixture({ maxFileBytes: 3 * 1024 ** 3 });
    writeFileSync(f.at("a"), "1");
    writeFileSync(f.at("large"), "");
    truncateSync(f.at("large"), 2.5 * 1024 ** 3);
    const { skipped } = await f.moorage.checkpoints.create(f.moorage.environment());
    expect(skipped).toEqual([{ path: "large", reason: "it has more than 1073741824 bytes" }]);
  });

  it("removes nothing from a folder that nobody could look into before", async ({ skip }) => {
    skip(process.getuid?.() !== 0, "needs an account to which permissions are refused");
    const module = join(import.meta.dirname, "../../src/moorage.ts");
    const nobody = { uid: 65534, gid: 65534, cwd: "/", encoding: "utf8" } as const;
    const asNobody = (script: string, env: NodeJS.ProcessEnv) =>
      spawnSync(process.execPath, ["--input-type=module", "-e", script], {
        ...nobody,
        env: { PATH: process.env.PATH, ...env },
      });
    skip(asNobody(`import ${JSON.stringify(module)}`, {}).status !== 0, "the sources are not open to others");
    const [workspace, stateDir, home] = ["w", "s", "h"].map((name) => join(base, `${name}${count++}`));
    for (const folder of [base, workspace, stateDir, home]) {
      mkdirSync(String(folder), { recursive: true });
      if (folder !== base) chownSync(String(folder), 65534, 65534);
    }
    chmodSync(base, 0o711);
    const at = (path: string) => join(String(workspace), path);
    for (const folder of ["shut", "names", "steps"]) {
      mkdirSync(at(folder));
      writeFileSync(at(`${folder}/theirs`), "theirs");
      spawnSync("chown", ["-R", "65534:65534", at(folder)]);
    }
    for (const [folder, mode] of [
      ["shut", 0],
      ["names", 0o444],
      ["steps", 0o311],
    ] as const)
      chmodSync(at(folder), mode);
    const script = `
      import { createMoorage } from ${JSON.stringify(module)};
      const moorage = await createMoorage(${JSON.stringify({ environments: "local", workspace, stateDir })});
      const command = "chmod 755 shut names steps; echo 1 >shut/made; echo 1 >made";
      const { content, error } = await moorage.call({ name: "terminal", arguments: { command } });
      const later = await moorage.call({ name: "terminal", arguments: { command: "echo 2 >shut/later" } });
      const restore = (options) => moorage.checkpoints.restore(content.checkpoint, moorage.environment(), options);
      console.log(JSON.stringify({ content, error, first: await restore({}), second: await restore({ removeOthers: true }) }));
      await moorage.stop();`;
    const { stdout, stderr } = asNobody(script, { HOME: home });
    const told = stdout === "" ? stderr : JSON.parse(stdout);
    expect(told.first?.removed, JSON.stringify(told)).toEqual(["made", "shut/later"]);
    expect(told.first.left).toContainEqual({ path: "shut", reason: "nobody could look into it then" });
    for (const folder of ["shut", "names", "steps"])
      expect(readFileSync(at(`${folder}/theirs`), "utf8")).toBe("theirs");
    expect(told.second.removed).toEqual([]);
  });

  it("follows a workspace that is reached through a link when the link leads elsewhere", async () => {
    const [first, second] = [join(base, `w${count++}`), join(base, `w${count++}`)];
    for (const folder of [first, second]) mkdirSync(folder);
    const workspace = join(base, `w${count++}`);
    symlinkSync(first, workspace);
    writeFileSync(join(second, "a"), "1");
    await using f = await fixture({}, { workspace });
    await f.call("terminal", { command: "echo first >b" });
    rmSync(workspace);
    symlinkSync(second, workspace);
    const { checkpoint } = await f.call("terminal", { command: `cd ${workspace}; echo 2 >a` });
    await f.restore(checkpoint);
    expect(picture(second)).toEqual({ a: "file 644 1" });
    expect(picture(first)).toEqual({ b: "file 644 first\n" });
  });

  it("restores one path alone, whatever its name (CP-17), and a dry run changes nothing", async () => {
    await using f = await fixture();
    const names = [":(top)weird", "-f", "a*b", "[x]", "a\nb"];
    for (const name of names) writeFileSync(f.at(name), "old");
    const { id } = await f.moorage.checkpoints.create(f.moorage.environment());
    for (const name of names) writeFileSync(f.at(name), "new");
    const dry = await f.restore(id, { dryRun: true });
    expect(dry).toMatchObject({
      undo: null,
      restored: [...names].sort().map((name) => name.replace("\n", "\\x0a")),
    });
    expect(await f.moorage.checkpoints.list()).toHaveLength(1);
    for (const name of names) {
      const report = await f.restore(id, { paths: [name] });
      expect(report.restored).toEqual([name.replace("\n", "\\x0a")]);
      expect(readFileSync(f.at(name), "utf8")).toBe("old");
      const untouched = names.slice(names.indexOf(name) + 1);
      for (const other of untouched) expect(readFileSync(f.at(other), "utf8")).toBe("new");
    }
  });

  it("refuses what is no id, and one that is not there (CP-24)", async () => {
    await using f = await fixture();
    for (const id of ["../../etc", "HEAD~1; rm x", "--help", "", "cp-0123456789AB"]) {
      await expect(f.restore(id)).rejects.toMatchObject({ code: "INVALID_ARGUMENTS" });
    }
    await expect(f.restore("cp-0123456789ab")).rejects.toMatchObject({ code: "CHECKPOINT_MISSING" });
  });

  it("gives everything back to whom it belonged, after a call that wrote one file too", async ({ skip }) => {
    skip(process.getuid?.() !== 0, "only root can give a file to somebody else");
    await using f = await fixture();
    const owners = () =>
      ["a", "d", "d/b", "l"].map((path) => {
        const { uid, gid, mode } = lstatSync(f.at(path));
        return [path, uid, gid, path === "l" ? "link" : (mode & 0o7777).toString(8)];
      });
    mkdirSync(f.at("d"));
    for (const path of ["a", "d/b"]) writeFileSync(f.at(path), "1");
    symlinkSync("a", f.at("l"));
    for (const path of ["a", "d", "d/b", "l"]) lchownSync(f.at(path), 1234, 2345);
    chmodSync(f.at("a"), 0o4755);
    chmodSync(f.at("d"), 0o2755);
    const was = owners();
    const written = await f.call("write_file", { path: "a", content: "2" });
    await f.restore(written.checkpoint);
    expect(owners()).toEqual(was);
    const gone = await f.call("terminal", { command: "rm -r a d l; echo 2 >a" });
    await f.restore(gone.checkpoint);
    expect(owners()).toEqual(was);
    const taken = await f.call("terminal", { command: "chown -hR 0:0 ." });
    const report = await f.restore(taken.checkpoint, { dryRun: true });
    expect(report.restored).toEqual(["a", "d", "d/b", "l"]);
    expect(await f.moorage.checkpoints.diff(String(taken.checkpoint), f.moorage.environment())).toContain(
      "l: owner 1234:2345 -> 0:0\n",
    );
    expect(await f.restore(taken.checkpoint)).toMatchObject({ failed: [], restored: report.restored });
    expect(owners()).toEqual(was);
  });

  it("shows the difference between a checkpoint and the present", async () => {
    await using f = await fixture();
    writeFileSync(f.at("a"), "one\ntwo\n");
    writeFileSync(f.at("bin"), Buffer.from([0, 1]));
    const { checkpoint } = await f.call("terminal", {
      command: "echo three >> a; echo n > n; printf '\\0' > bin; chmod 755 a",
    });
    const text = await f.moorage.checkpoints.diff(String(checkpoint), f.moorage.environment());
    expect(text).toContain("a: file 0644 -> file 0755\n");
    expect(text).toContain("--- a/a\n+++ b/a\n");
    expect(text).toContain("+three\n");
    expect(text).toContain("--- /dev/null\n+++ b/n\n");
    expect(text).toContain("bin: binary or large contents differ");
    // To look is not to store: what was looked at is stored when it is to be undone.
    await f.restore(checkpoint);
    expect(readFileSync(f.at("a"), "utf8")).toBe("one\ntwo\n");
  });

  it("a file that cannot be restored is listed as failed, and the rest is restored (CP-25)", async ({
    skip,
  }) => {
    await using f = await fixture();
    writeFileSync(f.at("stuck"), "1");
    writeFileSync(f.at("free"), "1");
    const { checkpoint } = await f.call("terminal", { command: "echo 2 > stuck; echo 2 > free" });
    if (spawnSync("chattr", ["+i", f.at("stuck")]).status !== 0) skip("files cannot be made immutable here");
    try {
      const report = await f.restore(checkpoint);
      expect(report.restored).toEqual(["free"]);
      expect(report.failed.map(({ path }) => path)).toEqual(["stuck"]);
    } finally {
      spawnSync("chattr", ["-i", f.at("stuck")]);
    }
  });

  it("runs no program of a hostile workspace, and restores a nested repository (CP-05, CP-07)", async () => {
    await using f = await fixture();
    const proof = join(base, "proof");
    spawnSync("git", ["init", "-q", f.workspace]);
    spawnSync("git", ["init", "-q", f.at("nested")]);
    const evil = `touch ${proof}`;
    writeFileSync(
      f.at(".git/config"),
      `[core]\n fsmonitor = ${evil}\n hooksPath = hooks\n[filter "x"]\n clean = ${evil}\n smudge = ${evil}\n[diff]\n external = ${evil}\n`,
    );
    writeFileSync(f.at(".gitattributes"), "* filter=x diff=x\n");
    writeFileSync(f.at("nested/file"), "1");
    writeFileSync(f.at("worktree.git"), "gitdir: /elsewhere\n");
    symlinkSync("/etc", f.at("ext"));
    const before = picture(f.workspace);
    const { checkpoint } = await f.call("terminal", { command: "echo 2 > nested/file; rm -rf .git ext" });
    await f.moorage.checkpoints.diff(String(checkpoint), f.moorage.environment());
    await f.restore(checkpoint);
    expect(existsSync(proof)).toBe(false);
    const after = picture(f.workspace);
    expect(after).toEqual(before);
    expect(after.ext).toBe("-> /etc");
  });

  it("never runs git, so neither a user's settings, nor their absence, nor a lock stops it (CP-01, CP-02, CP-04, CP-09)", {
    tags: ["slow"],
  }, async () => {
    const programs = mkdtempSync(join(base, "programs-"));
    const home = mkdtempSync(join(base, "home-"));
    const ran = join(programs, "ran");
    await using f = await fixture();
    writeFileSync(f.at("a.txt"), "1");
    const repository = "git init -q . && git add . && git -c user.name=a -c user.email=a@b commit -qm 1";
    expect(spawnSync("sh", ["-c", repository], { cwd: f.workspace }).status).toBe(0);
    for (const lock of ["index.lock", "HEAD.lock"]) writeFileSync(f.at(`.git/${lock}`), "");
    // No identity, but signing by a program that fails, and hooks that refuse.
    const settings = `[commit]\n gpgsign = true\n[gpg]\n program = false\n[core]\n hooksPath = ${home}\n[init]\n templateDir = ${home}\n`;
    writeFileSync(join(home, ".gitconfig"), settings);
    writeFileSync(join(home, "pre-commit"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
    writeFileSync(join(programs, "git"), `#!/bin/sh\necho "$@" >>${ran}\nexit 1\n`, { mode: 0o755 });
    vi.stubEnv("HOME", home).stubEnv("PATH", `${programs}:${process.env.PATH}`);
    try {
      const before = picture(f.workspace);
      const { checkpoint } = await f.call("write_file", { path: "a.txt", content: "2" });
      const second = await f.call("terminal", { command: "rm a.txt; echo 3 > b.txt; command -v git" });
      expect(second).toMatchObject({
        checkpoint: expect.stringMatching(ID),
        output: `${join(programs, "git")}\n`,
      });
      expect(checkpoint).toMatch(ID);
      await f.moorage.checkpoints.diff(String(checkpoint), f.moorage.environment());
      await f.restore(checkpoint);
      expect(picture(f.workspace)).toEqual(before);
      expect(existsSync(ran)).toBe(false);
    } finally {
      vi.unstubAllEnvs();
    }
  });

  it("keeps the store within its cap, and the newest checkpoint (CP-20)", { tags: ["slow"] }, async () => {
    await using f = await fixture({ maxStoreBytes: 8_000_000 });
    let last: unknown;
    for (let round = 0; round < 12; round += 1) {
      spawnSync("dd", ["if=/dev/urandom", `of=${f.at("r")}`, "bs=1000000", "count=1"]);
      last = (await f.call("write_file", { path: "r", content: String(round) })).checkpoint;
    }
    await f.moorage.checkpoints.prune();
    expect(await f.moorage.checkpoints.totalBytes()).toBeLessThanOrEqual(8_000_000);
    const size = spawnSync("du", ["-sb", join(f.stateDir, "checkpoints/contents")], { encoding: "utf8" });
    expect(Number.parseInt(size.stdout, 10)).toBeLessThan(9_000_000);
    expect((await f.restore(last)).failed).toEqual([]);
    expect(statSync(f.at("r")).size).toBe(1_000_000);
  });

  it("forgets a hundred folders that are gone, with their contents, and keeps the rest (CP-20)", {
    tags: ["slow"],
  }, async () => {
    await using f = await fixture();
    writeFileSync(f.at("a"), "mine");
    const mine = await f.call("write_file", { path: "a", content: "new" });
    {
      using store = await CheckpointStore.open(f.stateDir);
      for (let index = 0; index < 100; index += 1) {
        const folder = join(base, `dead-${index}`);
        mkdirSync(folder);
        const contents = store.blobs.writer();
        const bytes = Buffer.alloc(50_000, `${index} of a hundred `);
        const hash = await contents.put(bytes);
        await contents.flush();
        const file = { mode: 0o644, hash, size: bytes.length, modifiedAt: 1, uid: 0, gid: 0 };
        const states = new Map([["f", { kind: "file", ...file }]] as const);
        const names = { environment: null, spec: null, mirrored: null };
        const origin = { id: "e", backend: "local", description: "", workspace: folder, ...names };
        const what = { scope: "tree", reason: "by hand", callId: null, origin, states, skipped: [] } as const;
        store.add({ ...what, place: `host:${folder}` }, contents);
        store.remember(`host:${folder}`, new Map([["f", { stamp: "s", hash }]]));
      }
    }
    const { checkpoints } = f.moorage;
    expect(await checkpoints.prune()).toBe(0);
    const full = await checkpoints.totalBytes();
    for (let index = 0; index < 100; index += 1) rmSync(join(base, `dead-${index}`), { recursive: true });
    // The newest of all stays, whatever it is of.
    const newest = await f.call("write_file", { path: "b", content: "newest" });
    expect(await checkpoints.prune()).toBe(100);
    expect((await checkpoints.list()).map(({ id }) => id)).toEqual([newest.checkpoint, mine.checkpoint]);
    expect(await checkpoints.totalBytes()).toBeLessThan(full - 100 * 50_000 + 1_000);
    const files = readdirSync(join(f.stateDir, "checkpoints/contents"), {
      recursive: true,
      withFileTypes: true,
    });
    expect(files.filter((file) => file.isFile() && file.parentPath.includes("content-v2"))).toHaveLength(1);
    expect((await f.restore(mine.checkpoint)).failed).toEqual([]);
    expect(readFileSync(f.at("a"), "utf8")).toBe("mine");
  });

  it("does not prune what a living process restores, whatever the clock says, and what a dead one did", async () => {
    await using f = await fixture({ maxStoreBytes: 30_000 });
    writeFileSync(f.at("a"), randomBytes(20_000));
    const { id } = await f.moorage.checkpoints.create(f.moorage.environment());
    using store = await CheckpointStore.open(f.stateDir);
    const hold = store.hold(store.get(id));
    const ids = async () => (await f.moorage.checkpoints.list()).map((each) => each.id);
    for (const jumpMs of [2, -2].map((hours) => hours * 3600_000)) {
      vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + jumpMs });
      try {
        writeFileSync(f.at("a"), randomBytes(20_000));
        await f.moorage.checkpoints.create(f.moorage.environment());
        await f.moorage.checkpoints.prune();
        expect(await ids()).toContain(id);
      } finally {
        vi.useRealTimers();
      }
    }
    {
      using database = new DatabaseSync(join(f.stateDir, "checkpoints/index.sqlite"));
      // As if the process had been another one, of the same number.
      database.exec("UPDATE held SET owner = rtrim(owner, '0123456789') || '1'");
    }
    await f.moorage.checkpoints.prune();
    expect(await ids()).not.toContain(id);
    hold[Symbol.dispose]();
  });

  it("does not prune what is being restored, though the present makes the store too full", {
    tags: ["slow"],
  }, async () => {
    await using f = await fixture({ maxStoreBytes: 3_500_000 });
    writeFileSync(f.at("old"), Buffer.alloc(1_500_000, "old"));
    const { id } = await f.moorage.checkpoints.create(f.moorage.environment());
    rmSync(f.at("old"));
    for (const name of ["new1", "new2"]) writeFileSync(f.at(name), Buffer.alloc(1_500_000, name));
    const report = await f.restore(id);
    expect(report).toMatchObject({ restored: ["old"], failed: [] });
    expect(readFileSync(f.at("old")).subarray(0, 6).toString()).toBe("oldold");
    // Afterwards the cap holds.
    await f.moorage.checkpoints.prune();
    expect(await f.moorage.checkpoints.totalBytes()).toBeLessThanOrEqual(3_500_000);
  });

  it("heals a store whose contents were removed, and tells what it lost (CP-23)", async () => {
    await using f = await fixture();
    writeFileSync(f.at("a"), "1");
    const lost = await f.call("write_file", { path: "a", content: "2" });
    rmSync(join(f.stateDir, "checkpoints/contents"), { recursive: true });
    const report = await f.restore(lost.checkpoint);
    expect(report.failed).toEqual([{ path: "a", reason: "its content is no longer in the store" }]);
    const next = await f.call("write_file", { path: "a", content: "3" });
    await f.restore(next.checkpoint);
    expect(readFileSync(f.at("a"), "utf8")).toBe("2");
    rmSync(join(f.stateDir, "checkpoints/contents"), { recursive: true });
    writeFileSync(f.at("b"), "b");
    expect((await f.restore(next.checkpoint)).failed).toEqual([]);
    const tree = await f.call("terminal", { command: "rm a b" });
    expect((await f.restore(tree.checkpoint)).failed).toEqual([]);
    expect(Object.keys(picture(f.workspace))).toEqual(["a", "b"]);
  });

  it("begins a new index when the old one is damaged", async () => {
    const stateDir = join(base, `s${count++}`);
    mkdirSync(join(stateDir, "checkpoints"), { recursive: true });
    writeFileSync(join(stateDir, "checkpoints/index.sqlite"), "this is no database at all ".repeat(100));
    await using f = await fixture({}, { stateDir });
    expect((await f.call("write_file", { path: "a", content: "1" })).checkpoint).toMatch(ID);
    expect(readdirSync(join(stateDir, "checkpoints")).some((name) => name.includes("damaged"))).toBe(true);
  });

  it.each([
    ["removed", (file: string) => rmSync(dirname(file), { recursive: true })],
    ["put aside", (file: string) => renameSync(file, `${file}.aside`)],
  ] as const)("enters nothing into an index that was %s, of which nobody would know", async (_, takeAway) => {
    await using f = await fixture();
    writeFileSync(f.at("a"), "1");
    await f.call("terminal", { command: "echo 2 >a" });
    takeAway(join(f.stateDir, "checkpoints/index.sqlite"));
    const tree = await f.call("terminal", { command: "echo 3 >a" });
    const file = await f.call("write_file", { path: "a", content: "4" });
    await using next = await fixture({}, { workspace: f.workspace, stateDir: f.stateDir });
    const known = (await next.moorage.checkpoints.list()).map(({ id }) => id);
    expect(known).toEqual([file.checkpoint, tree.checkpoint]);
    for (const [taken, content] of [
      [file, "3\n"],
      [tree, "2\n"],
    ] as const) {
      expect((await next.restore(taken.checkpoint)).failed).toEqual([]);
      expect(readFileSync(f.at("a"), "utf8")).toBe(content);
    }
  });

  it("restores no list of files that is damaged and can be read all the same", async () => {
    await using f = await fixture();
    writeFileSync(f.at("a"), "1");
    const { checkpoint } = await f.call("write_file", { path: "a", content: "2" });
    {
      using database = new DatabaseSync(join(f.stateDir, "checkpoints/index.sqlite"));
      const row = database.prepare("SELECT data FROM manifests").get();
      if (!(row?.data instanceof Uint8Array)) throw new Error("There is no list");
      const other = unsqueeze(row.data).replace(/,"f",\d+,/, ',"f",511,');
      database.prepare("UPDATE manifests SET data = ?").run(squeeze(other));
    }
    await expect(f.restore(checkpoint)).rejects.toMatchObject({ code: "CHECKPOINT_FAILED" });
    expect(readFileSync(f.at("a"), "utf8")).toBe("2");
  });

  it("stores anew what it had stored when the folder of contents is removed", async () => {
    await using f = await fixture();
    writeFileSync(f.at("a"), "1");
    // What is older than the clock's grain is not looked at again.
    utimesSync(f.at("a"), 1_000_000, 1_000_000);
    await vi.waitUntil(() => Date.now() - statSync(f.at("a")).ctimeMs > 2_500, { timeout: 10_000 });
    for (let turn = 0; turn < 2; turn += 1) await f.call("terminal", { command: ": >>b" });
    for (let turn = 0; turn < 2; turn += 1) {
      rmSync(join(f.stateDir, "checkpoints/contents"), { recursive: true });
      await using next = await fixture({}, { workspace: f.workspace, stateDir: f.stateDir });
      // The runtime that goes on, and one that begins.
      const runtime = turn === 0 ? f : next;
      const taken = await runtime.call("terminal", { command: "rm a" });
      expect((await runtime.restore(taken.checkpoint)).failed).toEqual([]);
      expect(readFileSync(f.at("a"), "utf8")).toBe("1");
    }
  });

  it("begins a new index when the tables of the old one are not ours, and lists what there is", async () => {
    await using f = await fixture();
    await f.call("write_file", { path: "a", content: "1" });
    {
      using database = new DatabaseSync(join(f.stateDir, "checkpoints/index.sqlite"));
      database.enableDefensive?.(false);
      database.exec(
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, 'REFERENCES packs(id)', 'REFERENCES packs(ie)')",
      );
    }
    await using next = await fixture({}, { workspace: f.workspace, stateDir: f.stateDir });
    const taken = await next.call("write_file", { path: "a", content: "2" });
    expect(taken.checkpoint).toMatch(ID);
    expect((await next.moorage.checkpoints.list()).map(({ id }) => id)).toEqual([taken.checkpoint]);
    expect((await next.restore(taken.checkpoint)).failed).toEqual([]);
    expect(readFileSync(f.at("a"), "utf8")).toBe("1");
  });

  it("leaves nothing on the disk of packs that a killed process had written, nor of those that went", async () => {
    await using f = await fixture({ maxStoreBytes: 30_000 });
    const contents = join(f.stateDir, "checkpoints/contents");
    for (let turn = 0; turn < 6; turn += 1) {
      writeFileSync(f.at("a"), randomBytes(20_000));
      await f.moorage.checkpoints.create(f.moorage.environment());
    }
    const blobs = (await CheckpointStore.open(f.stateDir)).blobs;
    const [old, young] = [randomBytes(50_000), randomBytes(50_000)];
    for (const bytes of [old, young]) await blobs.putPack(bytes);
    const files = () =>
      readdirSync(contents, { recursive: true, withFileTypes: true }).filter((each) => each.isFile());
    const long = new Date(Date.now() - 48 * 3600_000);
    for (const { parentPath, name } of files())
      if (readFileSync(join(parentPath, name)).equals(old)) utimesSync(join(parentPath, name), long, long);
    {
      using database = new DatabaseSync(join(f.stateDir, "checkpoints/index.sqlite"));
      database.exec("PRAGMA user_version = 0");
    }
    await f.moorage.checkpoints.prune();
    const left = files().filter(({ parentPath }) => parentPath.includes("content-v2"));
    const bytes = left.map(({ parentPath, name }) => readFileSync(join(parentPath, name)));
    expect(bytes.some((each) => each.equals(young))).toBe(true);
    expect(bytes.some((each) => each.equals(old))).toBe(false);
    expect(files().length - left.length).toBeLessThanOrEqual(1);
  });

  it("begins a new index when damage in the middle of the old one shows, in this runtime and the next", async () => {
    await using f = await fixture();
    for (let index = 0; index < 40; index += 1) writeFileSync(f.at(`file-with-a-long-name-${index}`), "1");
    for (let turn = 0; turn < 8; turn += 1) {
      for (let index = 0; index < 40; index += 1)
        writeFileSync(f.at(`file-with-a-long-name-${index}`), `${turn}.${index}`);
      await f.call("terminal", { command: "touch x" });
    }
    const file = join(f.stateDir, "checkpoints/index.sqlite");
    {
      using database = new DatabaseSync(file);
      database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    const bytes = readFileSync(file);
    bytes.fill(0xa5, 2 * 4096);
    writeFileSync(file, bytes);
    await using next = await fixture({}, { workspace: f.workspace, stateDir: f.stateDir });
    writeFileSync(f.at("file-with-a-long-name-1"), "new");
    const taken = await next.call("terminal", { command: "rm file-with-a-long-name-1" });
    expect(taken.checkpoint).toMatch(ID);
    await next.restore(taken.checkpoint);
    expect(readFileSync(f.at("file-with-a-long-name-1"), "utf8")).toBe("new");
    expect(readdirSync(join(f.stateDir, "checkpoints")).some((name) => name.includes("damaged"))).toBe(true);
  });

  it.each([
    ["a list of files", "UPDATE manifests SET data = x'0102' WHERE id = (SELECT MIN(id) FROM manifests)", 0],
    ["an entry", "UPDATE checkpoints SET made = '7' WHERE seq = (SELECT MIN(seq) FROM checkpoints)", 0],
    ["what a scan remembers", "UPDATE memories SET data = x'0102'", 0],
    ["where contents lie", "UPDATE blobs SET start = start + 1", 0],
    ["packs", "PRAGMA foreign_keys = OFF; DELETE FROM packs", 0],
  ] as const)(
    "damage to %s keeps no later checkpoint from being taken, restored or pruned",
    async (...args) => {
      const [, statement, pruned] = args;
      await using f = await fixture();
      // The same second, too, so that the list of files is the very same one.
      const writeFirst = () => {
        writeFileSync(f.at("a"), "first");
        utimesSync(f.at("a"), 1_000_000, 1_000_000);
      };
      if (pruned > 0) await f.call("terminal", { command: "echo older >a" });
      writeFirst();
      const first = await f.call("terminal", { command: "echo second >a" });
      {
        using database = new DatabaseSync(join(f.stateDir, "checkpoints/index.sqlite"));
        database.exec(statement);
      }
      // What the index is wrong about is found when it is read, and stored anew when it is met again.
      await f.restore(first.checkpoint).catch((error: unknown) => {
        expect(error).toMatchObject({ code: "CHECKPOINT_FAILED" });
      });
      writeFirst();
      const taken = await f.call("terminal", { command: "rm a" });
      expect(taken.checkpoint).toMatch(ID);
      expect(await f.restore(taken.checkpoint)).toMatchObject({ restored: ["a"], failed: [] });
      expect(readFileSync(f.at("a"), "utf8")).toBe("first");
      expect(await f.moorage.checkpoints.prune()).toBe(pruned);
      expect((await f.moorage.checkpoints.list()).map(({ id }) => id)).toContain(taken.checkpoint);
    },
  );

  it("takes a path as it is shown, and an absolute one whatever the workspace is called", async () => {
    await using f = await fixture({}, { workspace: join(base, `w${count++}-$&-$$`) });
    const odd = Buffer.concat([Buffer.from(f.at("odd")), Buffer.from([0xff])]);
    const write = (text: string) => {
      for (const path of [odd, f.at("line\nend"), f.at("plain")]) writeFileSync(path, text);
    };
    write("1");
    const { id } = await f.moorage.checkpoints.create(f.moorage.environment());
    write("2");
    for (const [path, restored] of [
      ["odd\\xff", "odd\\xff"],
      ["line\\x0aend", "line\\x0aend"],
      [f.at("plain"), "plain"],
    ] as const)
      expect((await f.restore(id, { paths: [path] })).restored).toEqual([restored]);
    expect(readFileSync(odd, "utf8")).toBe("1");
    await expect(f.restore(id, { paths: ["odd\\xfe"] })).rejects.toMatchObject({ code: "INVALID_ARGUMENTS" });
  });

  it("tells that contents differ which read alike, and shows no name that a terminal would act upon", async () => {
    await using f = await fixture();
    const write = (byte: number) => {
      writeFileSync(f.at("latin"), Buffer.from([0x61, byte]));
      writeFileSync(f.at("a\u009b31m\u202e"), Buffer.from([byte & 0x7f]));
    };
    write(0xe4);
    const { id } = await f.moorage.checkpoints.create(f.moorage.environment());
    write(0xf6);
    const text = await f.moorage.checkpoints.diff(id, f.moorage.environment());
    expect(text).toContain("latin: binary or large contents differ\n");
    expect(text).toContain("xc2");
    expect(text).not.toMatch(/[\u0080-\u009f\u202e]/);
  });

  it("stores a person's own files first where time is short, and tells each reason for what is left out", {
    tags: ["slow"],
  }, async () => {
    await using f = await fixture({ maxFileBytes: 6_000_000, budgetMs: 600_000 });
    const write = (path: string, bytes: Buffer | string): void => {
      mkdirSync(join(f.workspace, path, ".."), { recursive: true });
      writeFileSync(f.at(path), bytes);
    };
    write(".gitignore", "/build/\n*.log\n");
    write("packages/.gitignore", "!kept.log\n");
    const late = [".git/objects/x", "a.log", "build/out", "node_modules/p/index.js", "packages/b.log"];
    for (const [index, path] of late.entries()) write(path, Buffer.alloc(3_000_000, index + 1));
    for (const path of ["src/a", "test/b", "packages/kept.log", "zz"]) write(path, path);
    write("large", Buffer.alloc(6_000_001));
    const { tree } = f.moorage.environment();
    const [pack, hash] = [tree.pack, tree.hash];
    const bound =
      <Rest extends unknown[], Value>(
        work: (root: string, paths: readonly string[], ...rest: Rest) => Promise<Value>,
      ) =>
      async (root: string, paths: readonly string[], ...rest: Rest): Promise<Value> => {
        if (paths.some((path) => late.includes(path))) throw new MoorageError("TOOL_TIMEOUT", "No time");
        return work(root, paths, ...rest);
      };
    vi.spyOn(tree, "pack").mockImplementation(bound(pack));
    vi.spyOn(tree, "hash").mockImplementation(bound(hash));
    const { checkpoint, note } = await f.call("terminal", { command: "rm -r src test packages zz" });
    expect(note).toBe(
      "The checkpoint does not hold large: it has more than 6000000 bytes; nor a.log and 4 more: the time budget of 600000 ms was passed",
    );
    vi.restoreAllMocks();
    const { info } = await f.moorage.checkpoints.show(String(checkpoint));
    expect(info.skipped.map(({ path }) => path).sort()).toEqual([...late, "large"].sort());
    expect(info.skipped.at(-1)?.path, "git's folder comes last").toBe(".git/objects/x");
    await f.restore(checkpoint);
    for (const path of ["src/a", "test/b", "packages/kept.log", "zz"]) {
      expect(readFileSync(f.at(path), "utf8")).toBe(path);
    }
  });

  it("tells that the time budget was passed, and then lets commands go on (CP-22)", async () => {
    await using f = await fixture({ budgetMs: 1 });
    // One file can be looked at in less.
    for (let index = 0; index < 1_000; index += 1) writeFileSync(f.at(`a${index}`), "1");
    const first = await f.call("terminal", { command: "echo 1 > b" });
    expect(first.note).toMatch(/No checkpoint was taken|time budget/);
    const second = await f.call("terminal", { command: "echo 2 > b" });
    expect(second.note).toMatch(/No checkpoint was taken/);
    expect(readFileSync(f.at("b"), "utf8")).toBe("2\n");
  });

  it("two runtimes on one folder lose no checkpoint (CP-21)", { tags: ["slow"] }, async () => {
    await using one = await fixture();
    await using two = await fixture({}, one);
    const writes = (f: Fixture, name: string) =>
      Promise.all(
        Array.from({ length: 25 }, (_, index) =>
          f.call("write_file", { path: `${name}${index}`, content: name }),
        ),
      );
    const results = (await Promise.all([writes(one, "x"), writes(two, "y")])).flat();
    expect(new Set(results.map(({ checkpoint }) => checkpoint)).size).toBe(50);
    expect(results.filter(({ note }) => note !== undefined)).toEqual([]);
    expect(await one.moorage.checkpoints.list()).toHaveLength(50);
  });

  it("lists checkpoints of a folder also when it is reached through a link (CP-19)", {
    tags: ["slow"],
  }, async () => {
    await using f = await fixture();
    await f.call("write_file", { path: "sub/a", content: "1" });
    const link = join(base, "link");
    symlinkSync(f.workspace, link);
    await using g = await fixture({}, { workspace: link, stateDir: f.stateDir });
    const found = await g.moorage.checkpoints.list(g.moorage.environment());
    expect(found.map(({ place, reason }) => ({ place, reason }))).toEqual([
      { place: `host:${f.workspace}`, reason: "before write_file: sub/a" },
    ]);
  });

  it("one checkpoint of a turn undoes all of it, also outside of the workspace and through links", async () => {
    await using f = await fixture({ each: "turn" });
    const outside = join(base, "outside-of-turn");
    mkdirSync(outside);
    writeFileSync(join(outside, "t"), "1");
    writeFileSync(f.at("a"), "1\n");
    symlinkSync(join(outside, "t"), f.at("file-link"));
    symlinkSync(outside, f.at("folder-link"));
    const before = picture(f.workspace);
    const turn = async (...calls: readonly (readonly [string, Record<string, unknown>])[]) => {
      const results = await f.moorage.batch(calls.map(([name, args]) => ({ name, arguments: args })));
      return results.map((result) => {
        if (!result.ok) throw new Error(JSON.stringify(result.error));
        return result.content.checkpoint;
      });
    };
    const [first, ...others] = await turn(
      ["write_file", { path: "a", content: "2\n" }],
      ["write_file", { path: "new/n", content: "2" }],
      ["write_file", { path: "file-link", content: "2" }],
      ["terminal", { command: "echo 3 > b; rm a; echo 4 > a" }],
      [
        "patch",
        {
          mode: "patch",
          patch:
            "*** Begin Patch\n*** Add File: folder-link/made\n+x\n*** Update File: a\n@@\n-4\n+5\n*** End Patch",
        },
      ],
    );
    expect(first).toMatch(ID);
    expect(new Set(others)).toEqual(new Set([first]));
    const [second] = await turn(["write_file", { path: "a", content: "6" }]);
    expect(second).not.toBe(first);
    expect(readFileSync(join(outside, "t"), "utf8")).toBe("2");
    expect(readdirSync(outside).sort()).toEqual(["made", "t"]);
    const report = await f.restore(first);
    expect(report.failed).toEqual([]);
    expect(report.others).toEqual([]);
    expect(picture(f.workspace)).toEqual(before);
    expect(readFileSync(join(outside, "t"), "utf8")).toBe("1");
    expect(readdirSync(outside)).toEqual(["t"]);
  });

  it("restores a file that a call changed outside of the workspace, and a link that it replaced", {
    tags: ["slow"],
  }, async () => {
    await using f = await fixture();
    const outside = join(base, "outside.txt");
    writeFileSync(outside, "1");
    symlinkSync(outside, f.at("link"));
    const direct = await f.call("write_file", { path: outside, content: "2" });
    await f.restore(direct.checkpoint);
    expect(readFileSync(outside, "utf8")).toBe("1");
    const through = await f.call("write_file", { path: "link", content: "3" });
    expect(readFileSync(outside, "utf8")).toBe("3");
    await f.restore(through.checkpoint);
    expect(readFileSync(outside, "utf8")).toBe("1");
    expect(picture(f.workspace)).toEqual({ link: `-> ${outside}` });
  });

  it.each([
    [
      "another environment",
      "docker:image:0123",
      "it lies outside of the workspace, in another environment: image",
    ],
    [
      "no environment that it names",
      undefined,
      "it lies outside of the workspace, and the checkpoint does not say in which environment",
    ],
  ])(
    "leaves files outside of the workspace to the environment that they are of: %s",
    { tags: ["slow"] },
    async (_, origin, reason) => {
      const stateDir = join(base, `s${count++}`);
      const outside = realpathSync(mkdtempSync(join(base, "outside-")));
      const [there, made] = [join(outside, "there"), join(outside, "made")];
      writeFileSync(there, "theirs");
      const workspace = join(base, `w${count++}`);
      const ids = await (async () => {
        await using f = await fixture({}, { workspace, stateDir });
        const first = await f.call("write_file", { path: there, content: "2" });
        await f.call("write_file", { path: made, content: "2" });
        await f.call("write_file", { path: "inside", content: "2" });
        return [first.checkpoint];
      })();
      // As if the calls had been a container's on the same folder: what is at these paths here is the host's own.
      const database = new DatabaseSync(join(stateDir, "checkpoints/index.sqlite"));
      const told = JSON.stringify({
        id: "x",
        backend: "docker",
        description: "image",
        workspace: "/w",
        environment: origin,
      });
      database.prepare("UPDATE checkpoints SET origin = ?").run(told);
      database.close();
      writeFileSync(there, "mine");
      writeFileSync(made, "mine");
      await using f = await fixture({}, { workspace, stateDir });
      expect(await f.moorage.checkpoints.diff(String(ids[0]), f.moorage.environment())).not.toContain(
        outside,
      );
      expect(await f.restore(ids[0], { removeOthers: true })).toMatchObject({
        restored: [],
        removed: ["inside"],
        failed: [],
        left: [
          { path: made, reason },
          { path: there, reason },
        ],
      });
      expect([readFileSync(there, "utf8"), readFileSync(made, "utf8")]).toEqual(["mine", "mine"]);
    },
  );

  it("a checkpoint of another place is refused unless it is meant, and removes nothing there then", async () => {
    await using a = await fixture();
    await using b = await fixture({}, { stateDir: a.stateDir });
    writeFileSync(a.at("shared"), "a's");
    const { checkpoint } = await a.call("terminal", { command: "echo 2 > shared; echo 2 > made" });
    await a.call("write_file", { path: "absent", content: "2" });
    for (const name of ["shared", "made", "absent"]) writeFileSync(b.at(name), "b's");
    const before = picture(b.workspace);
    const refusal = {
      code: "INVALID_ARGUMENTS",
      message: `Cannot use ${checkpoint} on "host:${b.workspace}": it is a checkpoint of "host:${a.workspace}"`,
    };
    await expect(b.restore(checkpoint)).rejects.toMatchObject(refusal);
    await expect(b.restore(checkpoint, { dryRun: true })).rejects.toMatchObject(refusal);
    const here = b.moorage.environment();
    await expect(b.moorage.checkpoints.diff(String(checkpoint), here)).rejects.toMatchObject(refusal);
    expect(picture(b.workspace)).toEqual(before);
    expect(await b.moorage.checkpoints.list(here)).toEqual([]);
    const report = await b.restore(checkpoint, { otherPlace: true });
    expect(report).toMatchObject({
      restored: ["shared"],
      removed: [],
      others: ["absent", "made"],
      failed: [],
    });
    expect(picture(b.workspace)).toEqual({ ...before, shared: "file 644 a's" });
    await b.restore(report.undo);
    expect(picture(b.workspace)).toEqual(before);
  });
});
