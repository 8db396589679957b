import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, it, vi } from "vitest";
import type { BaseEnvironment, EnvironmentTree } from "../../../environments/base.ts";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { Baseline } from "../../../environments/sync/baseline.ts";
import { mirror, SyncMemory, type SyncOptions, type SyncReport } from "../../../environments/sync/mirror.ts";
import { createHostTree } from "../../../environments/tree/host.ts";
import { bytesOf } from "../../../environments/tree/names.ts";
import { toMoorageError } from "../../../src/errors.ts";
import { slowUnless } from "../../slow.ts";
import { ODD_NAMES } from "../tree/cases.ts";
import { picture, write } from "../tree/picture.ts";

const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-sync-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let count = 0;

interface Fixture extends AsyncDisposable {
  readonly host: string;
  readonly remote: string;
  readonly environment: BaseEnvironment;
  readonly sync: (
    direction?: SyncOptions["direction"],
    options?: Partial<SyncOptions>,
  ) => Promise<SyncReport>;
}

function fixture(shell: "bash" | "sh" = "bash"): Fixture {
  const folder = join(base, String(count++));
  const [host, remote, state] = [join(folder, "host"), join(folder, "remote"), join(folder, "state")];
  for (const each of [host, remote, state]) mkdirSync(each, { recursive: true });
  const environment = createLocalEnvironment({
    workspace: remote,
    stateDir: state,
    shell,
    id: `sync-${count}`,
  });
  return {
    host,
    remote,
    environment,
    sync: (direction = "both", options = {}) =>
      mirror(host, environment, { direction, stateDir: state, ...options }),
    [Symbol.asyncDispose]: () => environment.stop(),
  };
}

const nothing = { pushed: [], pulled: [], conflicts: [], skipped: [] };

for (const shell of ["bash", "sh"] as const) {
  describe(`mirror() with an environment of ${shell}`, slowUnless(shell === "bash"), () => {
    it("copies every kind with mode, link and odd name, and then has nothing to do (SY-12, SY-16)", async () => {
      await using f = fixture(shell);
      write(join(f.host, "d/exe"), "#!");
      chmodSync(join(f.host, "d/exe"), 0o755);
      mkdirSync(join(f.host, "empty"));
      symlinkSync("/etc/passwd", join(f.host, "d/link"));
      for (const name of ODD_NAMES) {
        writeFileSync(Buffer.concat([Buffer.from(`${f.host}/`), Buffer.from(name, "latin1")]), "odd");
      }
      const { pushed, ...rest } = await f.sync("push");
      expect(rest).toEqual({ pulled: [], conflicts: [], skipped: [] });
      expect(pushed).toHaveLength(4 + ODD_NAMES.length);
      expect(picture(f.remote, 0o777)).toEqual(picture(f.host, 0o777));
      expect(await f.sync()).toEqual(nothing);
    });

    it("carries edits, deletions and new files both ways, whatever the clocks say (SY-09, SY-15, SY-19)", async () => {
      await using f = fixture(shell);
      for (const name of ["a", "b", "c", "d/e", "zero"])
        write(join(f.host, name), name === "zero" ? "" : name);
      await f.sync("push");
      write(join(f.host, "a"), "a2");
      utimesSync(join(f.host, "a"), 1, 1);
      rmSync(join(f.host, "b"));
      write(join(f.remote, "zero"), "filled");
      utimesSync(join(f.remote, "zero"), 4_000_000_000, 4_000_000_000);
      rmSync(join(f.remote, "d"), { recursive: true });
      write(join(f.remote, "new/n"), "n");
      expect(await f.sync()).toEqual({
        ...nothing,
        pushed: ["a", "b"],
        pulled: ["d", "d/e", "new", "new/n", "zero"],
      });
      expect(picture(f.host, 0o777)).toEqual(picture(f.remote, 0o777));
      expect(Object.keys(picture(f.host, 0o777))).toEqual(["a", "c", "new", "new/n", "zero"]);
      expect(readFileSync(join(f.host, "zero"), "utf8")).toBe("filled");
      expect(await f.sync()).toEqual(nothing);
    });

    it("keeps both where both sides changed, also when one deleted (SY-10)", async () => {
      await using f = fixture(shell);
      for (const name of ["both", "gone-here", "gone-there", "same"]) write(join(f.host, name), "1");
      await f.sync("push");
      write(join(f.host, "both"), "host");
      write(join(f.remote, "both"), "remote");
      rmSync(join(f.host, "gone-here"));
      write(join(f.remote, "gone-here"), "edited");
      write(join(f.host, "gone-there"), "edited");
      rmSync(join(f.remote, "gone-there"));
      for (const side of [f.host, f.remote]) write(join(side, "same"), "2");
      const first = await f.sync();
      expect({ ...first, conflicts: first.conflicts.map(({ path }) => path) }).toEqual({
        ...nothing,
        conflicts: ["both", "gone-here", "gone-there"],
      });
      expect(readFileSync(join(f.host, "both"), "utf8")).toBe("host");
      expect(readFileSync(join(f.remote, "both"), "utf8")).toBe("remote");
      const copies = first.conflicts.flatMap(({ copy }) => (copy === null ? [] : [copy]));
      expect(copies.map((copy) => readFileSync(join(f.host, copy), "utf8"))).toEqual(["remote", "edited"]);
      expect(await f.sync(), "a conflict stays one").toEqual(first);
      expect(readdirSync(f.remote).filter((name) => name.includes("conflict"))).toEqual([]);
      write(join(f.host, "both"), "merged");
      write(join(f.remote, "both"), "merged");
      expect((await f.sync()).conflicts.map(({ path }) => path)).toEqual(["gone-here", "gone-there"]);
    });

    it("settles conflicts by the side that is named, at the paths that are named", async () => {
      await using f = fixture(shell);
      const names = ["d/é", "d/two", "gone-here", "gone-there", "left"];
      for (const name of names) write(join(f.host, name), "1");
      await f.sync("push");
      for (const name of names) {
        write(join(f.host, name), "host");
        write(join(f.remote, name), "remote");
      }
      rmSync(join(f.host, "gone-here"));
      rmSync(join(f.remote, "gone-there"));
      const pathsOf = ({ conflicts }: SyncReport) => conflicts.map(({ path }) => path);
      const pushed = await f.sync("push", { overwrite: ["d", "gone-here", "lef"] });
      expect({ ...pushed, conflicts: pathsOf(pushed) }).toEqual({
        ...nothing,
        pushed: ["d/two", "d/é", "gone-here"],
        conflicts: ["gone-there", "left"],
      });
      expect(readFileSync(join(f.remote, "d/é"), "utf8")).toBe("host");
      expect(existsSync(join(f.remote, "gone-here"))).toBe(false);
      expect(pathsOf(await f.sync("both", { overwrite: [""] }))).toEqual(["gone-there", "left"]);
      expect(await f.sync("pull", { overwrite: [""] })).toEqual({
        ...nothing,
        pulled: ["gone-there", "left"],
      });
      expect(readFileSync(join(f.host, "left"), "utf8")).toBe("remote");
      expect(existsSync(join(f.host, "gone-there"))).toBe(false);
      expect(await f.sync()).toEqual(nothing);
    });

    it("follows .gitignore as git does, nested and with exceptions, and carries a .git file there and not back (SY-20)", async () => {
      await using f = fixture(shell);
      write(join(f.host, ".gitignore"), "*.log\n!keep.log\nbuild/\n/only-top\n");
      write(join(f.host, "sub/.gitignore"), "local\n!deep.log\n");
      write(join(f.host, ".git"), "gitdir: /repo/.git/worktrees/w\n");
      for (const name of [
        "a.log",
        "keep.log",
        "build/x",
        "only-top",
        "sub/only-top",
        "sub/local",
        "sub/deep.log",
        "sub/b.log",
      ]) {
        write(join(f.host, name), "1");
      }
      await f.sync("push");
      expect(Object.keys(picture(f.remote, 0o777))).toEqual([
        ".git",
        ".gitignore",
        "keep.log",
        "sub",
        "sub/.gitignore",
        "sub/deep.log",
        "sub/only-top",
      ]);
      write(join(f.remote, ".git"), "gitdir: /evil\n");
      write(join(f.remote, "build/made-there"), "1");
      write(join(f.remote, "vendored/.git/config"), "[core]\n fsmonitor = touch /tmp/pwned\n");
      const report = await f.sync();
      expect(report.skipped.map(({ path }) => path)).toEqual([
        ".git",
        "vendored/.git",
        "vendored/.git/config",
      ]);
      expect(readFileSync(join(f.host, ".git"), "utf8")).toBe("gitdir: /repo/.git/worktrees/w\n");
      expect(existsSync(join(f.host, "build/made-there"))).toBe(false);
      expect(existsSync(join(f.host, "vendored/.git"))).toBe(false);
    });

    it("writes nothing outside, through a link that came in an earlier run, or into our state (SY-01, SY-04, SY-05)", async () => {
      await using f = fixture(shell);
      const outside = join(base, `outside-${count}`);
      mkdirSync(outside);
      write(join(f.host, "f"), "1");
      await f.sync("push");
      symlinkSync(outside, join(f.remote, "cfg"));
      write(join(f.remote, "State/plant"), "evil");
      await f.sync("both", { stateDir: join(f.host, "state") });
      expect(readlinkSync(join(f.host, "cfg"))).toBe(outside);
      rmSync(join(f.remote, "cfg"));
      write(join(f.remote, "cfg/authorized_keys"), "evil");
      await f.sync("both", { stateDir: join(f.host, "state") });
      expect(readdirSync(outside)).toEqual([]);
      expect(existsSync(join(f.host, "State"))).toBe(false);
      expect(readFileSync(join(f.host, "cfg/authorized_keys"), "utf8")).toBe("evil");
    });

    it("holds back names that the host would take for one (SY-13)", async () => {
      await using f = fixture(shell);
      write(join(f.host, "a"), "1");
      await f.sync("push");
      write(join(f.remote, "Notes/a.md"), "1");
      write(join(f.remote, "notes/b.md"), "2");
      const twins = ["e\u0301", "\u00e9"];
      for (const twin of twins) write(join(f.remote, twin), twin);
      const report = await f.sync("both", { ignoresCase: true });
      expect(report.skipped.map(({ path }) => path)).toEqual([
        "Notes",
        "Notes/a.md",
        twins[0],
        "notes",
        "notes/b.md",
        twins[1],
      ]);
      for (const twin of twins) expect(readFileSync(join(f.remote, twin), "utf8")).toBe(twin);
      expect(readdirSync(f.host)).toEqual(["a"]);
      expect(existsSync(join(f.remote, "Notes/a.md"))).toBe(true);
      expect(existsSync(join(f.remote, "notes/b.md"))).toBe(true);
    });

    it("takes a side that was emptied for a new one, removes nothing on the other, and says so", async () => {
      await using f = fixture(shell);
      const told = (side: string) => [
        { path: "", reason: expect.stringContaining(`${side} folder was found empty`) },
      ];
      const both = ["d", "d/a"];
      write(join(f.host, "d/a"), "1");
      expect(await f.sync("push"), "a new one is no news").toEqual({ ...nothing, pushed: both });
      rmSync(join(f.remote, "d"), { recursive: true });
      const report = { ...nothing, pushed: both, skipped: told("the environment's") };
      expect(await f.sync("both", { dryRun: true })).toEqual(report);
      expect(await f.sync()).toEqual(report);
      expect(picture(f.remote, 0o777)).toEqual(picture(f.host, 0o777));
      expect(await f.sync()).toEqual(nothing);
      rmSync(join(f.host, "d"), { recursive: true });
      expect(await f.sync()).toEqual({ ...nothing, pulled: both, skipped: told("this host's") });
      rmSync(join(f.host, "d"), { recursive: true });
      expect(await f.sync("pull"), "a pull is to bring it").toEqual({ ...nothing, pulled: both });
      for (const side of [f.host, f.remote]) rmSync(join(side, "d"), { recursive: true });
      expect(await f.sync()).toEqual(nothing);
    });

    it("understands a run that died between putting files in place and writing that down", async () => {
      await using f = fixture(shell);
      write(join(f.host, "a"), "1");
      await f.sync("push");
      write(join(f.host, "a"), "2");
      const states = join(dirname(f.host), "state/sync");
      const [name = ""] = readdirSync(states);
      const before = readFileSync(join(states, name));
      await f.sync("push");
      const hash = createHash("sha256").update("2").digest("hex");
      writeFileSync(join(states, name), before);
      {
        using baseline = await Baseline.open(join(states, name));
        baseline.intend({ side: "there", states: [["a", `file 644 ${hash}`]] });
      }
      write(join(f.host, "a"), "1");
      expect(await f.sync()).toEqual({ ...nothing, pushed: ["a"] });
      using baseline = await Baseline.open(join(states, name));
      expect(baseline.intent).toBeNull();
    });

    it("waits for another mirror of the same folders, and takes a damaged baseline for an empty one", async () => {
      await using f = fixture(shell);
      write(join(f.host, "a"), "1");
      const two = await Promise.all([f.sync(), f.sync()]);
      expect(two.map(({ pushed }) => pushed).sort()).toEqual([["a"], []].sort());
      const states = join(dirname(f.host), "state/sync");
      const [name = ""] = readdirSync(states);
      writeFileSync(join(states, name), "this is no database ".repeat(100));
      write(join(f.host, "a"), "2");
      const { conflicts } = await f.sync();
      expect(conflicts.map(({ path }) => path)).toEqual(["a"]);
      expect(readFileSync(join(f.remote, "a"), "utf8")).toBe("1");
      const held = await Baseline.open(join(states, name));
      const controller = new AbortController();
      const waiting = f.sync("both", { abortSignal: controller.signal });
      controller.abort();
      await expect(waiting).rejects.toMatchObject({ code: "ABORTED" });
      held[Symbol.dispose]();
      expect((await f.sync()).conflicts).toEqual(conflicts.map(({ path, copy }) => ({ path, copy })));
    });

    it("looks at a new folder while the environment comes up, and again when another mirror was there first", async () => {
      await using f = fixture(shell);
      write(join(f.host, "a"), "1");
      write(join(f.remote, "b"), "2");
      await f.environment.start();
      const memory = new SyncMemory();
      const looks: Promise<unknown>[] = [];
      const look = vi.spyOn(memory.tree, "scan").mockImplementation((...words) => {
        const scan = createHostTree().scan(...words);
        looks.push(scan);
        return scan;
      });
      const coming = vi.spyOn(f.environment, "start");
      coming.mockImplementationOnce(async () => {
        expect(looks).toHaveLength(1);
        await looks[0];
        // It brings a file that has not been looked at.
        expect((await f.sync()).pulled).toEqual(["b"]);
      });
      expect(await f.sync("both", { memory })).toEqual(nothing);
      expect(looks).toHaveLength(2);
      expect(picture(f.host, 0o777)).toEqual(picture(f.remote, 0o777));
      // One that is known is looked at once, and not before.
      coming.mockImplementationOnce(async () => expect(looks).toHaveLength(2));
      expect(await f.sync("both", { memory })).toEqual(nothing);
      expect(looks).toHaveLength(3);
      look.mockClear();
      rmSync(join(dirname(f.host), "state/sync"), { recursive: true });
      expect(await f.sync("both", { memory })).toEqual(nothing);
      expect(look).toHaveBeenCalledTimes(1);
    });

    it("ends the look at its folder when the environment does not come up", async () => {
      await using f = fixture(shell);
      write(join(f.remote, "b"), "2");
      const memory = new SyncMemory();
      const look = vi.spyOn(memory.tree, "scan");
      const failure = new Error("no such place");
      vi.spyOn(f.environment, "start").mockRejectedValueOnce(failure);
      await expect(f.sync("push", { memory })).rejects.toBe(failure);
      expect(look).toHaveBeenCalledTimes(1);
      expect(look.mock.calls[0]?.[1]?.abortSignal?.aborted).toBe(true);
    });

    it("does nothing when both sides are one folder (SY-18)", async () => {
      await using f = fixture(shell);
      write(join(f.remote, "a"), "1");
      const report = await mirror(f.remote, f.environment, { direction: "both", stateDir: join(base, "s") });
      expect(report.skipped).toEqual([{ path: "", reason: "both sides are one folder" }]);
      expect(picture(f.remote, 0o777)).toEqual({ a: "file 644 1" });
    });

    it("goes on after an abort from where it was, and a dry run does nothing (SY-17)", async () => {
      await using f = fixture(shell);
      for (let index = 0; index < 20; index += 1) write(join(f.host, `f${index}`), String(index));
      expect((await f.sync("push", { dryRun: true })).pushed).toHaveLength(20);
      expect(readdirSync(f.remote)).toEqual([]);
      const controller = new AbortController();
      const broken = f.sync("push", { abortSignal: controller.signal, onProgress: () => controller.abort() });
      await expect(broken).rejects.toMatchObject({ code: "ABORTED" });
      expect(readdirSync(f.remote).filter((name) => name.startsWith("f"))).toEqual([]);
      expect((await f.sync("push")).pushed).toHaveLength(20);
      expect(picture(f.remote, 0o777)).toEqual(picture(f.host, 0o777));
    });

    it("takes nothing that some file system would take for git's own folder", async () => {
      await using f = fixture(shell);
      write(join(f.host, "a"), "1");
      await f.sync("push");
      const names = [".GIT", ".g\u200cit", "git~1", ".git.", ".git "];
      for (const name of names) write(join(f.remote, name, "config"), "[core]\n fsmonitor = touch pwned\n");
      write(join(f.remote, ".github/w"), "fine");
      const { skipped, pulled } = await f.sync();
      expect(pulled).toEqual([".github", ".github/w"]);
      expect(skipped.map(({ path }) => path).sort()).toEqual(
        names.flatMap((name) => [name, `${name}/config`]).sort(),
      );
      expect(readdirSync(f.host).sort()).toEqual([".github", "a"]);
    });

    it("mirrors what git tracks, whatever the rules say of it (git's index of each version)", async ({
      skip,
    }) => {
      if (spawnSync("git", ["--version"]).status !== 0) skip("git is not installed");
      for (const version of ["2", "4"]) {
        await using f = fixture(shell);
        const git = (...words: string[]) => spawnSync("git", ["-C", f.host, ...words], { encoding: "utf8" });
        git("init", "--quiet");
        write(join(f.host, ".gitignore"), "*.log\nbuild/\n");
        for (const path of ["keep.log", "other.log", "build/kept", "build/other", "b/deep/é.log"])
          write(join(f.host, path), path);
        git("add", "--force", "keep.log", "build/kept", "b/deep/é.log", ".gitignore");
        git("update-index", "--index-version", version, "--force-write-index");
        await f.sync();
        expect(Object.keys(picture(f.remote)).filter((path) => !path.startsWith(".git/"))).toEqual(
          [
            ".git",
            ".gitignore",
            "b",
            "b/deep",
            bytesOf("b/deep/é.log"),
            "build",
            "build/kept",
            "keep.log",
          ].sort(),
        );
        git("add", "--force", "other.log");
        expect((await f.sync()).pushed).toContain("other.log");
        expect((await f.sync()).pushed).toEqual([]);
      }
    });

    it("writes over no copy of a conflict that somebody has changed, and does not pass it off as the other's", async () => {
      await using f = fixture(shell);
      write(join(f.host, "f"), "1");
      await f.sync();
      writeFileSync(join(f.host, "f"), "here");
      writeFileSync(join(f.remote, "f"), "there");
      const hash = createHash("sha256").update("there").digest("hex");
      write(join(f.host, `f.conflict-${hash.slice(0, 8)}`), "mine");
      const copy = `f.conflict-${hash.slice(8, 16)}`;
      expect((await f.sync()).conflicts).toEqual([{ path: "f", copy }]);
      expect(readFileSync(join(f.host, copy), "utf8")).toBe("there");
      expect(readFileSync(join(f.host, `f.conflict-${hash.slice(0, 8)}`), "utf8")).toBe("mine");
      expect((await f.sync()).conflicts).toEqual([{ path: "f", copy }]);
    });

    it("one path that no program can name, or a time before 1970, keeps nothing else from being mirrored", async () => {
      await using f = fixture(shell);
      write(join(f.host, "old"), "old");
      spawnSync("touch", ["-d", "1960-01-01", join(f.host, "old")]);
      // Longer than a path may be: each folder is entered from the one above.
      const name = "d".repeat(200);
      spawnSync("sh", ["-c", 'for i in $(seq 21); do mkdir "$0" && cd "$0" || exit 1; done', name], {
        cwd: f.host,
      });
      const { pushed, skipped } = await f.sync();
      expect(pushed).toContain("old");
      expect(skipped.length).toBeGreaterThan(0);
      for (const { path, reason } of skipped) {
        expect(reason).toBe("its path is too long");
        expect(path.length).toBeGreaterThan(4_000);
      }
      expect(readFileSync(join(f.remote, "old"), "utf8")).toBe("old");
      expect((await f.sync()).pushed).toEqual([]);
      writeFileSync(join(f.remote, "back"), "1");
      spawnSync("touch", ["-d", "1960-01-01", join(f.remote, "back")]);
      expect((await f.sync()).pulled).toEqual(["back"]);
    });

    it("keeps both versions of a file whose name has no room for more, as far as the name goes", async () => {
      await using f = fixture(shell);
      const name = "é".repeat(127);
      write(join(f.host, name), "1");
      await f.sync();
      writeFileSync(join(f.host, name), "here");
      writeFileSync(join(f.remote, name), "there");
      const { conflicts } = await f.sync();
      const copy = `${"é".repeat(118)}.conflict-${createHash("sha256").update("there").digest("hex").slice(0, 8)}`;
      expect(conflicts).toEqual([{ path: name, copy }]);
      expect(readFileSync(join(f.host, copy), "utf8")).toBe("there");
    });

    it("refuses folders of which one lies in the other, and our own state, also under a name with dots", async () => {
      await using f = fixture(shell);
      const stateDir = join(dirname(f.host), "state");
      const refused = (host: string) => mirror(host, f.environment, { direction: "both", stateDir });
      mkdirSync(join(f.remote, "inner"));
      await expect(refused(join(f.remote, "inner"))).rejects.toMatchObject({ code: "INVALID_ARGUMENTS" });
      await expect(refused(dirname(f.host))).rejects.toMatchObject({ code: "INVALID_ARGUMENTS" });
      mkdirSync(join(stateDir, "sync"), { recursive: true });
      await expect(refused(stateDir)).rejects.toMatchObject({ code: "PATH_DENIED" });
      await expect(refused(join(stateDir, "sync"))).rejects.toMatchObject({ code: "PATH_DENIED" });
      write(join(f.host, "..state/secret"), "1");
      write(join(f.remote, "own/secret"), "1");
      expect(await f.sync("both", { stateDir: join(f.host, "..state") })).toMatchObject({ pushed: [] });
      rmSync(join(f.host, "..state"), { recursive: true });
      rmSync(join(f.host, "own"), { recursive: true });
      expect(await f.sync("both", { stateDir: join(f.remote, "own") })).toEqual(nothing);
    });

    it("does not let an environment fill the disk with a file that was small when it was looked at", async () => {
      await using f = fixture(shell);
      for (const name of ["a", "b"]) write(join(f.remote, name), name);
      const endless = (async function* () {
        while (true) yield Buffer.alloc(65_536);
      })();
      const pack: EnvironmentTree["pack"] = async (_root, paths, take) => {
        for (const path of paths) {
          const large = { path, size: 2 ** 50, mode: 0o644, content: endless };
          await take(path === "a" ? large : { ...large, size: 1, content: only("b") });
        }
      };
      const only = async function* (text: string) {
        yield Buffer.from(text);
      };
      const lying = new Proxy(f.environment, {
        get: (target, key) => {
          if (key === "tree") return { ...target.tree, pack };
          const value = Reflect.get(target, key, target);
          return typeof value === "function" ? value.bind(target) : value;
        },
      });
      const stateDir = join(base, `s${count}`);
      expect(await mirror(f.host, lying, { direction: "pull", stateDir })).toEqual({
        ...nothing,
        pulled: ["b"],
        skipped: [{ path: "a", reason: "it grew beyond measure while it was read" }],
      });
      expect(readdirSync(f.host)).toEqual(["b"]);
    });
  });
}

it("mirror() onto a full disk says so, and leaves what was there", async ({ skip }) => {
  await using f = fixture();
  const small = join(f.host, "small");
  mkdirSync(small);
  const mounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=1m", "tmpfs", small], { encoding: "utf8" });
  if (mounted.status !== 0) skip(`no small disk can be made here: ${mounted.stderr}`);
  try {
    const stateDir = join(base, `s${count}`);
    const pull = () => mirror(small, f.environment, { direction: "pull", stateDir });
    write(join(f.remote, "a"), "1");
    expect((await pull()).pulled).toEqual(["a"]);
    write(join(f.remote, "a"), "22");
    write(join(f.remote, "b"), "x".repeat(2_000_000));
    await expect(pull()).rejects.toMatchObject({ code: "STORAGE_FULL" });
    expect(picture(small, 0o777)).toEqual({ a: "file 644 1" });
    rmSync(join(f.remote, "b"));
    expect((await pull()).pulled).toEqual(["a"]);
  } finally {
    spawnSync("umount", ["--lazy", small]);
  }
});

it("mirror() says of a folder that takes nothing, or a full disk beneath the records, what it is", async ({
  skip,
}) => {
  await using f = fixture();
  const small = join(f.host, "small");
  mkdirSync(small);
  const mount = (options: string) =>
    spawnSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", small], { encoding: "utf8" });
  const mounted = mount("ro");
  if (mounted.status !== 0) skip(`no disk can be made here: ${mounted.stderr}`);
  try {
    const stateDir = join(base, `s${count}`);
    write(join(f.remote, "a"), "1");
    await expect(mirror(small, f.environment, { direction: "pull", stateDir })).rejects.toMatchObject({
      code: "FILE_PERMISSION",
    });
    spawnSync("umount", ["--lazy", small]);
    mount("size=64k");
    for (let index = 0; index < 2_000; index += 1)
      write(join(f.remote, `file-with-a-long-name-${index}`), "1");
    mkdirSync(join(f.remote, "host"));
    const target = join(dirname(f.host), "target");
    mkdirSync(target);
    const failure = await mirror(target, f.environment, { direction: "pull", stateDir: small }).catch(
      (error: unknown) => error,
    );
    expect(toMoorageError(failure)).toMatchObject({ code: "STORAGE_FULL" });
    expect(readdirSync(target)).toEqual([]);
  } finally {
    spawnSync("umount", ["--lazy", small]);
  }
});
