/** What background processes must do. */
import { randomBytes } from "node:crypto";
import { existsSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { EnvironmentProcess, ProcessInfo } from "../../../../environments/base.ts";
import { createProcesses, type ShellProcesses } from "../../../../environments/shell/processes/processes.ts";
import type { SystemShell } from "../../../../environments/shell/stream.ts";
import { limits } from "../../../../src/limits.ts";
import { uniqueSeconds } from "../../../conformance/support.ts";
import { createSpawnSystemShell, type SpawnSystemShell, type TestShell } from "../spawn-system-shell.ts";

interface Place extends AsyncDisposable {
  readonly system: SpawnSystemShell;
  readonly processes: ShellProcesses;
}

async function createPlace(kind: TestShell, env: Readonly<Record<string, string>> = {}): Promise<Place> {
  const system = await createSpawnSystemShell(kind, env);
  const processes = connect(system);
  return {
    system,
    processes,
    async [Symbol.asyncDispose]() {
      await processes.stopAll();
      await system[Symbol.asyncDispose]();
    },
  };
}

/** Another orchestrator of the same environment. */
function connect(system: SystemShell & { readonly folder: string }, joinsWaits = false): ShellProcesses {
  return createProcesses(system, {
    joinsWaits,
    environmentId: `test-${randomBytes(4).toString("hex")}`,
    markerName: "MOORAGE_WORKER",
    workspace: () => system.folder,
    variables: async () => ({ cwd: system.folder, variables: new Map() }),
  });
}

async function until(claim: () => boolean | Promise<boolean>, deadlineMs = 10_000): Promise<void> {
  const end = performance.now() + deadlineMs;
  while (!(await claim())) {
    if (performance.now() > end) throw new Error(`Not within ${deadlineMs} ms: ${claim}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function isAlive(pid: number): boolean {
  try {
    return !/\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return false;
  }
}

/** All living processes whose environ or arguments hold `text`. */
function findByText(text: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        const all =
          readFileSync(`/proc/${name}/environ`, "latin1") + readFileSync(`/proc/${name}/cmdline`, "latin1");
        return all.includes(text) && isAlive(Number(name));
      } catch {
        return false;
      }
    })
    .map(Number);
}

async function logText(process: EnvironmentProcess): Promise<string> {
  return (await process.log()).text;
}

/** Registers what waits must do where each request costs much. */
export function describeJoinedWaits(kind: TestShell): void {
  describe(`waits that share requests through ${kind}`, () => {
    it("take a request until the next end, each ends by its own condition, and one wait more changes nothing", async () => {
      await using place = await createPlace(kind);
      let runs = 0;
      const processes = connect(
        {
          ...place.system,
          run: (script, options) => {
            runs += 1;
            return place.system.run(script, options);
          },
        },
        true,
      );
      const codes = Array.from({ length: 12 }, (_, code) => code);
      const started = await Promise.all(codes.map((code) => processes.start(`read line; exit ${code}`)));
      const [first, second, third] = started as [EnvironmentProcess, EnvironmentProcess, EnvironmentProcess];
      const endless = await processes.start("read line; sleep 600");
      runs = 0;
      const leaving = new AbortController();
      const aborted = endless.wait({ abortSignal: leaving.signal });
      const late = endless.wait({ timeoutMs: 300 });
      const all = Promise.all(started.map((one) => one.wait()));
      const twice = first.wait({ timeoutMs: 60_000 });
      expect(await late).toMatchObject({ reason: "timeout", info: { status: "running" } });
      leaving.abort();
      expect(await aborted).toMatchObject({ reason: "aborted", info: { status: "running" } });
      // Two requests so far, and two looks at what still runs.
      expect(runs).toBeLessThanOrEqual(4);
      await second.write("go\n");
      expect(await second.wait()).toMatchObject({ reason: "exit", info: { exitCode: 1 } });
      await Promise.all(started.filter((one) => one !== second).map((one) => one.write("go\n")));
      const outcomes = await all;
      expect(outcomes.map(({ reason, info }) => [reason, info.exitCode])).toEqual(
        codes.map((code) => ["exit", code]),
      );
      expect(await twice).toMatchObject({ reason: "exit", info: { id: first.id, exitCode: 0 } });
      expect(outcomes[2]?.info).toEqual(await third.info());
      expect(await third.wait({ timeoutMs: 0 })).toMatchObject({ reason: "exit" });
      rmSync(join(place.system.folder, "private", "p", third.id), { recursive: true });
      await expect(third.wait()).rejects.toMatchObject({ code: "PROCESS_MISSING" });
      await expect(third.log()).rejects.toMatchObject({ code: "PROCESS_MISSING" });
    });

    it("end when nobody waits any more, and see a supervisor that was killed", async () => {
      await using place = await createPlace(kind);
      const processes = connect(place.system, true);
      const [one, other] = [await processes.start("sleep 600"), await processes.start("sleep 600")];
      const leaving = new AbortController();
      const both = [one.wait({ abortSignal: leaving.signal }), other.wait({ abortSignal: leaving.signal })];
      const record = join(place.system.folder, "private", "p", one.id);
      const scripts = () => findByText(`${place.system.folder}/`).length;
      const before = scripts();
      await until(() => scripts() > before);
      leaving.abort();
      for (const end of await Promise.all(both)) expect(end.reason).toBe("aborted");
      await until(() => scripts() <= before);
      const supervisor = Number((await readFile(join(record, "supervisor"), "utf8")).split(" ")[0]);
      const lost = one.wait();
      process.kill(supervisor, "SIGKILL");
      process.kill((await one.info()).pid ?? 0, "SIGKILL");
      expect(await lost).toMatchObject({ reason: "exit", info: { status: "lost", exitCode: null } });
    });
  });
}

/** Registers what background processes must do through one shell. */
export function describeProcesses(kind: TestShell): void {
  describe(`background processes through ${kind}`, () => {
    it("start() returns at once, and the record tells the end", async () => {
      await using place = await createPlace(kind);
      const process = await place.processes.start("echo out; echo err >&2; read x; echo got:$x; exit 7");
      const running = await process.info();
      expect(running).toEqual({
        id: expect.stringMatching(/^proc_[0-9a-f]{12}$/),
        command: "echo out; echo err >&2; read x; echo got:$x; exit 7",
        cwd: place.system.folder,
        pid: expect.any(Number),
        status: "running",
        exitCode: null,
        startedAt: expect.stringMatching(/^\d{4}-.*Z$/),
        endedAt: null,
        pty: false,
        stdinOpen: true,
        logBytes: expect.any(Number),
        logTruncated: false,
      });
      await process.write("a b\n");
      const { reason, info, match } = await process.wait({ timeoutMs: 10_000 });
      expect({ reason, match }).toEqual({ reason: "exit", match: null });
      expect(info).toEqual({
        ...running,
        status: "exited",
        exitCode: 7,
        endedAt: expect.any(String),
        stdinOpen: false,
        logBytes: 16,
        logTruncated: false,
      });
      expect(await logText(process)).toBe("out\nerr\ngot:a b\n");
      expect(Date.parse(info.endedAt ?? "") - Date.parse(info.startedAt)).toBeLessThan(10_000);
    });

    it("a process is found, written to and waited for by a later orchestrator", async () => {
      await using place = await createPlace(kind);
      const { id } = await place.processes.start("read x; echo $x; exit 3");
      const later = connect(place.system);
      expect((await later.list()).map((info: ProcessInfo) => [info.id, info.status])).toEqual([
        [id, "running"],
      ]);
      const found = await later.get(id.slice(0, 12));
      expect(found.id).toBe(id);
      await found.write("again\n");
      expect((await found.wait({ timeoutMs: 10_000 })).info.exitCode).toBe(3);
      expect(await logText(found)).toBe("again\n");
      await expect(later.get("proc_ffffffffffff")).rejects.toMatchObject({ code: "PROCESS_MISSING" });
      await expect(later.get("pro")).rejects.toMatchObject({ code: "PROCESS_MISSING" });
    });

    it("start() gives the command its own signals, group and plain environment", {
      tags: ["slow"],
    }, async () => {
      await using place = await createPlace(kind);
      const process = await place.processes.start(
        "trap 'echo int; exit 3' INT; trap 'echo hup' HUP; ls -l /proc/$$/fd | grep -c '/done\\|/ready'; env | grep -c MOORAGE; umask; echo ready; while :; do sleep 0.05; done",
        { env: { ODD: "a'b\nc \\ $HOME é" } },
      );
      await process.wait({ logPattern: "ready", timeoutMs: 10_000 });
      await process.signal("SIGHUP");
      await process.wait({ logPattern: "hup", timeoutMs: 10_000 });
      await process.signal("SIGINT");
      expect((await process.wait({ timeoutMs: 10_000 })).info.exitCode).toBe(3);
      const [descriptors, markers, ...rest] = (await logText(process)).split("\n");
      expect(descriptors).toBe("0");
      // MOORAGE_PROCESS and MOORAGE_WORKER.
      expect(markers).toBe("2");
      // Some shells tell which signal their child died of.
      expect(rest.filter((line) => !/^(Hangup|Interrupt)?$/.test(line))).toEqual([
        "0022",
        "ready",
        "hup",
        "int",
      ]);
      await expect(process.signal("SIGINT")).rejects.toMatchObject({ code: "PROCESS_NOT_RUNNING" });
      const odd = await place.processes.start('printf %s "$ODD"', { env: { ODD: "a'b\nc \\ $HOME é" } });
      await odd.wait({ timeoutMs: 10_000 });
      expect(await logText(odd)).toBe("a'b\nc \\ $HOME é");
    });

    it("an exit code outlives `kill 0`, and a shell that kills itself", { tags: ["slow"] }, async () => {
      await using place = await createPlace(kind);
      for (const [command, exitCode] of [
        ["kill 0; sleep 5", 143],
        ["trap 'kill -9 0' EXIT; exit 4", 137],
        ["kill -9 $$", 137],
        ["exec sh -c 'exit 9'", 9],
        ["nosuchcommand", 127],
        ["if", 2],
      ] as const) {
        const process = await place.processes.start(command);
        const { info } = await process.wait({ timeoutMs: 10_000 });
        expect([command, info.status, info.exitCode]).toEqual([command, "exited", exitCode]);
      }
    });

    it("start() takes arguments as they are, and commands beyond an argument's limit", async () => {
      await using place = await createPlace(kind);
      const words = await place.processes.start(["printf", "[%s]", "a b", "", "$x'", "-n", "*"]);
      await words.wait({ timeoutMs: 10_000 });
      expect(await logText(words)).toBe("[a b][][$x'][-n][*]");
      const long = await place.processes.start(`: ${"a".repeat(300_000)}\necho done`);
      await long.wait({ timeoutMs: 10_000 });
      expect(await logText(long)).toBe("done\n");
      const missing = await place.processes.start(["/no/such/program"]);
      expect((await missing.wait({ timeoutMs: 10_000 })).info.exitCode).toBe(127);
    });

    it("start() refuses a folder that is not there or the kernel's, and leaves no record", async () => {
      await using place = await createPlace(kind);
      await expect(place.processes.start("true", { cwd: "nope" })).rejects.toMatchObject({
        code: "WORKDIR_MISSING",
        message: expect.stringContaining(join(place.system.folder, "nope")),
      });
      await expect(place.processes.start("true", { cwd: "/proc/self" })).rejects.toMatchObject({
        code: "EXECUTION_REFUSED",
      });
      expect(await place.processes.list()).toEqual([]);
    });

    it("records are closed to others", async () => {
      await using place = await createPlace(kind);
      const { id } = await place.processes.start("sleep 300", { env: { TOKEN: "hunter2secret" } });
      const folder = join(await place.system.privateDir(), "p", id);
      expect(statSync(folder).mode & 0o777).toBe(0o700);
      const modes = readdirSync(folder).map((name) => statSync(join(folder, name)).mode & 0o077);
      expect(modes.filter((mode) => mode !== 0)).toEqual([]);
      // The value reaches the process, which then empties its file, and stays in none.
      await until(async () => (await readFile(join(folder, "env"), "utf8")) === "");
      for (const name of ["env", "begin", "supervise", "meta", "log"]) {
        expect(await readFile(join(folder, name), "utf8")).not.toContain("hunter2secret");
      }
    });

    it("a process has ended when its leader has, and kill() ends what it left", async () => {
      await using place = await createPlace(kind);
      const seconds = uniqueSeconds();
      const process = await place.processes.start(
        `setsid sleep ${seconds}1 & sleep ${seconds}2 & echo started`,
      );
      const { info } = await process.wait({ timeoutMs: 10_000 });
      expect([info.status, info.exitCode]).toEqual(["exited", 0]);
      await until(
        () => findByText(`sleep\0${seconds}2`).length === 1 && findByText(`sleep\0${seconds}1`).length >= 1,
      );
      const ended = await process.kill();
      expect([ended.info.status, ended.survivors]).toEqual(["exited", []]);
      expect(findByText(`MOORAGE_PROCESS=${process.id}`)).toEqual([]);
    });

    it("kill() ends a tree that ignores TERM and has spread, and says so only then", async () => {
      await using place = await createPlace(kind);
      const process = await place.processes.start(
        "trap '' TERM INT HUP; (setsid sh -c 'trap \"\" TERM; sleep 321 & sleep 322 & wait' &) ; sleep 323 & echo ready; wait; sleep 324",
      );
      await process.wait({ logPattern: "ready", timeoutMs: 10_000 });
      await until(() => findByText(`MOORAGE_PROCESS=${process.id}`).length >= 5);
      const killing = process.kill();
      const { status } = await process.info();
      expect(["running", "killed"]).toContain(status);
      const { info, survivors } = await killing;
      expect([info.status, info.exitCode, survivors]).toEqual(["killed", 137, []]);
      expect(findByText(`MOORAGE_PROCESS=${process.id}`)).toEqual([]);
      // Who watched over it is being ended.
      await until(() => findByText(process.id).length === 0);
      expect((await process.kill()).info).toEqual(info);
    });

    it("kill() ends a stopped process", async () => {
      await using place = await createPlace(kind);
      const process = await place.processes.start("echo ready; exec sleep 331");
      await process.wait({ logPattern: "ready", timeoutMs: 10_000 });
      await process.signal("SIGSTOP");
      expect((await process.kill()).info).toMatchObject({ status: "killed", exitCode: 143 });
    });

    it("write() delivers large input byte-exact, and closeStdin() ends it", async () => {
      await using place = await createPlace(kind);
      const process = await place.processes.start("sha256sum; echo eof");
      const bytes = randomBytes(1_500_000);
      await Promise.all([process.write(bytes.subarray(0, 700_000)), process.write(bytes.subarray(700_000))]);
      await process.closeStdin();
      await process.closeStdin();
      await process.wait({ timeoutMs: 10_000 });
      const { createHash } = await import("node:crypto");
      expect(await logText(process)).toBe(`${createHash("sha256").update(bytes).digest("hex")}  -\neof\n`);
      await expect(process.write("x")).rejects.toMatchObject({ code: "PROCESS_NOT_RUNNING" });
    });

    it("write() is refused after closeStdin() and where stdin was never open", async () => {
      await using place = await createPlace(kind);
      const closed = await place.processes.start("cat; sleep 341");
      await closed.closeStdin();
      await expect(closed.write("x")).rejects.toMatchObject({ code: "PROCESS_NO_STDIN" });
      expect((await closed.info()).stdinOpen).toBe(false);
      const never = await place.processes.start("cat; echo eof; sleep 342", { stdin: "closed" });
      await never.wait({ logPattern: "eof", timeoutMs: 10_000 });
      await expect(never.write("x")).rejects.toMatchObject({ code: "PROCESS_NO_STDIN" });
    });

    it("wait() finds a log pattern, literal or not, that came in pieces", async () => {
      await using place = await createPlace(kind);
      const process = await place.processes.start(
        "printf 'a(b'; sleep 0.2; printf ')*c\\nPort 80'; sleep 0.2; echo 81 é; sleep 351",
      );
      expect(await process.wait({ logPattern: "a(b)*c", timeoutMs: 10_000 })).toMatchObject({
        reason: "log",
        match: "a(b)*c",
      });
      expect(await process.wait({ logPattern: /^port (\d{4}) é/im, timeoutMs: 10_000 })).toMatchObject({
        reason: "log",
        match: "Port 8081 é",
      });
      const timed = performance.now();
      expect((await process.wait({ logPattern: "never", timeoutMs: 300 })).reason).toBe("timeout");
      expect(performance.now() - timed).toBeLessThan(2_500);
      const abort = new AbortController();
      const waiting = process.wait({ abortSignal: abort.signal });
      abort.abort();
      expect((await waiting).reason).toBe("aborted");
      expect((await process.info()).status).toBe("running");
    });

    it("wait() for a pattern or a port is answered by the end, after the last output was looked at", async () => {
      await using place = await createPlace(kind);
      const process = await place.processes.start("sleep 0.2; printf 'last words'");
      expect((await process.wait({ logPattern: "never", timeoutMs: 10_000 })).reason).toBe("exit");
      expect((await process.wait({ logPattern: "last words", timeoutMs: 10_000 })).reason).toBe("log");
      expect((await process.wait({ port: 1, timeoutMs: 10_000 })).reason).toBe("exit");
    });

    it("wait() for a port is answered when something listens", async () => {
      await using place = await createPlace(kind);
      const process = await place.processes.start("sleep 361");
      const server = createServer();
      const port = await new Promise<number>((resolve) => {
        server.listen(0, "127.0.0.1", () => {
          const address = server.address();
          resolve(address !== null && typeof address === "object" ? address.port : 0);
        });
      });
      expect((await process.wait({ port, timeoutMs: 10_000 })).reason).toBe("port");
      expect(await place.processes.listening(port)).toBe(true);
      await new Promise((resolve) => server.close(resolve));
      expect(await place.processes.listening(port)).toBe(false);
      expect((await process.wait({ port, timeoutMs: 200 })).reason).toBe("timeout");
    });

    it("log() reads by bytes and never cuts a code point", async () => {
      await using place = await createPlace(kind);
      const text = "aé你😀\n".repeat(40);
      const process = await place.processes.start(["printf", "%s", text]);
      await process.wait({ timeoutMs: 10_000 });
      const total = Buffer.byteLength(text);
      for (const maxBytes of [1, 7]) {
        let read = "";
        for (let offset = 0; offset < total && read.length < 14; ) {
          const slice = await process.log({ offset, maxBytes });
          expect(slice.nextOffset).toBeGreaterThan(offset);
          expect(slice.totalBytes).toBe(total);
          read += slice.text;
          offset = slice.nextOffset;
        }
        expect(text.startsWith(read)).toBe(true);
      }
      expect(await process.log({ offset: -4, maxBytes: 100 })).toEqual({
        text: "\n",
        offset: total - 1,
        nextOffset: total,
        totalBytes: total,
      });
      expect((await process.log({ offset: -5 })).text).toBe("😀\n");
      expect(await process.log({ offset: total + 50 })).toEqual({
        text: "",
        offset: total,
        nextOffset: total,
        totalBytes: total,
      });
      const broken = await place.processes.start("printf 'x\\377\\342\\202'");
      await broken.wait({ timeoutMs: 10_000 });
      expect((await broken.log()).text).toBe("x��");
      const open = await place.processes.start("printf 'x\\342\\202'; read y; printf '\\254'; sleep 371");
      await open.wait({ logPattern: "x", timeoutMs: 10_000 });
      const first = await open.log();
      expect([first.text, first.nextOffset]).toEqual(["x", 1]);
      await open.write("\n");
      await open.wait({ logPattern: "€", timeoutMs: 10_000 });
      expect((await open.log({ offset: first.nextOffset })).text).toBe("€");
    });

    it("a process whose supervisor was killed runs on, and is lost when it ends", async () => {
      await using place = await createPlace(kind);
      const running = await place.processes.start("sleep 381");
      const folder = join(await place.system.privateDir(), "p", running.id);
      const supervisor = Number((await readFile(join(folder, "supervisor"), "utf8")).split(" ")[0]);
      process.kill(supervisor, "SIGKILL");
      expect((await running.wait({ timeoutMs: 300 })).reason).toBe("timeout");
      const { pid } = await running.info();
      process.kill(pid ?? 0, "SIGKILL");
      const { reason, info } = await running.wait({ timeoutMs: 10_000 });
      expect([reason, info.status, info.exitCode, info.endedAt]).toEqual(["exit", "lost", null, null]);
    });

    it("list() forgets what ended long ago", async () => {
      await using place = await createPlace(kind);
      const old = await place.processes.start("true");
      await old.wait({ timeoutMs: 10_000 });
      const recent = await place.processes.start("true");
      await recent.wait({ timeoutMs: 10_000 });
      const exit = join(await place.system.privateDir(), "p", old.id, "exit");
      const [code, , boot] = (await readFile(exit, "utf8")).split(" ");
      await writeFile(exit, `${code} -99999.00 ${boot}`);
      expect((await place.processes.list()).map(({ id }) => id)).toEqual([recent.id]);
      expect(existsSync(exit)).toBe(false);
      await expect(old.info()).rejects.toMatchObject({ code: "PROCESS_MISSING" });
    });

    it("a terminal has its size, takes input, and gives the command's exit code", async () => {
      await using place = await createPlace(kind, { SHELL: "/usr/bin/fish" });
      const process = await place.processes.start(
        'stty size; [ -t 0 ] && [ -t 1 ] && echo tty; echo "$SHELL $TERM"; read x; echo "got $x"; exit 5',
        { pty: { columns: 123, rows: 45 } },
      );
      // Written earlier, the terminal would echo it before the command's own lines.
      await process.wait({ logPattern: "xterm-256color", timeoutMs: 15_000 });
      await process.write("hey\r");
      const { info } = await process.wait({ timeoutMs: 15_000 });
      expect([info.status, info.exitCode, info.pty]).toEqual(["exited", 5, true]);
      const lines = (await logText(process)).split("\r\n");
      expect(lines.slice(0, 3)).toEqual(["45 123", "tty", "/usr/bin/fish xterm-256color"]);
      expect(lines).toContain("got hey");
    });

    it("a terminal ends with its command, also while a child holds it, and on kill() with a pager", {
      tags: ["slow"],
    }, async () => {
      await using place = await createPlace(kind);
      const seconds = uniqueSeconds();
      const leaving = await place.processes.start(`sleep ${seconds} & echo left`, { pty: true });
      expect((await leaving.wait({ timeoutMs: 10_000 })).info).toMatchObject({
        status: "exited",
        exitCode: 0,
      });
      await until(() => findByText(`sleep\0${seconds}`).length === 1);
      expect((await leaving.kill()).survivors).toEqual([]);
      expect(findByText(`sleep\0${seconds}`)).toEqual([]);
      const pager = await place.processes.start("less /etc/services", { pty: true });
      await pager.wait({ logPattern: /tcpmux|services/, timeoutMs: 10_000 });
      const { info, survivors } = await pager.kill();
      expect([info.status, survivors]).toEqual(["killed", []]);
      expect(findByText(`MOORAGE_PROCESS=${pager.id}`)).toEqual([]);
      await until(() => findByText(pager.id).length === 0);
    });

    it("a signal on a terminal reaches its foreground", async () => {
      await using place = await createPlace(kind);
      const process = await place.processes.start(
        "trap 'echo caught; exit 6' INT; echo ready; while :; do sleep 0.05; done",
        {
          pty: true,
        },
      );
      await process.wait({ logPattern: "ready", timeoutMs: 10_000 });
      await process.signal("SIGINT");
      expect((await process.wait({ timeoutMs: 10_000 })).info.exitCode).toBe(6);
    });

    it("stopAll() ends everything and leaves no record", async () => {
      await using place = await createPlace(kind);
      const ids: string[] = [];
      for (const command of [
        "sleep 401",
        "setsid sleep 402 & true",
        "trap '' TERM; sleep 403; sleep 404",
        "true",
      ]) {
        ids.push((await place.processes.start(command)).id);
      }
      await place.processes.stopAll();
      expect(await place.processes.list()).toEqual([]);
      expect(readdirSync(join(await place.system.privateDir(), "p"))).toEqual([]);
      await until(() => ids.flatMap(findByText).length === 0);
    });
  });
}

/** Registers what bounds a process that does not read or that floods. Its cases wait, side by side. */
export function describeBounds(): void {
  describe.concurrent("background processes", () => {
    it("write() gives up on a process that does not read, and keeps it (SH-45)", async () => {
      await using place = await createPlace("bash");
      const process = await place.processes.start("sleep 411");
      const began = performance.now();
      await expect(process.write("x".repeat(1_000_000))).rejects.toMatchObject({
        code: "PROCESS_NO_STDIN",
        details: { bytesTotal: 1_000_000 },
      });
      expect(performance.now() - began).toBeLessThan(20_000);
      expect((await process.info()).status).toBe("running");
    });

    it.each([
      ["a process", "echo first; yes"],
      ["what it left behind", "echo first; yes &"],
    ])("the log of %s is bounded", { timeout: 120_000 }, async (_, command) => {
      await using place = await createPlace("bash");
      const process = await place.processes.start(command);
      const folder = join(await place.system.privateDir(), "p", process.id);
      await until(() => existsSync(join(folder, "cut")), 60_000);
      expect((await process.info()).logTruncated).toBe(true);
      // What writes on after a cut is cut again.
      await until(() => statSync(join(folder, "log")).size > limits.processLogMaxBytes, 60_000);
      await until(() => statSync(join(folder, "log")).size <= limits.processLogMaxBytes + 65_536, 60_000);
      expect((await process.log({ maxBytes: 8 })).text).toBe("first\ny\n");
      expect((await process.info()).status).toBe(command.endsWith("&") ? "exited" : "running");
      expect((await process.kill()).survivors).toEqual([]);
      await until(() => findByText(process.id).length === 0);
    });
  });
}

/** Runs batches of ten short processes, and expects no zombie and no descriptor of them (SH-43, SH-45). */
export async function surviveShortProcesses(batches: number): Promise<void> {
  await using place = await createPlace("bash");
  const descriptors = readdirSync("/proc/self/fd").length;
  for (let batch = 0; batch < batches; batch += 1) {
    const started = await Promise.all(
      Array.from({ length: 10 }, (_, index) => place.processes.start(`echo ${batch}; exit ${index}`)),
    );
    const ends = await Promise.all(started.map((process) => process.wait({ timeoutMs: 60_000 })));
    expect(ends.map(({ info }) => info.exitCode)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  }
  expect(await place.processes.list()).toHaveLength(batches * 10);
  expect(readdirSync("/proc/self/fd").length).toBeLessThanOrEqual(descriptors + 5);
  await until(() => findByText(place.system.folder).length === 0);
  const zombies = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        return new RegExp(`\\) Z ${process.pid} `).test(readFileSync(`/proc/${name}/stat`, "latin1"));
      } catch {
        return false;
      }
    });
  expect(zombies).toEqual([]);
}
