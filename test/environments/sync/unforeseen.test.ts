/** What comes between two looks of a mirror, and between two mirrors: each change is kept or told. */
import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, it, vi } from "vitest";
import type { BaseEnvironment } from "../../../environments/base.ts";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { mirror, SyncMemory, type SyncOptions, type SyncReport } from "../../../environments/sync/mirror.ts";
import { HostWriter } from "../../../environments/tree/host-writer.ts";
import { slowUnless } from "../../slow.ts";
import { picture, write } from "../tree/picture.ts";

const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-unforeseen-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let count = 0;

interface Fixture extends AsyncDisposable {
  readonly host: string;
  readonly remote: string;
  readonly state: string;
  readonly environment: BaseEnvironment;
  readonly sync: (
    direction?: SyncOptions["direction"],
    options?: Partial<SyncOptions>,
  ) => Promise<SyncReport>;
}

/** @param beside whose environment's folder and state are shared */
function fixture(shell: "bash" | "sh" = "bash", beside?: Fixture): Fixture {
  const folder = join(base, String(count++));
  const host = join(folder, "host");
  const remote = beside?.remote ?? join(folder, "remote");
  const state = beside?.state ?? join(folder, "state");
  for (const each of [host, remote, state]) mkdirSync(each, { recursive: true });
  const environment = createLocalEnvironment({ workspace: remote, stateDir: state, shell });
  return {
    host,
    remote,
    state,
    environment,
    sync: (direction = "both", options = {}) =>
      mirror(host, environment, { direction, stateDir: state, ...options }),
    [Symbol.asyncDispose]: () => environment.stop(),
  };
}

const nothing = { pushed: [], pulled: [], conflicts: [], skipped: [] };

for (const shell of ["bash", "sh"] as const) {
  describe(`mirror() with an environment of ${shell}`, slowUnless(shell === "bash"), () => {
    it("brings a folder back with its own mode when one side removed it and the other wrote into it", async () => {
      await using f = fixture(shell);
      for (const name of ["anchor", "there/secret/old", "here/secret/old"]) write(join(f.host, name), "1");
      for (const each of ["there", "there/secret", "here", "here/secret"])
        chmodSync(join(f.host, each), 0o700);
      await f.sync();
      rmSync(join(f.host, "there"), { recursive: true });
      write(join(f.remote, "there/secret/new"), "2");
      rmSync(join(f.remote, "here"), { recursive: true });
      write(join(f.host, "here/secret/new"), "2");
      expect(await f.sync()).toEqual({
        ...nothing,
        pushed: ["here", "here/secret", "here/secret/new", "there/secret/old"],
        pulled: ["here/secret/old", "there", "there/secret", "there/secret/new"],
      });
      const expected = Object.fromEntries(
        ["here", "there"].flatMap((side) => [
          [side, "dir 700"],
          [`${side}/secret`, "dir 700"],
          [`${side}/secret/new`, "file 644 2"],
        ]),
      );
      for (const side of [f.host, f.remote])
        expect(picture(side, 0o777)).toEqual({ anchor: "file 644 1", ...expected });
      expect(await f.sync()).toEqual(nothing);
    });

    it("makes the folder of a conflict's copy as closed as it was", async () => {
      await using f = fixture(shell);
      for (const name of ["anchor", "secret/a"]) write(join(f.host, name), "1");
      chmodSync(join(f.host, "secret"), 0o700);
      await f.sync();
      rmSync(join(f.host, "secret"), { recursive: true });
      write(join(f.remote, "secret/a"), "2");
      const { conflicts } = await f.sync();
      expect(conflicts.map(({ path }) => path)).toEqual(["secret/a"]);
      expect(lstatSync(join(f.host, "secret")).mode & 0o777).toBe(0o700);
      expect(readFileSync(join(f.host, conflicts[0]?.copy ?? ""), "utf8")).toBe("2");
    });

    it("touches nothing where one side has a pipe, whatever the other has", async () => {
      await using f = fixture(shell);
      const names = ["file", "folder/in", "link"];
      for (const name of ["anchor", "was", ...names]) write(join(f.host, name), "1");
      await f.sync();
      for (const name of names) rmSync(join(f.host, name.split("/")[0] ?? ""), { recursive: true });
      rmSync(join(f.remote, "was"));
      execFileSync("mkfifo", [
        "-m",
        "600",
        join(f.remote, "was"),
        ...["file", "folder", "link"].map((each) => join(f.host, each)),
      ]);
      rmSync(join(f.remote, "link"));
      symlinkSync("anchor", join(f.remote, "link"));
      write(join(f.remote, "file"), "2");
      const before = [picture(f.host), picture(f.remote)];
      const { skipped, ...rest } = await f.sync();
      expect(rest).toEqual({ pushed: [], pulled: [], conflicts: [] });
      expect(skipped.map(({ path }) => path)).toEqual(["file", "folder", "link", "was"]);
      expect([picture(f.host), picture(f.remote)]).toEqual(before);
    });

    it("sets no mode of what stands where a folder could not be made", async () => {
      await using f = fixture(shell);
      execFileSync("mkfifo", ["-m", "640", join(f.remote, "d")]);
      const writer = f.environment.tree.writer(f.remote);
      const { failed } = await writer.finish({ folders: [{ path: "d", mode: 0o755 }] });
      expect(failed.map(({ path }) => path)).toEqual(["d"]);
      expect(lstatSync(join(f.remote, "d")).mode & 0o777).toBe(0o640);
    });

    it("replaces nothing by a link that was not there when it looked", async () => {
      await using f = fixture(shell);
      write(join(f.host, "anchor"), "1");
      write(join(f.remote, "anchor"), "1");
      symlinkSync("anchor", join(f.remote, "pulled"));
      symlinkSync("anchor", join(f.host, "pushed"));
      const memory = new SyncMemory();
      for (const [tree, side, name] of [
        [memory.tree, f.host, "pulled"],
        [f.environment.tree, f.remote, "pushed"],
      ] as const) {
        const make = tree.writer;
        vi.spyOn(tree, "writer").mockImplementationOnce((root) => {
          const writer = make(root);
          const finish = writer.finish.bind(writer);
          writer.finish = (changes) => {
            write(join(side, name), "a person's");
            return finish(changes);
          };
          return writer;
        });
      }
      const report = await f.sync("both", { memory });
      expect(report.skipped.map(({ path }) => path)).toEqual(["pulled", "pushed"]);
      for (const [side, name] of [
        [f.host, "pulled"],
        [f.remote, "pushed"],
      ] as const)
        expect(readFileSync(join(side, name), "utf8")).toBe("a person's");
      expect((await f.sync()).conflicts.map(({ path }) => path)).toEqual(["pulled", "pushed"]);
    });

    it("tells of every write that two hosts send to one place at the same time", async () => {
      await using one = fixture(shell);
      await using two = fixture(shell, one);
      const olds = Array.from({ length: 300 }, (_, index) => `old-${index}`);
      for (const name of olds) write(join(one.host, name), "0");
      const hosts = [one, two].map((f) => {
        const memory = new SyncMemory();
        return { host: f.host, sync: () => f.sync("both", { memory }) };
      });
      for (const { sync } of hosts) await sync();
      for (const { sync } of hosts) await sync();
      for (let round = 1; round <= 4; round += 1) {
        const names = [...(round % 2 === 0 ? olds : olds.slice(0, 5)), `new-${round}`];
        for (const [index, { host }] of hosts.entries())
          for (const name of names) write(join(host, name), `${index} ${round}`);
        const reports = await Promise.all(hosts.map(({ sync }) => sync()));
        for (const { sync } of hosts) reports.push(await sync());
        const told = new Set(
          reports.flatMap(({ conflicts, skipped }) => [...conflicts, ...skipped].map(({ path }) => path)),
        );
        expect(
          names.filter((name) => !told.has(name)),
          `round ${round}`,
        ).toEqual([]);
        for (const [index, { host }] of hosts.entries())
          for (const name of names) expect(readFileSync(join(host, name), "utf8")).toBe(`${index} ${round}`);
        for (const side of [one.host, two.host, one.remote])
          for (const name of names) write(join(side, name), `even ${round}`);
        for (const { host } of hosts)
          for (const name of readdirSync(host)) if (name.includes(".conflict-")) rmSync(join(host, name));
        for (const { sync } of hosts) await sync();
      }
    });

    it("takes no zeros for what a file there lost while it was read, and brings the others", async () => {
      await using f = fixture(shell);
      const large = "la\\rge é";
      write(join(f.remote, large), "x".repeat(40_000_000));
      write(join(f.remote, "z"), "1");
      let isCut = false;
      const onProgress = () => {
        if (!isCut) truncateSync(join(f.remote, large), 1_000);
        isCut = true;
      };
      const reason = "it became shorter while it was read";
      expect(await f.sync("pull", { onProgress })).toEqual({
        ...nothing,
        pulled: ["z"],
        skipped: [{ path: large, reason }],
      });
      expect(readdirSync(f.host)).toEqual(["z"]);
      expect((await f.sync("pull")).pulled).toEqual([large]);
    });

    it("leaves out a file here that becomes shorter while it is read, and sends the others", async () => {
      await using f = fixture(shell);
      write(join(f.remote, "b"), "");
      for (const name of ["a", "large", "z"])
        write(join(f.host, name), name === "large" ? "x".repeat(9_000_000) : "1");
      let told = 0;
      const onProgress = () => {
        told += 1;
        // Some of it was read by then.
        if (told === 2) truncateSync(join(f.host, "large"), 10);
      };
      const report = await f.sync("push", { onProgress });
      expect(report.skipped.map(({ path }) => path)).toEqual(["large"]);
      expect(report.pushed).toEqual(["a", "z"]);
      expect((await f.sync("push")).pushed).toEqual(["large"]);
      expect(readFileSync(join(f.remote, "large"), "utf8")).toBe("x".repeat(10));
    });

    it("removes from the environment what a run that died had gathered there, also when nothing is to be sent", async () => {
      await using f = fixture(shell);
      write(join(f.remote, "a"), "1");
      await f.sync();
      write(join(f.host, "b"), "1");
      const make = f.environment.tree.writer;
      vi.spyOn(f.environment.tree, "writer").mockImplementationOnce((root) => {
        const writer = make(root);
        writer.finish = async () => {
          mkdirSync(join(root, writer.stageName));
          throw new Error("it died");
        };
        writer.discard = async () => undefined;
        return writer;
      });
      await expect(f.sync()).rejects.toThrow("it died");
      expect(readdirSync(f.remote).filter((name) => name.startsWith(".moorage-"))).toHaveLength(1);
      rmSync(join(f.host, "b"));
      expect(await f.sync()).toEqual(nothing);
      expect(readdirSync(f.remote)).toEqual(["a"]);
    });

    it("knows that a file is in place though its time is beyond what the file system tells", async () => {
      await using f = fixture(shell);
      const later = 2 ** 40;
      write(join(f.remote, "a"), "old");
      const { tree } = f.environment;
      const told = (await tree.scan(f.remote)).entries[0] ?? null;
      const writer = tree.writer(f.remote);
      await writer.stage({ path: "a", size: 3, mode: 0o644, modifiedAt: later }, [Buffer.from("new")]);
      const { done, failed } = await writer.finish({ expected: new Map([["a", told]]) });
      expect({ done, failed }).toEqual({ done: ["a"], failed: [] });
      expect(readFileSync(join(f.remote, "a"), "utf8")).toBe("new");
    });

    it("carries folders as deep as a path can be, in time that grows with their number", async () => {
      await using f = fixture(shell);
      write(join(f.remote, "other"), "1");
      const deep = "a/".repeat(1_500);
      write(join(f.host, deep, "f"), "1");
      expect((await f.sync()).pushed).toHaveLength(1_501);
      expect(readFileSync(join(f.remote, deep, "f"), "utf8")).toBe("1");
      await using other = fixture(shell, f);
      expect((await other.sync("pull")).pulled).toHaveLength(1_502);
      expect(readFileSync(join(other.host, deep, "f"), "utf8")).toBe("1");
    });

    it("mirrors what git tracks in a worktree, and follows its index", async ({ skip }) => {
      if (spawnSync("git", ["--version"]).status !== 0) skip("git is not installed");
      await using f = fixture(shell);
      const main = join(dirname(f.host), "main");
      const git = (folder: string, ...words: readonly string[]) =>
        execFileSync("git", ["-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", ...words], {
          stdio: "pipe",
        });
      write(join(main, ".gitignore"), "*.log\n");
      for (const name of ["t.log", "u.log"]) write(join(main, name), "1");
      execFileSync("git", ["init", "--quiet", main]);
      write(join(main, ".git/info/exclude"), "own\n");
      git(main, "add", "--force", "t.log", ".gitignore");
      git(main, "commit", "--quiet", "-m", "1");
      rmSync(f.host, { recursive: true });
      git(main, "worktree", "add", "--quiet", f.host);
      for (const name of ["u.log", "own", "a"]) write(join(f.host, name), "1");
      const memory = new SyncMemory();
      const sync = () => f.sync("both", { memory });
      expect((await sync()).pushed).toEqual([".git", ".gitignore", "a", "t.log"]);
      expect(await sync()).toEqual(nothing);
      git(f.host, "add", "--force", "u.log");
      expect(await sync()).toEqual({ ...nothing, pushed: ["u.log"] });
      write(join(main, ".git/info/exclude"), "");
      expect(await sync()).toEqual({ ...nothing, pushed: ["own"] });
    });

    it("leaves git's folder out with the folder that it is in", async () => {
      await using f = fixture(shell);
      write(join(f.host, ".gitignore"), "build/\n");
      write(join(f.host, "build/fetched/.git/HEAD"), "ref: refs/heads/main\n");
      write(join(f.host, "kept/.git/HEAD"), "ref: refs/heads/main\n");
      const kept = [".gitignore", "kept", "kept/.git", "kept/.git/HEAD"];
      expect(await f.sync()).toEqual({ ...nothing, pushed: kept });
      expect(Object.keys(picture(f.remote))).toEqual(kept);
    });
  });
}

it("HostWriter looks again at each entry just before it replaces it", async () => {
  await using f = fixture();
  const scan = vi.fn(new SyncMemory().tree.scan);
  const writer = new HostWriter(f.host, scan);
  for (const name of ["gone", "linked", "new", "old"]) {
    if (name !== "new") write(join(f.host, name), "1");
  }
  const { entries } = await scan(f.host);
  const expected = new Map(
    ["gone", "linked", "new", "old"].map((path) => [
      path,
      entries.find((each) => each.path === path) ?? null,
    ]),
  );
  for (const path of ["new", "old"])
    await writer.stage({ path, size: 1, mode: 0o644, modifiedAt: 1 }, [Buffer.from("2")]);
  // After the look at all of them, somebody writes to each.
  scan.mockImplementationOnce(async (root, options) => {
    const told = await new SyncMemory().tree.scan(root, options);
    for (const name of ["gone", "linked", "new", "old"]) writeFileSync(join(f.host, name), "a person's");
    return told;
  });
  const outcome = await writer.finish({
    remove: ["gone"],
    links: [{ path: "linked", target: "x" }],
    expected,
  });
  expect({ ...outcome, changed: [...(outcome.changed ?? [])].sort() }).toEqual({
    done: [],
    failed: [],
    changed: ["gone", "linked", "new", "old"],
  });
  for (const name of readdirSync(f.host)) expect(readFileSync(join(f.host, name), "utf8")).toBe("a person's");
  expect(readdirSync(f.host)).toEqual(["gone", "linked", "new", "old"]);
  expect(() => readlinkSync(join(f.host, "linked"))).toThrow("EINVAL");
});
