/** What is looked at for a bubblewrap sandbox and has become something else by the time that it is mounted, or removed. */
import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, renameSync, symlinkSync, watch, writeFileSync } from "node:fs";
import { mkdir, mkdtemp, readdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it, vi } from "vitest";
import { guard } from "../../../environments/local/bubblewrap/guard.ts";
import { layoutArgv } from "../../../environments/local/bubblewrap/layout.ts";
import { removePlaceholders } from "../../../environments/local/bubblewrap/placeholders.ts";
import { PLACEHOLDER_TEXTS, protect } from "../../../environments/local/bubblewrap/protected.ts";
import { Sandbox } from "../../../environments/local/bubblewrap/sandbox.ts";
import { readRecords } from "../../../environments/local/owners.ts";
import { reapLocal } from "../../../environments/local/reap.ts";
import { ownerLabel, thisProcessTable } from "../../../environments/owner.ts";
import { carriers } from "../../carriers.ts";
import { childrenOf, isGone, orchestrators, words } from "./orchestrators.ts";
import { sandboxes } from "./sandboxes.ts";

const { root, suite, note, make } = await sandboxes("bubblewrap-changes");
const { orchestrator } = orchestrators(root);
const run = promisify(execFile);
const LIMITS = join(import.meta.dirname, "../../../src/limits.ts");

/** Has `script` run in the place of bwrap, which it becomes, for as long as `use` takes. */
async function withBwrap<Result>(script: string, use: () => Promise<Result>): Promise<Result> {
  const folder = await mkdtemp(join(root, "bin-"));
  const bwrap = execFileSync("sh", ["-c", "command -v bwrap"]).toString().trim();
  await writeFile(join(folder, "bwrap"), `#!/bin/sh\n${script}\nexec ${bwrap} "$@"\n`, { mode: 0o755 });
  const path = process.env.PATH;
  process.env.PATH = `${folder}:${path}`;
  try {
    return await use();
  } finally {
    process.env.PATH = path;
  }
}

/** A workspace with a folder beside it, that are nobody's temporary ones: those are private in a sandbox. */
async function besideAnother() {
  const above = await mkdtemp(join(root, "above-"));
  const [workspace, other] = [join(above, "workspace"), join(above, "other")];
  for (const path of [workspace, other]) await mkdir(path);
  await writeFile(join(other, "secret"), "theirs");
  return { above, workspace, other };
}

suite(`what becomes a link while a bubblewrap sandbox is made${note}`, () => {
  it("is not followed where it is the workspace: nothing of it is mounted, or made in it", async () => {
    const { workspace, other } = await besideAnother();
    const { environment } = await make({ workspace });
    await withBwrap(`mv ${workspace} ${workspace}-away; ln -s other ${workspace}`, async () => {
      await expect(environment.exec("echo x > made; cat secret")).rejects.toMatchObject({
        code: expect.stringMatching(/^(?:WORKDIR_MISSING|ENVIRONMENT_UNAVAILABLE)$/),
      });
    });
    expect(await readdir(other)).toEqual(["secret"]);
  });

  /** A sandbox of which somebody changes the workspace once all has been looked at, and before bwrap looks at it. */
  async function changed(change: (places: { workspace: string; other: string }) => void) {
    const { above, workspace, other } = await besideAnother();
    await mkdir(join(workspace, ".hg"));
    await mkdir(join(workspace, ".husky"));
    for (const name of ["hgrc", "hgrc-not-shared", "sharedpath"]) await writeFile(join(other, name), "");
    const channel = join(above, "channel");
    const sandbox = await Sandbox.start({
      layout: async () => {
        mkdirSync(channel, { mode: 0o700 });
        const protection = protect(workspace, new Set());
        protection.make();
        const parts = { workspace, channel, hidden: [], foreign: false, openNetwork: false };
        // Where the folder beside it can be seen.
        const seen = ["--ro-bind", above, above];
        const argv = layoutArgv(parts);
        change({ workspace, other });
        return [...argv.slice(0, -3), ...seen, ...argv.slice(-3), ...protection.argv];
      },
      channel,
      workspace,
      env: () => ({ PATH: process.env.PATH ?? "" }),
      mark: "changed.sandbox",
      owner: null,
      network: "none",
      bash: true,
      login: null,
    });
    try {
      const script = `echo x > ${workspace}/made; echo x > ${other}/made; echo x > ${workspace}/.hg/made`;
      const opened = await sandbox.open(["sh", "-c", script], {}).then(
        () => "opened",
        ({ message }) => message,
      );
      return { opened, made: existsSync(join(other, "made")), failedInPassing: sandbox.failedInPassing };
    } finally {
      await sandbox.stop();
    }
  }

  const notMade = (name: string) => ({
    opened: expect.stringMatching(`Cannot start a bubblewrap sandbox: .*${name}.*replaced outside`),
    made: false,
    failedInPassing: true,
  });

  it("is none in which anything runs where it is the workspace", async () => {
    const outcome = await changed(({ workspace }) => {
      renameSync(workspace, `${workspace}-away`);
      symlinkSync("workspace-away", workspace);
    });
    expect(outcome).toEqual(notMade("workspace"));
  });

  it.each([
    ["a folder with protected parts, which would be writable elsewhere", ".hg", "../other"],
    ["a protected folder, which would show another", ".husky", "../other"],
    ["a protected folder, which would leave it open", ".husky", ".free"],
  ])("is none in which anything runs where it is %s", async (_, name, target) => {
    const outcome = await changed(({ workspace }) => {
      renameSync(join(workspace, name), join(workspace, ".free"));
      symlinkSync(target, join(workspace, name));
    });
    expect(outcome).toEqual(notMade(name));
  });

  it("is one like any other where nothing changes, whatever its names are", async () => {
    const outcome = await changed(({ workspace }) => {
      mkdirSync(join(workspace, "a b\\c\n\té"));
    });
    expect(outcome).toMatchObject({ opened: "opened", failedInPassing: false });
    const workspace = await mkdtemp(join(root, "a b\\040\n\té-"));
    const { run: inside } = await make({ workspace });
    expect((await inside("mkdir .vscode/x || pwd -P")).output).toContain("é");
  });

  it("is begun again where somebody replaces a protected file meanwhile", async () => {
    const workspace = await mkdtemp(join(root, "workspace-"));
    await writeFile(join(workspace, ".envrc"), "old");
    const { environment } = await make({ workspace });
    const once = join(await mkdtemp(join(root, "once-")), "done");
    const replace = `[ -e ${once} ] || { until [ -e ${workspace}/.mcp.json ]; do :; done; : >${once}; echo new >${workspace}/x; mv ${workspace}/x ${workspace}/.envrc; }`;
    const { output } = await withBwrap(replace, () =>
      environment.exec("cat .envrc; echo x >.envrc || echo closed"),
    );
    expect(output).toMatch(/^new\n.*closed\n$/s);
  });

  it("is on record before a bwrap begins that can be cut in its middle", async () => {
    const { environment, stateDir } = await make({ egress: { allow: ["a.test"] } });
    const seen = join(await mkdtemp(join(root, "seen-")), "records");
    await withBwrap(`[ -e ${seen} ] || cat ${stateDir}/local/*.json >${seen}`, () => environment.start());
    expect(JSON.parse(readFileSync(seen, "utf8"))).toMatchObject({
      id: environment.id,
      marks: [`${environment.id}.sandbox`],
    });
  });
});

suite(`who makes pipes for bubblewrap sandboxes${note}`, () => {
  it.each(["SIGKILL", "SIGSTOP"] as const)("is replaced after a %s", { timeout: 60_000 }, async (signal) => {
    const { child, ask, run: started } = await orchestrator("private");
    expect(await started("echo 1")).toBe("1\n");
    await ask(`(await import(${JSON.stringify(LIMITS)})).limits.openTimeoutMs = 4000`);
    const maker = childrenOf(child.pid).find((pid) => words(pid)[2]?.startsWith("while IFS= read")) ?? 0;
    process.kill(maker, signal);
    expect(await started("echo 2")).toBe("2\n");
    await expect.poll(() => isGone(maker)).toBe(true);
  });
});

suite(`a bubblewrap sandbox of a workspace that nobody can write to${note}`, () => {
  it("has it as it is, with nothing that holds a place", async () => {
    const { ask, places } = await orchestrator("private", {}, "--map-root-user");
    await writeFile(join(places.workspace, "file"), "theirs\n");
    await ask(`const { execFileSync } = await import("node:child_process");
const workspace = ${JSON.stringify(places.workspace)};
execFileSync("mount", ["--bind", workspace, workspace]);
execFileSync("mount", ["-o", "remount,bind,ro", workspace])`);
    const command = "cat file; echo x >made || mkdir .vscode || echo closed";
    const outcome = await ask(`const one = make(${JSON.stringify(places)}); kept.push(one);
return [(await one.exec(${JSON.stringify(command)})).output, await one.stop()]`);
    expect(outcome).toEqual([expect.stringMatching(/^theirs\n.*closed\n$/s), null]);
    expect(await readdir(places.workspace)).toEqual(["file"]);
  });
});

suite(`a bubblewrap sandbox that has ended${note}`, () => {
  it("ends no process that has its number since, whatever is replaced", async () => {
    const { environment, workspace, stateDir } = await make();
    await environment.start();
    const [mark] = (await readRecords(stateDir)).flatMap(({ marks }) => marks);
    // bwrap itself, and not what it has forked.
    const pid = Math.min(...(await carriers(`MOORAGE_WORKER=${mark}`)));
    process.kill(pid, "SIGKILL");
    await expect.poll(async () => (await environment.health()).healthy).toBe(false);
    const kill = vi.spyOn(process, "kill");
    const watcher = watch(workspace);
    const told = once(watcher, "change");
    try {
      renameSync(join(workspace, ".vscode"), join(workspace, "away"));
      mkdirSync(join(workspace, ".vscode"));
      // A watch of the same folder, which was made later, is told after the sandbox's own.
      await told;
      expect(kill.mock.calls.filter(([target]) => target === -pid)).toEqual([]);
    } finally {
      watcher.close();
      kill.mockRestore();
    }
  });
});

describe("what held a place and is something else when it is to go", () => {
  async function placed(name: string, put: (path: string) => Promise<unknown>) {
    const workspace = await mkdtemp(join(root, "placed-"));
    const path = join(workspace, name);
    await mkdir(join(path, ".."), { recursive: true });
    await put(path);
    return { workspace, path };
  }

  it.each([
    ["a link to a folder", ".vscode", (path: string) => symlink("/usr", path)],
    ["a link to a device without end", ".git/commondir", (path: string) => symlink("/dev/zero", path)],
    ["a pipe that nobody writes to", ".git/commondir", (path: string) => run("mkfifo", [path])],
    ["a file of somebody's", ".git/commondir", (path: string) => writeFile(path, "../other\n")],
    ["a folder that is filled", ".vscode", (path: string) => mkdir(join(path, "x"), { recursive: true })],
  ])("stays where it is %s, and keeps nobody from going on", async (_, name, put) => {
    const { workspace, path } = await placed(name, put);
    await mkdir(join(workspace, ".idea"));
    expect(removePlaceholders([path, join(workspace, ".idea")], PLACEHOLDER_TEXTS)).toEqual([]);
    expect((await readdir(workspace)).sort()).toEqual([name.split("/")[0]]);
    const stateDir = await mkdtemp(join(root, "state-"));
    const owner = ownerLabel({ ...thisProcessTable(), pid: 2 ** 22 + 1, startTime: () => "1" });
    await mkdir(join(stateDir, "local"));
    const record = { id: "dead", owner, workspace, createdAt: "2026-01-01T00:00:00Z", keep: false };
    await writeFile(
      join(stateDir, "local", "dead.json"),
      JSON.stringify({ ...record, placeholders: [path] }),
    );
    expect(await reapLocal({ stateDir })).toEqual([{ id: "dead", processes: [], survivors: [], left: [] }]);
    expect(await readRecords(stateDir)).toEqual([]);
  });

  it("is not removed where a link leads to another folder by now", async () => {
    const { workspace } = await placed(".git/x", async () => {});
    const other = await mkdtemp(join(root, "other-"));
    await mkdir(join(other, "hooks"));
    await writeFile(join(other, "config.worktree"), "");
    renameSync(join(workspace, ".git"), join(workspace, "away"));
    await symlink(other, join(workspace, ".git"));
    const paths = ["hooks", "config.worktree"].map((name) => join(workspace, ".git", name));
    expect(removePlaceholders(paths, PLACEHOLDER_TEXTS)).toEqual([]);
    expect((await readdir(other)).sort()).toEqual(["config.worktree", "hooks"]);
  });

  it("is told, stays on record, and keeps nobody from a start, where it cannot be removed", async () => {
    const stateDir = await mkdtemp(join(root, "state-"));
    const owner = ownerLabel({ ...thisProcessTable(), pid: 2 ** 22 + 1, startTime: () => "1" });
    await mkdir(join(stateDir, "local"));
    const record = { id: "dead", owner, workspace: "/proc", createdAt: "2026-01-01T00:00:00Z", keep: false };
    // Nobody makes or removes folders there.
    const placeholders = ["/proc/sys/kernel"];
    await writeFile(join(stateDir, "local", "dead.json"), JSON.stringify({ ...record, placeholders }));
    const [reaped] = await reapLocal({ stateDir });
    expect(reaped?.left).toEqual([expect.stringMatching(/^\/proc\/sys\/kernel \(.+\)$/)]);
    expect(await readRecords(stateDir)).toHaveLength(1);
    expect(existsSync("/proc/sys/kernel")).toBe(true);
  });

  it("is not made in a folder that became a link", async () => {
    const workspace = await mkdtemp(join(root, "linked-"));
    const other = await mkdtemp(join(root, "other-"));
    await mkdir(join(workspace, ".git"));
    const protection = protect(workspace, new Set());
    renameSync(join(workspace, ".git"), join(workspace, "away"));
    symlinkSync(other, join(workspace, ".git"));
    expect(() => protection.make()).toThrow(/\.git\/.*folder was replaced/);
    expect(await readdir(other)).toEqual([]);
  });
});

describe("the watch on what is protected", () => {
  it("tells of what can be looked at no more", async () => {
    const folder = await mkdtemp(join(root, "watched-"));
    // Of one name, as an event tells of no more.
    const path = join(folder, "above");
    await mkdir(path);
    writeFileSync(join(path, "above"), "");
    const told: string[] = [];
    const end = guard([join(path, "above"), path], (replaced) => told.push(replaced));
    renameSync(path, join(folder, "away"));
    symlinkSync("above", path);
    await expect.poll(() => told[0]).toBe(join(path, "above"));
    end();
  });
});
