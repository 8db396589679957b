/** What a sandbox keeps from its commands, asked of real sandboxes. */
import { execFile, spawn } from "node:child_process";
import { chmodSync, chownSync, existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import type { BaseEnvironment } from "../../../environments/base.ts";
import { HANDING_DOOR } from "../../../environments/egress/door.ts";
import {
  type BubblewrapOptions,
  createBubblewrapEnvironment,
} from "../../../environments/local/bubblewrap/index.ts";
import { layoutArgv } from "../../../environments/local/bubblewrap/layout.ts";
import { Sandbox } from "../../../environments/local/bubblewrap/sandbox.ts";
import { seccompFilter } from "../../../environments/local/bubblewrap/seccomp.ts";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { readRecords } from "../../../environments/local/owners.ts";
import { ownerLabel, thisProcessTable } from "../../../environments/owner.ts";
import { parseExports } from "../../../environments/shell/exports.ts";
import { mirror } from "../../../environments/sync/mirror.ts";
import { createHostTree } from "../../../environments/tree/host.ts";
import { pidsOf, uniqueSleep } from "../../surfaces/processes.ts";
import { portOf } from "../egress/network.ts";
import { sandboxes } from "./sandboxes.ts";

const { root, isThere, suite, note, make } = await sandboxes("bubblewrap");

suite(`the file system of a bubblewrap sandbox${note}`, () => {
  it("is read-only but for the workspace and private folders", async () => {
    const { workspace, run } = await make();
    const outside = join(root, "outside");
    await writeFile(outside, "kept");
    expect(await run("echo in > made && cat made")).toEqual({ exitCode: 0, output: "in" });
    expect(await readFile(join(workspace, "made"), "utf8")).toBe("in\n");
    for (const path of ["/etc/made", "/usr/made", "/made", "/var/made", "/sys/made", "/proc/made"])
      expect([path, (await run(`: > ${path}`)).exitCode]).not.toEqual([path, 0]);
    expect((await run(`echo x > ${outside}`)).output).not.toBe("kept");
    expect(await readFile(outside, "utf8")).toBe("kept");
    expect(
      (await run("echo a > /tmp/a && echo b > /var/tmp/b && echo c > ~/c && cat /tmp/a ~/c")).output,
    ).toBe("a\nc");
    expect([existsSync("/tmp/a"), existsSync("/var/tmp/b"), existsSync(join(homedir(), "c"))]).toEqual([
      false,
      false,
      false,
    ]);
  });

  it("lets nobody write the kernel's settings, root neither", async () => {
    const { run } = await make();
    const asked =
      "for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/vm/drop_caches /proc/sysrq-trigger; do [ ! -w $f ] || echo $f; done";
    expect(await run(asked)).toEqual({ exitCode: 0, output: "" });
    const { output } = await run(
      "find /proc/sys /sys -maxdepth 4 -type f 2>/dev/null | while read -r f; do [ ! -w $f ] || echo $f; done | head",
    );
    expect(output).toBe("");
  });

  it("security 5: protects parts that are there and parts that are not yet", async () => {
    const { workspace, environment, run } = await make();
    for (const line of [
      "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
      "echo x > .git/config",
      "git init -q . ",
      "mv .git away",
      "rmdir .git",
      "rm -rf .git",
      "ln -s /tmp .vscode",
      "echo {} > .vscode/settings.json",
      "mkdir -p .claude && echo {} > .claude/settings.json",
      "echo {} > .mcp.json",
      "mkdir new && mv new .cursor",
      "mv -T .vscode other",
    ])
      expect([line, (await run(line)).exitCode]).not.toEqual([line, 0]);
    await environment.stop();
    expect((await readdir(workspace)).filter((name) => name !== "new")).toEqual([]);
  });

  it("shows no placeholder to checkpoints and mirrors, unless somebody has put something in it", async () => {
    const { environment, workspace, stateDir } = await make();
    await writeFile(join(workspace, "mine"), "1");
    await environment.exec("echo 2 > theirs");
    await using beside = createLocalEnvironment({ workspace, stateDir });
    const seen = async ({ tree }: BaseEnvironment) =>
      (await tree.scan(workspace)).entries.map(({ path }) => path).sort();
    expect(await seen(environment)).toEqual(["mine", "theirs"]);
    expect(await seen(beside)).toEqual(["mine", "theirs"]);
    await writeFile(join(workspace, ".vscode", "settings.json"), "{}");
    expect(await seen(environment)).toEqual([".vscode", ".vscode/settings.json", "mine", "theirs"]);
    const host = await mkdtemp(join(root, "mirrored-"));
    await mirror(host, environment, { direction: "both", stateDir });
    expect((await readdir(host)).sort()).toEqual([".vscode", "mine", "theirs"]);
  });

  it("lets git work in a repository whose hooks and configuration it cannot change", async () => {
    const workspace = await mkdtemp(join(root, "repository-"));
    await promisify(execFile)("git", ["init", "-q", workspace]);
    // Its second file of configuration is not there yet.
    const extension = ["config", "extensions.worktreeConfig", "true"];
    await promisify(execFile)("git", ["-C", workspace, ...extension]);
    await mkdir(join(workspace, ".vscode"));
    await writeFile(join(workspace, ".vscode", "settings.json"), "{}");
    const before = await readFile(join(workspace, ".git", "config"), "utf8");
    const { environment, run } = await make({ workspace });
    const commit =
      "echo a > a && git add a && git -c user.name=a -c user.email=a@a.test commit -qm one && git checkout -qb two && git log --oneline | wc -l";
    expect(await run(commit)).toEqual({ exitCode: 0, output: "1" });
    for (const line of [
      "git config core.fsmonitor 'touch /tmp/x'",
      "git config --worktree core.fsmonitor 'touch /tmp/x'",
      "echo '[core] fsmonitor = touch /tmp/x' > .git/config.worktree",
      "echo x > .git/hooks/post-commit",
      "mv .git/hooks .git/old",
      "mv .git old",
      "echo /tmp > .git/commondir",
      "rm .git/commondir",
      "echo x >> .vscode/settings.json",
      "rm -rf .vscode",
    ])
      expect([line, (await run(line)).exitCode]).not.toEqual([line, 0]);
    await environment.stop();
    expect(await readFile(join(workspace, ".git", "config"), "utf8")).toBe(before);
    expect((await readdir(workspace)).sort()).toEqual([".git", ".vscode", "a"]);
    for (const name of ["commondir", "config.worktree"])
      expect([name, existsSync(join(workspace, ".git", name))]).toEqual([name, false]);
  });

  it("protects what git's own files name elsewhere: its folder, hooks, configuration that is taken in", async () => {
    const workspace = await mkdtemp(join(root, "repository-"));
    const git = (...argv: string[]) => promisify(execFile)("git", ["-C", workspace, ...argv]);
    await mkdir(join(workspace, "deep"));
    await git("init", "-q", "--separate-git-dir", join(workspace, "deep", "repository"), ".");
    await mkdir(join(workspace, "tools", "hooks"), { recursive: true });
    await writeFile(join(workspace, "shared.config"), "[core]\n");
    for (const [key, value] of [
      ["core.hooksPath", "tools/hooks"],
      ["include.path", "../../shared.config"],
      ["includeIf.gitdir:/.path", "../../missing.config"],
    ] as const)
      await git("config", "--add", key, value);
    await git(
      "config",
      "--file",
      join(workspace, "deep/repository/config"),
      "--add",
      "core.hooksPath",
      "no/hooks",
    );
    const { environment, run } = await make({ workspace });
    expect(await run("echo a > a && git add a && echo b > tools/b && echo c > deep/c && echo ok")).toEqual({
      exitCode: 0,
      output: "ok",
    });
    for (const line of [
      "git config core.fsmonitor 'touch /tmp/x'",
      "echo x > deep/repository/hooks/pre-commit",
      "echo x > tools/hooks/pre-commit",
      "mv tools away",
      "mv deep away",
      "mv deep/repository deep/old",
      "echo 'gitdir: /tmp' > .git",
      "echo x >> shared.config",
      "rm shared.config",
      "echo x > missing.config",
      "mkdir -p no/hooks",
    ])
      expect([line, (await run(line)).exitCode]).not.toEqual([line, 0]);
    await environment.stop();
    expect((await readdir(workspace)).sort()).toEqual([".git", "a", "deep", "shared.config", "tools"]);
  });

  it("says of a write to a protected part that it is one", async () => {
    const { environment } = await make();
    const files = { ".mcp.json": "x", ".vscode/settings.json": "{}", ".git/hooks/pre-commit": "" };
    for (const [path, text] of Object.entries(files)) {
      await expect(environment.files.writeFile(path, text)).rejects.toMatchObject({
        code: "PATH_DENIED",
        message: expect.stringContaining(`Cannot write "${path}": it is a protected part of the workspace`),
      });
    }
    await environment.files.writeFile("own", "1");
    await expect(environment.files.rename("own", ".git/config")).rejects.toMatchObject({
      code: "PATH_DENIED",
    });
    await expect(environment.files.remove(".idea", { recursive: true })).rejects.toMatchObject({
      code: "PATH_DENIED",
    });
    await expect(environment.files.mkdir("own")).rejects.toMatchObject({ code: "FILE_EXISTS" });
    await expect(environment.files.readFile(".idea")).rejects.toMatchObject({ code: "FILE_IS_DIRECTORY" });
  });

  it("waits for no pipe in the place of git's files", async () => {
    const workspace = await mkdtemp(join(root, "repository-"));
    await promisify(execFile)("mkfifo", [join(workspace, ".git")]);
    expect((await (await make({ workspace })).run("echo ok; rm .git")).output).toMatch(/^ok\n/);
  });

  it("keeps a second sandbox's protection when the first of one workspace stops", async () => {
    const stateDir = await mkdtemp(join(root, "state-"));
    const first = await make({ stateDir });
    const second = await make({ stateDir, workspace: first.workspace });
    await first.environment.start();
    await second.environment.start();
    await first.environment.stop();
    expect((await second.run("mkdir -p .git/hooks")).exitCode).not.toBe(0);
    await second.environment.stop();
    expect(await readdir(first.workspace)).toEqual([]);
  });

  it("refuses a protected part that is a link, which could be replaced", async () => {
    const { environment, workspace } = await make();
    await symlink("/tmp", join(workspace, ".vscode"));
    await expect(environment.start()).rejects.toMatchObject({ code: "ENVIRONMENT_UNAVAILABLE" });
    expect(await readdir(workspace)).toEqual([".vscode"]);
  });

  it.skipIf(process.getuid?.() !== 0)(
    "runs as the workspace's owner when root starts it in another user's folder",
    async () => {
      const workspace = await mkdtemp(join(root, "theirs-"));
      chmodSync(root, 0o755);
      chownSync(workspace, 65534, 65534);
      for (const egress of ["none", { allow: ["allowed.test"] }] as const) {
        const { environment, run } = await make({ workspace, egress });
        expect(
          await run("id -u; echo x > made && stat -c %u made; cat /etc/shadow 2>/dev/null; echo > /etc/x"),
        ).toEqual({
          exitCode: 1,
          output: expect.stringMatching(/^65534\n65534\n.*Read-only file system$/),
        });
        await environment.files.writeFile("written", "y");
        expect((await stat(join(workspace, "written"))).uid).toBe(65534);
        await environment.stop();
      }
      expect((await readdir(workspace)).sort()).toEqual(["made", "written"]);
    },
  );

  it.each(["/", homedir(), "/etc", "/proc/self", "/tmp", "/dev"])(
    "refuses %s as its workspace",
    (workspace) => {
      expect(() => createBubblewrapEnvironment({ workspace, stateDir: root })).toThrow(
        /workspace of a sandbox/,
      );
    },
  );

  it("security 2, 3: holds the file tools too, whatever a link in the workspace leads to", async () => {
    const outside = await mkdtemp(join(root, "outside-"));
    await writeFile(join(outside, "file"), "kept");
    const { environment, run } = await make();
    await run(
      `ln -s ${outside} folder; ln -s ${outside}/file file; ln -s ${outside}/new dangling; ln -s file chain; ln -s /proc/self/root/${outside} proc`,
    );
    const { files } = environment;
    for (const path of [
      "folder/file",
      "folder/new",
      "file",
      "dangling",
      "chain",
      "proc/file",
      "folder/../file",
    ]) {
      const written = await files.writeFile(path, "changed").then(
        () => "written",
        () => "refused",
      );
      // A folder of the host that is covered may be made inside, where it is the sandbox's own and nobody else's.
      expect([
        path,
        written,
        await readFile(join(outside, "file"), "utf8"),
        existsSync(join(outside, "new")),
      ]).toEqual([path, expect.any(String), "kept", false]);
    }
    await files.remove("folder/file").catch(() => {});
    await files.rename("folder/file", "taken").catch(() => {});
    expect(await readdir(outside)).toEqual(["file"]);
  });

  it("security 2: lets commands put nothing in the place of what this process opens by name", async () => {
    const outside = await mkdtemp(join(root, "outside-"));
    const { environment, run } = await make();
    const { output } = await run(`cd /run/moorage && ls; for set in */; do
ln -s ${outside}/$(basename $set) $set/run; rm -rf $set; ln -s ${outside} $(basename $set); done; : > made; mkdir made; ls`);
    expect(output).toMatch(/\d\n/);
    // More shells than are idle, each with a set of its own.
    await Promise.all(Array.from({ length: 8 }, () => environment.exec("sleep 0.2")));
    expect(await readdir(outside)).toEqual([]);
    expect((await run("ls /run/moorage")).output).not.toContain("made");
  });

  it("hides the state folder in the workspace too, and does not let it be replaced", async () => {
    const workspace = await mkdtemp(join(root, "workspace-"));
    const stateDir = join(workspace, "deep", "state");
    await mkdir(join(stateDir, "local"), { recursive: true });
    await writeFile(join(stateDir, "secret"), "kept");
    const { run } = await make({ workspace, stateDir });
    const forged = `mv deep away; rm -rf deep; mv deep/state other; mkdir -p deep/state/local; echo '{}' > deep/state/local/forged.json; cat deep/state/secret`;
    expect((await run(forged)).output).not.toMatch(/kept/);
    expect(await readFile(join(stateDir, "secret"), "utf8")).toBe("kept");
    expect(await readdir(join(stateDir, "local"))).not.toContain("forged.json");
  });

  it("has nothing of it run outside, though a folder of the workspace is in the search path", async () => {
    const outside = await mkdtemp(join(root, "outside-"));
    const path = process.env.PATH ?? "";
    const { environment, workspace, stateDir, run } = await make({ egress: { allow: ["a.test"] } });
    process.env.PATH = `${join(workspace, "bin")}:${path}`;
    try {
      await environment.start();
      const trap = `#!/bin/sh\necho 2>/dev/null >${outside}/$(basename $0); PATH=${path}; exec $(basename $0) "$@"\n`;
      await environment.files.writeFile("bin/trap", trap);
      await run(
        "cd bin && chmod +x trap && for n in bwrap mkfifo sh bash setsid true find env; do cp trap $n; done",
      );
      expect((await run("./bin/true && command -v mkfifo")).output).toMatch(/\/bin\/mkfifo$/);
      // More shells than there are pipes for, a sandbox that is made anew, and whatever else is done with that folder.
      await Promise.all(Array.from({ length: 8 }, () => environment.exec("sleep 0.2")));
      await expect(run("kill -9 -1")).rejects.toMatchObject({ code: "EXECUTION_UNKNOWN" });
      expect((await run("echo again")).output).toBe("again");
      expect((await run("ls bin/trap")).output).toBe("bin/trap");
      expect(await createBubblewrapEnvironment({ workspace, stateDir }).health()).toMatchObject({
        healthy: true,
      });
      await createHostTree().scan(workspace);
      expect(await readdir(outside)).toEqual([]);
    } finally {
      process.env.PATH = path;
    }
  });

  it("security 1: has one writable set, whatever working directory is asked for", async () => {
    const { environment } = await make();
    for (const cwd of ["/", "/etc", "/usr"]) {
      const { exitCode } = await environment.exec(": > moorage-made", { cwd });
      expect([cwd, exitCode]).not.toEqual([cwd, 0]);
    }
  });
});

suite(`the processes of a bubblewrap sandbox${note}`, () => {
  it("see each other and nobody else, without capabilities, in one namespace for all shells", async () => {
    const { environment, run } = await make();
    const one = await environment.openSession();
    const two = await environment.openSession();
    const { output: pid } = await one.exec("sleep 300 & echo $!");
    expect((await two.exec(`kill -0 ${pid.trim()} && echo there`)).output).toBe("there\n");
    expect((await run("cat /proc/1/comm")).output).toBe("bwrap");
    expect((await run("ls /proc | grep -c '^[0-9]'")).output).toMatch(/^\d{1,2}$/);
    const { output } = await run("grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status");
    expect(output.replaceAll("\t", " ").split("\n")).toEqual([
      "CapEff: 0000000000000000",
      "CapBnd: 0000000000000000",
      "NoNewPrivs: 1",
      "Seccomp: 2",
    ]);
  });

  it("security 13: cannot make unix, vsock or packet sockets, namespaces, or terminal input", async () => {
    const { run } = await make();
    const script = `
import socket, fcntl, os, ctypes
def attempt(name, work):
    try:
        work(); print(name, "works")
    except OSError as error:
        print(name, "refused")
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW))
attempt("pair", lambda: socket.socketpair())
attempt("datagram pair", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
attempt("raw pair", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW | socket.SOCK_NONBLOCK))
attempt("inet", lambda: socket.socket(socket.AF_INET))
def terminal():
    main, side = os.openpty(); fcntl.ioctl(side, 0x5412, b"x")
attempt("terminal", terminal)
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    if libc.syscall(*args) < 0: raise OSError(ctypes.get_errno(), "refused")
if os.uname().machine == "x86_64":
    attempt("unshare", lambda: call(272, 0x10000000))
    attempt("user namespace", lambda: call(56, 0x10000000 | 17, 0, 0, 0, 0))
    attempt("io_uring", lambda: call(425, 1, 0))
    attempt("bpf", lambda: call(321, 0, 0, 0))
`;
    const { output } = await run(`/usr/bin/python3 -c '${script}'`);
    expect(output.split("\n")).toEqual([
      "unix refused",
      "vsock refused",
      "packet refused",
      "pair works",
      "datagram pair refused",
      "raw pair refused",
      "inet works",
      "terminal refused",
      "unshare refused",
      "user namespace refused",
      "io_uring refused",
      "bpf refused",
    ]);
  });

  it("get no descriptor that this process was started with: a folder's would lead out", async () => {
    const outside = await mkdtemp(join(root, "outside-"));
    await writeFile(join(outside, "secret"), "leaked");
    const module = join(import.meta.dirname, "../../../environments/local/bubblewrap/index.ts");
    const places = { workspace: await mkdtemp(join(root, "workspace-")), stateDir: join(root, "leak-state") };
    const code = `const { createBubblewrapEnvironment } = await import(${JSON.stringify(module)});
for (const egress of ["none", { allow: [] }]) {
const environment = createBubblewrapEnvironment({ ...${JSON.stringify(places)}, egress });
const { output } = await environment.exec("cat /proc/*/fd/*/secret; ls /proc/self/fd | grep -c 40", { timeoutMs: 20000 });
console.log(output); await environment.stop(); }`;
    const shell = `exec 40<${outside}; exec "$@"`;
    const node = [process.execPath, "--input-type=module", "-e", code];
    const { stdout } = await promisify(execFile)("bash", ["-c", shell, "bash", ...node]);
    expect(stdout).not.toContain("leaked");
    expect(stdout.match(/^0$/gm)).toEqual(["0", "0"]);
  });

  it.each([true, false])("have their own group and signals where bash is there: %s", async (bash) => {
    const workspace = await mkdtemp(join(root, "workspace-"));
    const channel = await mkdtemp(join(root, "channel-"));
    const sandbox = await Sandbox.start({
      layout: async () => layoutArgv({ workspace, channel, hidden: [], foreign: false, openNetwork: false }),
      channel,
      workspace,
      env: () => ({ PATH: process.env.PATH ?? "", KEPT: "kept", verb: "mine" }),
      mark: "test.sandbox",
      owner: null,
      network: "none",
      bash,
      login: bash ? "auto" : "sh",
    });
    try {
      const script = `read -r me _ _ _ group session _ </proc/self/stat; [ "$me" = "$group" ] && [ "$me" = "$session" ] && echo leads
grep SigIgn /proc/self/status; echo "$verb $GIVEN $PWD"; kill -9 0`;
      const stream = await sandbox.open(["sh", "-c", script], { GIVEN: "it's" });
      let output = "";
      stream.stdout.on("data", (chunk: Buffer) => {
        output += chunk.toString();
      });
      expect(await stream.ended).toEqual({ exitCode: 137, signal: null, lost: null });
      await expect.poll(() => output).toBe(`leads\nSigIgn:\t0000000000000000\nmine it's ${workspace}\n`);
      const login = parseExports(await sandbox.readLogin());
      expect([login.get("KEPT"), login.has("PATH"), login.has("GIVEN")]).toEqual(["kept", true, false]);
      await stream.close();
    } finally {
      await sandbox.stop();
    }
  });

  it("end with their orchestrator, and the next one clears what is left", { timeout: 60_000 }, async () => {
    const workspace = await mkdtemp(join(root, "workspace-"));
    const stateDir = await mkdtemp(join(root, "state-"));
    const module = join(import.meta.dirname, "../../../environments/local/bubblewrap/index.ts");
    const code = `const { createBubblewrapEnvironment } = await import(${JSON.stringify(module)});
const environment = createBubblewrapEnvironment(${JSON.stringify({ workspace, stateDir, egress: { allow: ["a.test"] }, env: { MARK: workspace } })});
await environment.processes.start("sleep 4321"); console.log("started"); setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", code], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await new Promise((resolve) => child.stdout.once("data", resolve));
    expect(await marked(workspace)).not.toEqual([]);
    child.kill("SIGKILL");
    // What it leaves is nobody's only once it is gone itself.
    await new Promise((resolve) => child.once("exit", resolve));
    await expect.poll(() => marked(workspace), { timeout: 20_000 }).toEqual([]);
    const { environment } = await make({ workspace, stateDir });
    await environment.start();
    await environment.stop();
    expect(await readdir(workspace)).toEqual([]);
    expect(await readdir(join(stateDir, "local"))).toEqual([]);
  });

  it("leave nothing that the next start does not end, at whatever moment the orchestrator is killed", {
    timeout: 120_000,
    tags: ["slow"],
  }, async () => {
    const workspace = await mkdtemp(join(root, "workspace-"));
    const stateDir = await mkdtemp(join(root, "state-"));
    const module = join(import.meta.dirname, "../../../environments/local/bubblewrap/index.ts");
    const code = `const { createBubblewrapEnvironment } = await import(${JSON.stringify(module)});
const environment = createBubblewrapEnvironment(${JSON.stringify({ workspace, stateDir, egress: "none" })});
console.log("begins"); await environment.exec("true"); console.log("ran"); setInterval(() => {}, 1000);`;
    for (let moment = 0; moment < 8; moment += 1) {
      const child = spawn(process.execPath, ["--input-type=module", "-e", code], {
        stdio: ["ignore", "pipe", "inherit"],
        env: { ...process.env, MARK: workspace },
      });
      await new Promise((resolve) => child.stdout.once("data", resolve));
      await new Promise((resolve) => setTimeout(resolve, moment * 6 + Math.random() * 6));
      child.kill("SIGKILL");
      await new Promise((resolve) => child.once("close", resolve));
    }
    const { environment } = await make({ workspace, stateDir });
    await environment.start();
    await environment.stop();
    expect(await marked(workspace)).toEqual([]);
  });

  it.each([
    ["its sandbox's name", "left-behind.sandbox", []],
    ["a mark of its record", "ahead-1.sandbox", ["ahead-1.sandbox"]],
  ])("are ended where they wait for a bwrap that is gone, by %s", async (_, mark, marks) => {
    const workspace = await mkdtemp(join(root, "workspace-"));
    const stateDir = await mkdtemp(join(root, "state-"));
    const id = "left-behind";
    const owner = ownerLabel({ ...thisProcessTable(), pid: 2 ** 22 + 1, startTime: () => "1" });
    await mkdir(join(stateDir, "local"), { recursive: true });
    const record = { id, owner, workspace, createdAt: new Date().toISOString(), keep: false, marks };
    await writeFile(join(stateDir, "local", `${id}.json`), JSON.stringify(record));
    // As bwrap's first process is when nobody lets it go any more: it heeds no signal but one.
    const child = spawn(
      "bwrap",
      [
        "--unshare-user",
        "--unshare-pid",
        "--info-fd",
        "4",
        "--userns-block-fd",
        "3",
        "--ro-bind",
        "/",
        "/",
        "true",
      ],
      {
        stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
        env: { PATH: process.env.PATH, MARK: workspace, MOORAGE_WORKER: mark },
      },
    );
    await expect.poll(async () => (await marked(workspace)).length, { timeout: 10_000 }).toBe(2);
    child.kill("SIGKILL");
    await new Promise((resolve) => child.once("exit", resolve));
    expect(await marked(workspace)).toHaveLength(1);
    const { environment, run } = await make({ workspace, stateDir });
    expect((await run("echo $MOORAGE_WORKER")).output).toMatch(
      new RegExp(`^${environment.id}\\.[0-9a-f.]+u`),
    );
    const [own] = (await readRecords(stateDir)).find((each) => each.id === environment.id)?.marks ?? [];
    expect(await marked(`MOORAGE_WORKER=${own}`)).not.toEqual([]);
    await environment.stop();
    expect(await marked(workspace)).toEqual([]);
  });

  it("security 25: end with the sandbox, also a daemon that left its session and dropped every variable", async () => {
    const { environment, run } = await make();
    const sleep = uniqueSleep();
    await run(`env -i setsid -f sh -c 'exec ${sleep}' >/dev/null 2>&1`);
    await expect.poll(() => pidsOf(sleep).length, { timeout: 10_000 }).toBe(1);
    await environment.stop();
    expect(pidsOf(sleep)).toEqual([]);
  });

  it("show a lost sandbox as lost, and get a new one", async () => {
    const { environment, run, workspace } = await make({ env: { MARK: root } });
    await environment.start();
    await run("echo 1 > file; echo 1 > /tmp/file");
    const [pid = 0] = await ancestors(await marked(root));
    process.kill(pid, "SIGKILL");
    await expect.poll(async () => (await environment.health()).healthy, { timeout: 10_000 }).toBe(false);
    const result = await environment.exec("cat file; cat /tmp/file");
    expect([result.output, result.notes]).toEqual([
      expect.stringMatching(/^1\ncat: /),
      [expect.stringMatching(/^The sandbox is gone: .*a new one was made/)],
    ]);
    expect(await readdir(workspace)).toContain("file");
  });

  it("have no secret of the host and no way to its services in their variables", async () => {
    process.env.CANARY_TOKEN = "canary-value-1";
    process.env.SSH_AUTH_SOCK = "/run/canary-agent";
    try {
      const { run } = await make({ env: { GIVEN: "given-value" } });
      const { output } = await run("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'");
      expect(output).toContain("GIVEN=given-value");
      expect(output).not.toMatch(/canary/);
      const { stdout } = await promisify(execFile)("ps", ["axww", "-o", "args"]);
      expect(stdout).not.toMatch(/given-value|canary-value/);
    } finally {
      delete process.env.CANARY_TOKEN;
      delete process.env.SSH_AUTH_SOCK;
    }
  });
});

suite(`the network of a bubblewrap sandbox${note}`, () => {
  it("EG-02, EG-17, EG-18: is a loopback alone, with a policy or with none", async () => {
    let reached = 0;
    const listener = createServer((socket) => {
      reached += 1;
      socket.destroy();
    });
    await new Promise<void>((resolve) => listener.listen(0, "0.0.0.0", resolve));
    try {
      for (const egress of ["none", { allow: ["allowed.test"] }] as const) {
        const { run } = await make({ egress });
        const port = portOf(listener);
        const script = `
import socket
for family, kind, address in [
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", ${port})), (socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53)), (socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 80)),
    (socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80))]:
    try:
        s = socket.socket(family, kind); s.settimeout(5); s.connect(address); s.send(b"x"); print("reached", address)
    except OSError as error: print("closed")
try: socket.getaddrinfo("random-name.test", 80); print("resolved")
except OSError: print("closed")
`;
        expect((await run(`/usr/bin/python3 -c '${script}'`)).output.split("\n")).toEqual(
          Array(6).fill("closed"),
        );
        expect(
          (await run("cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '; cat /proc/net/route | wc -l"))
            .output,
        ).toBe("lo\n1");
      }
      expect(reached).toBe(0);
    } finally {
      listener.close();
    }
  });

  it("EG-03, EG-19: reaches what is allowed through the door, and its own localhost without it", async () => {
    const { createServer: createHttpServer } = await import("node:http");
    const server = createHttpServer((request, response) =>
      response.end(`hello ${request.headers["x-key"] ?? ""}`),
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const port = portOf(server);
    try {
      const { environment, run } = await make({
        egress: { allow: [`127.0.0.1:${port}`] },
        credentials: [{ host: `127.0.0.1:${port}`, header: "X-Key", value: "real-value" }],
      });
      // Our own addresses are not sent to the proxy unless a program is told to.
      expect(await run(`curl -sS --noproxy '' http://127.0.0.1:${port}/`)).toEqual({
        exitCode: 0,
        output: "hello real-value",
      });
      expect((await run("env; cat /proc/*/environ")).output).not.toContain("real-value");
      const denied = await environment.exec(`curl -sS http://denied.test/; curl -sS https://denied.test/`);
      expect(denied.output).toMatch(/EGRESS_DENIED[\s\S]*response 403/);
      expect(denied.notes).toEqual([
        expect.stringMatching(/^Blocked by policy: "denied.test:80".*rule "denied.test"$/),
        expect.stringMatching(/^Blocked by policy: "denied.test:443"/),
      ]);
      expect((await environment.exec("true")).notes).toEqual([]);
      expect(environment.info().egress).toEqual({
        policy: "allow-list",
        allowed: 1,
        denied: 2,
        refusals: denied.notes,
      });
      // A copy in the workspace, since ours may lie where the sandbox has a folder of its own.
      const node = join(environment.workspace, "node-of-ours");
      await copyFile(process.execPath, node);
      const script = `fetch("http://denied.test/").then((r) => console.log(r.status))`;
      expect((await run(`${node} -e '${script}'`)).output).toContain("Proxy response (403)");
      const own =
        "cd /tmp && echo own > own && (/usr/bin/python3 -m http.server 8000 >/dev/null 2>&1 & echo $! > pid) && for i in $(seq 100); do curl -sf http://localhost:8000/own && break; sleep 0.1; done; curl -s http://127.0.0.1:8000/own; kill $(cat pid)";
      expect((await run(own)).output).toBe("own\nown");
    } finally {
      server.close();
    }
  });

  it("EG-20: has nothing at its door that could be killed, and comes back with what was decided before", async () => {
    const mark = join(root, "door-mark");
    const { environment, run } = await make({ egress: { allow: ["allowed.test"] }, env: { MARK: mark } });
    expect((await run("curl -sS http://denied.test/")).output).toContain("EGRESS_DENIED");
    await environment.setEgress({ allow: ["other.test"] });
    await expect.poll(() => doorsOf(process.pid), { timeout: 10_000 }).toEqual([]);
    await environment.processes.start("sleep 300");
    const [outer = 0] = await ancestors(await marked(mark));
    process.kill(outer, "SIGKILL");
    await expect.poll(async () => (await environment.health()).healthy, { timeout: 10_000 }).toBe(false);
    const back = await environment.exec("curl -sS http://allowed.test/");
    expect(back.output).toContain("EGRESS_DENIED");
    expect(back.notes[0]).toMatch(/^The sandbox is gone: .*a new one was made/);
    expect(environment.info().egress).toMatchObject({ denied: 2 });
  });

  it("shows the door's processes to nobody inside", async () => {
    const { run } = await make({ egress: { allow: ["allowed.test"] } });
    expect((await run("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[n]et.createServer'")).output).toBe(
      "0",
    );
    expect((await run("ls /run/moorage")).output).not.toMatch(/door/);
  });
});

describe("a bubblewrap sandbox that cannot be had", () => {
  it("security 28: is an error with the reason, and nothing runs", async () => {
    const folder = await mkdtemp(join(root, "bin-"));
    const path = process.env.PATH;
    const environment = createBubblewrapEnvironment({
      workspace: await mkdtemp(join(root, "workspace-")),
      stateDir: await mkdtemp(join(root, "state-")),
    });
    try {
      process.env.PATH = folder;
      expect(await environment.health()).toMatchObject({ healthy: false, reason: "bwrap is not installed" });
      await writeFile(
        join(folder, "bwrap"),
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n",
      );
      chmodSync(join(folder, "bwrap"), 0o755);
      process.env.PATH = `${folder}:${path}`;
      await expect(environment.exec("echo ran")).rejects.toMatchObject({
        code: "ENVIRONMENT_UNAVAILABLE",
        message: expect.stringMatching(/No permissions to create new namespace/),
      });
    } finally {
      process.env.PATH = path;
      await environment.stop();
    }
  });

  it.skipIf(!isThere).each([1, 2, 3])(
    "is tried again while a mount of the machine goes (%i times)",
    async (times) => {
      const folder = await mkdtemp(join(root, "bin-"));
      const path = process.env.PATH;
      const { stdout: real } = await promisify(execFile)("which", ["bwrap"]);
      const counter = join(folder, "count");
      const message = `bwrap: Can't bind mount /oldroot/ on /newroot/: Unable to apply mount flags: remount "/newroot/merged": No such file or directory`;
      await writeFile(
        join(folder, "bwrap"),
        `#!/bin/sh\necho >>'${counter}'\n[ "$(wc -l <'${counter}')" -gt ${times} ] && exec ${real.trim()} "$@"\ncat >&2 <<'E'\n${message}\nE\nexit 1\n`,
      );
      chmodSync(join(folder, "bwrap"), 0o755);
      const { environment, workspace } = await make();
      try {
        process.env.PATH = `${folder}:${path}`;
        if (times < 3) {
          const [ran] = await Promise.all([
            environment.exec("echo ran"),
            environment.files.writeFile("file", "x"),
          ]);
          expect(ran).toMatchObject({ output: "ran\n", exitCode: 0 });
        } else {
          await expect(environment.exec("echo ran")).rejects.toMatchObject({
            code: "ENVIRONMENT_UNAVAILABLE",
            message: expect.stringContaining("Unable to apply mount flags"),
          });
          expect(await readdir(workspace)).toEqual([]);
        }
      } finally {
        process.env.PATH = path;
      }
      expect((await environment.exec("echo ran")).output).toBe("ran\n");
    },
  );

  it.skipIf(!isThere)("is one whose door cannot be opened", async () => {
    const mark = crypto.randomUUID();
    const { environment, workspace } = await make({ egress: { allow: ["a.test"] }, env: { MARK: mark } });
    const { execPath } = process;
    try {
      process.execPath = "/bin/false";
      // Its end meets bwrap at another point each time.
      for (let attempt = 0; attempt < 5; attempt += 1) {
        await expect(environment.exec("echo ran > ran")).rejects.toMatchObject({
          code: "ENVIRONMENT_UNAVAILABLE",
        });
        expect(await readdir(workspace)).toEqual([]);
      }
      await expect.poll(() => marked(mark), { timeout: 10_000 }).toEqual([]);
    } finally {
      process.execPath = execPath;
    }
    expect((await environment.exec("echo ran")).output).toBe("ran\n");
  });

  it("refuses what a sandbox cannot do at construction", () => {
    const workspace = join(root, "workspace");
    const attempt = (options: Partial<BubblewrapOptions>) => () =>
      createBubblewrapEnvironment({ workspace, stateDir: root, ...options });
    expect(attempt({ keep: true })).toThrow(/Cannot keep/);
    expect(attempt({ egress: { allow: ["a b"] } })).toThrow(/egress rule/);
  });

  it.each([
    ["open", { allow: ["a.test"] }],
    ["open", "none"],
    ["none", { allow: ["a.test"] }],
    ["none", "open"],
    [{ allow: [] }, "open"],
  ] as const)("cannot turn %j into %j, and says how it could", async (egress, policy) => {
    const environment = createBubblewrapEnvironment({ workspace: root, stateDir: root, egress });
    await expect(environment.setEgress(policy)).rejects.toMatchObject({
      code: "UNSUPPORTED",
      suggestion: expect.stringContaining("an empty one if need be"),
    });
  });

  it("has a filter for the architectures that are known, and says so of others", () => {
    expect(seccompFilter("x64")?.length).toBeGreaterThan(100);
    expect(seccompFilter("arm64")?.length).toBeGreaterThan(100);
    expect(seccompFilter("mips")).toBeNull();
  });
});

/** Processes of this machine that carry `MARK=value`. */
async function marked(value: string): Promise<number[]> {
  const found: number[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const environ = await readFile(`/proc/${name}/environ`, "latin1").catch(() => "");
    if (environ.includes(value) && Number(name) !== process.pid) found.push(Number(name));
  }
  return found;
}

/** The bwrap processes above these, outermost first. */
async function ancestors(pids: readonly number[]): Promise<number[]> {
  const found: number[] = [];
  for (let pid = pids[0] ?? 0; pid > 1 && pid !== process.pid; ) {
    const stat = await readFile(`/proc/${pid}/stat`, "latin1");
    if (stat.includes("(bwrap)")) found.unshift(pid);
    pid = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
  }
  return found;
}

/** Doors that open for descendants of a process. */
async function doorsOf(ancestor: number): Promise<number[]> {
  const found: number[] = [];
  for (const name of await readdir("/proc")) {
    const words = await readFile(`/proc/${name}/cmdline`, "utf8").catch(() => "");
    // The layer outside of the door has its text among its arguments too.
    if (!words.startsWith(`${process.execPath}\0-e\0${HANDING_DOOR}`)) continue;
    for (let pid = Number(name); pid > 1; ) {
      if (pid === ancestor) found.push(Number(name));
      const stat: string = await readFile(`/proc/${pid}/stat`, "latin1").catch(() => "");
      pid = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1] ?? 0);
    }
  }
  return found;
}
