/** Ways out of a sandbox that lie beside the obvious ones, tried in real sandboxes. */
import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { createBubblewrapEnvironment } from "../../../environments/local/bubblewrap/index.ts";
import { layoutArgv } from "../../../environments/local/bubblewrap/layout.ts";
import { sandboxes } from "./sandboxes.ts";

const run = promisify(execFile);
const { root, suite, note, ...sandbox } = await sandboxes("hostile");

async function make(options: Parameters<typeof sandbox.make>[0] = {}) {
  const { run: inside, ...made } = await sandbox.make(options);
  return { ...made, inside };
}

/** A repository whose configuration has these lines. */
async function repository(lines: string): Promise<string> {
  const workspace = await mkdtemp(join(root, "repository-"));
  await run("git", ["init", "-q", workspace]);
  await writeFile(join(workspace, ".git", "config"), `[core]\n\trepositoryformatversion = 0\n${lines}`);
  return workspace;
}

async function refused(
  inside: (command: string) => Promise<{ exitCode: number | null }>,
  lines: readonly string[],
) {
  for (const line of lines) expect([line, (await inside(line)).exitCode]).not.toEqual([line, 0]);
}

suite(`mounts that the machine makes later${note}`, () => {
  it.each(["none", "allow-list"] as const)("are not in a sandbox, with egress %s", async (kind) => {
    const shared = await mkdtemp(join(root, "shared-"));
    await mkdir(join(shared, "later"));
    const places = {
      workspace: await mkdtemp(join(root, "workspace-")),
      stateDir: join(root, "later-state"),
    };
    const module = join(import.meta.dirname, "../../../environments/local/bubblewrap/index.ts");
    const egress = kind === "none" ? "none" : { allow: ["a.test"] };
    const code = `import { execFileSync } from "node:child_process";
const { createBubblewrapEnvironment } = await import(${JSON.stringify(module)});
const environment = createBubblewrapEnvironment(${JSON.stringify({ ...places, egress })});
await environment.start();
execFileSync("mount", ["-t", "tmpfs", "later", ${JSON.stringify(join(shared, "later"))}]);
const { output } = await environment.exec(": 2>&1 >${shared}/later/made; grep -c ${shared}/later /proc/self/mountinfo");
console.log(output, JSON.stringify(execFileSync("ls", [${JSON.stringify(join(shared, "later"))}]).toString()));
await environment.stop();`;
    // In a copy of this machine's mounts, which shares one of them.
    const script = `mount -t tmpfs shared ${shared} && mount --make-shared ${shared} && mkdir ${shared}/later && exec "$@"`;
    const node = [process.execPath, "--input-type=module", "-e", code];
    const user = process.getuid?.() === 0 ? [] : ["--user", "--map-root-user"];
    const { stdout } = await run("unshare", ["--mount", ...user, "sh", "-c", script, "sh", ...node]);
    expect(stdout.trim().split("\n").at(-1)).toBe(' ""');
    expect(stdout).toMatch(/^0$/m);
  });
});

suite(`what is said out of a sandbox${note}`, () => {
  it("has an end, though commands take the supervisor's output for their own", async () => {
    const { environment, inside } = await make();
    await environment.files.writeFile(
      "flood.py",
      `import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
    if b"exec 3>&1" not in open("/proc/%d/cmdline" % pid, "rb").read(): continue
    output = libc.syscall(438, libc.syscall(434, pid, 0), 1, 0)
    if output < 0: continue
    os.set_blocking(output, True)
    left = 600_000_000
    while left > 0: left -= os.write(output, b"a" * 65536)
    print("said")
    break
`,
    );
    const before = process.memoryUsage().rss;
    expect(await inside("/usr/bin/python3 flood.py")).toEqual({ exitCode: 0, output: "said" });
    expect((process.memoryUsage().rss - before) / 1e6).toBeLessThan(300);
    expect((await inside("echo on")).output).toBe("on");
  });
});

suite(`parts of a workspace that git acts upon${note}`, () => {
  it("are protected in what takes configuration in by what is taken in, and by the name of the home", async () => {
    const workspace = await repository('[include]\n\tpath = "../one.config" ; first\n');
    await writeFile(join(workspace, "one.config"), "[include]\npath = sub/two.config\n");
    await mkdir(join(workspace, "sub"));
    await writeFile(
      join(workspace, "sub", "two.config"),
      `[core]\nhooksPath = "ho\\"oks"\n[include]\npath = ~/three.config\n[include] path = one.config\n`,
    );
    await mkdir(join(workspace, 'ho"oks'));
    const home = process.env.HOME;
    // Where a home holds the workspace, its name leads there.
    process.env.HOME = workspace;
    try {
      await writeFile(join(workspace, "three.config"), "[alias]\n\tx = y\n");
      const { readGitParts } = await import("../../../environments/local/bubblewrap/git-parts.ts");
      expect(readGitParts(workspace)).toMatchObject({
        includes: ["one.config", "sub/two.config", "three.config", "sub/one.config"],
        hooks: ['ho"oks'],
      });
    } finally {
      process.env.HOME = home;
    }
    const { inside } = await make({ workspace });
    await refused(inside, [
      "echo x >> one.config",
      "echo x >> sub/two.config",
      "mv sub away",
      "echo x > sub/one.config",
      `echo x > 'ho"oks/pre-commit'`,
    ]);
    expect(await inside("echo x > sub/free && cat sub/free")).toEqual({ exitCode: 0, output: "x" });
  });

  it("are protected where a linked worktree has them: in the repository that it belongs to", async () => {
    const workspace = await mkdtemp(join(root, "worktree-"));
    const main = join(workspace, "deep", "main");
    await mkdir(main, { recursive: true });
    const git = (...argv: string[]) =>
      run("git", ["-C", main, "-c", "user.name=a", "-c", "user.email=a@a.test", ...argv]);
    await git("init", "-q");
    await git("commit", "-q", "--allow-empty", "-m", "one");
    await git("worktree", "add", "-q", "../../tree");
    await rename(join(workspace, "tree", ".git"), join(workspace, ".git"));
    const { environment, inside } = await make({ workspace });
    await refused(inside, [
      "git config core.fsmonitor 'touch /tmp/x'",
      "echo x >> deep/main/.git/config",
      "echo x > deep/main/.git/hooks/post-checkout",
      "mv deep/main/.git/hooks deep/main/.git/old",
      "mv deep/main/.git deep/main/old",
      "mv deep away",
      "echo . > deep/main/.git/worktrees/tree/commondir",
      "echo x > deep/main/.git/config.worktree",
    ]);
    expect((await inside("git status --short && echo a > deep/main/a && echo ok")).output).toMatch(/ok$/);
    await environment.stop();
    expect((await readdir(join(workspace, "deep", "main", ".git"))).sort()).not.toContain("config.worktree");
  });

  it("are protected where a hook, or a setting of an editor, is a link into the workspace", async () => {
    const workspace = await repository("");
    await mkdir(join(workspace, "scripts"));
    await writeFile(join(workspace, "scripts", "check.sh"), "#!/bin/sh\n");
    await symlink("../../scripts/check.sh", join(workspace, ".git", "hooks", "pre-commit"));
    await symlink("../../scripts/missing.sh", join(workspace, ".git", "hooks", "post-merge"));
    await mkdir(join(workspace, ".vscode", "deeper"), { recursive: true });
    await writeFile(join(workspace, "settings.json"), "{}");
    await symlink("../../settings.json", join(workspace, ".vscode", "deeper", "settings.json"));
    const { environment, inside } = await make({ workspace });
    await refused(inside, [
      "echo x >> scripts/check.sh",
      "rm -f scripts/check.sh",
      "echo x > scripts/missing.sh",
      "mv scripts away",
      "echo x >> settings.json",
      "echo x > .git/hooks/pre-commit",
    ]);
    expect((await inside("echo x > scripts/other.sh && echo ok")).output).toBe("ok");
    await environment.stop();
    expect((await readdir(join(workspace, "scripts"))).sort()).toEqual(["check.sh", "other.sh"]);
  });

  it("are protected where configuration has git run them: monitors, filters, drivers, helpers", async () => {
    const names = ["monitor.sh", "clean.py", "diff", "merge.sh", "askpass"];
    const workspace = await repository(
      `[core]\nfsmonitor = ./tools/monitor.sh\naskPass = tools/askpass\n[filter "x"]\nclean = "python3 tools/clean.py %f"\n[diff]\nexternal = !tools/diff\n[merge "m"]\ndriver = sh -c 'tools/merge.sh %A'\n[alias]\nst = !tools/alias.sh\n`,
    );
    await mkdir(join(workspace, "tools"));
    for (const name of [...names, "alias.sh", "free"]) {
      await writeFile(join(workspace, "tools", name), "#!/bin/sh\n");
      await chmod(join(workspace, "tools", name), 0o755);
    }
    const { inside } = await make({ workspace });
    await refused(inside, [
      ...names.map((name) => `echo x >> tools/${name}`),
      "mv tools away",
      "rm tools/diff",
    ]);
    expect((await inside("echo x >> tools/free && rm tools/free && echo ok")).output).toBe("ok");
  });

  it("are Mercurial's too, where it is", async () => {
    const workspace = await mkdtemp(join(root, "mercurial-"));
    await mkdir(join(workspace, ".hg", "store"), { recursive: true });
    const { environment, inside } = await make({ workspace });
    await refused(inside, ["echo x > .hg/hgrc", "mv .hg away", "echo /tmp > .hg/sharedpath"]);
    expect((await inside("echo x > .hg/store/data && echo ok")).output).toBe("ok");
    await environment.stop();
    expect(await readdir(join(workspace, ".hg"))).toEqual(["store"]);
  });
});

suite(`protected parts that a program outside replaces${note}`, () => {
  it("are not left open: the sandbox is ended, and the next one protects what is there", async () => {
    const workspace = await repository("");
    const { environment, inside } = await make({ workspace });
    // Whoever waits inside for the mount to go.
    await environment.processes.start("until echo '[x]' >> .git/config; do :; done 2>/dev/null; sleep 300");
    await run("git", ["-C", workspace, "config", "user.name", "somebody"]);
    await expect.poll(async () => (await environment.health()).healthy, { timeout: 10_000 }).toBe(false);
    const back = await environment.exec("echo x >> .git/config || echo closed");
    expect(back.output).toMatch(/closed\n$/);
    expect(back.notes[0]).toMatch(
      /config", which is protected in it, was replaced outside; a new one was made/,
    );
    await rm(join(workspace, ".vscode"), { recursive: true });
    await mkdir(join(workspace, ".vscode"));
    await expect.poll(async () => (await environment.health()).healthy, { timeout: 10_000 }).toBe(false);
    await refused(inside, ["echo {} > .vscode/settings.json"]);
  });

  it("may change in place, and what is in them too", async () => {
    const workspace = await repository("");
    const { environment, inside } = await make({ workspace });
    expect((await inside("echo on")).output).toBe("on");
    await writeFile(join(workspace, ".git", "config"), "[core]\n");
    await writeFile(join(workspace, ".vscode", "settings.json"), "{}");
    await writeFile(join(workspace, "free"), "1");
    expect((await inside("cat .git/config; cat .vscode/settings.json")).output).toBe("[core]\n{}");
    expect((await environment.exec("true")).notes).toEqual([]);
    await rm(join(workspace, ".vscode", "settings.json"));
  });
});

suite(`homes${note}`, () => {
  it("are hidden by an account's name too, whatever HOME says", async () => {
    const workspace = await mkdtemp(join(root, "workspace-"));
    const layout = layoutArgv({
      workspace,
      channel: workspace,
      hidden: [],
      foreign: false,
      openNetwork: false,
    });
    const uid = String(process.getuid?.());
    const own = (await readFile("/etc/passwd", "utf8"))
      .split("\n")
      .map((line) => line.split(":"))
      .find((fields) => fields[2] === uid)?.[5];
    const home = process.env.HOME;
    process.env.HOME = workspace;
    try {
      const covered = layoutArgv({
        workspace,
        channel: workspace,
        hidden: [],
        foreign: false,
        openNetwork: false,
      });
      for (const argv of [layout, covered])
        expect(
          argv.some(
            (path, at) => argv[at - 1] === "--tmpfs" && (own === path || own?.startsWith(`${path}/`)),
          ),
        ).toBe(true);
    } finally {
      process.env.HOME = home;
    }
  });
});

suite(`a workspace among our own records${note}`, () => {
  it.each(["", "egress", "deep/er"])(
    "is refused: the state folder itself, or what is in it (%j)",
    async (name) => {
      const stateDir = await mkdtemp(join(root, "state-"));
      const workspace = join(stateDir, name);
      await mkdir(workspace, { recursive: true });
      const environment = createBubblewrapEnvironment({ workspace, stateDir, egress: "none" });
      await expect(environment.exec("echo in")).rejects.toMatchObject({ code: "PATH_DENIED" });
      await environment.stop();
    },
  );
});

suite(`a workspace that changes before its sandbox is made${note}`, () => {
  it("is refused when a link to another folder is in its place, at the start and after a loss", async () => {
    const outside = await mkdtemp(join(root, "outside-"));
    const { environment, workspace } = await make();
    await rename(workspace, `${workspace}-away`);
    await symlink(outside, workspace);
    await expect(environment.exec("echo x > made")).rejects.toMatchObject({ code: "WORKDIR_MISSING" });
    expect(await readdir(outside)).toEqual([]);
    await rm(workspace);
    await rename(`${workspace}-away`, workspace);
    expect((await environment.exec("echo in")).output).toBe("in\n");
  });
});
