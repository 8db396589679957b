/** Background processes: log, stdin, signals, waiting, exit status. */
import { createServer } from "node:net";
import { expect } from "vitest";
import type { BaseEnvironment, EnvironmentProcess, ProcessInfo } from "../../environments/base.ts";
import { isMoorageError } from "../../src/errors.ts";
import {
  type CaseContext,
  type Cases,
  expectCode,
  living,
  pseudoRandom,
  result,
  scratch,
  token,
  uniqueSeconds,
  until,
  untilGone,
} from "./support.ts";

const WAIT_MS = 20_000;

/** What `info` says of a process, with what is `expected` to differ. */
function described(expected: Partial<ProcessInfo>): ProcessInfo {
  return {
    id: expect.any(String),
    command: expect.any(String),
    cwd: expect.any(String),
    pid: expect.toSatisfy((pid: unknown) => pid === null || typeof pid === "number", "a pid or null"),
    status: "exited",
    exitCode: 0,
    startedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    endedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    pty: false,
    stdinOpen: expect.any(Boolean),
    logBytes: expect.any(Number),
    logTruncated: false,
    ...expected,
  };
}

async function logOf(started: EnvironmentProcess): Promise<string> {
  return (await started.log()).text;
}

/** Waits for the end, and gives the log. */
async function ended(started: EnvironmentProcess): Promise<string> {
  expect(await started.wait({ timeoutMs: WAIT_MS })).toMatchObject({ reason: "exit", match: null });
  return logOf(started);
}

/** Skips where no terminal can be had; an environment that declares the capability gives one. */
async function needPty({ environment, skip }: CaseContext): Promise<BaseEnvironment> {
  if (environment.capabilities.has("pty")) return environment;
  const started = environment.processes.start("true", { pty: true });
  const refusal = await started.then(
    () => null,
    (error: unknown) => error,
  );
  if (isMoorageError(refusal, "UNSUPPORTED")) skip(`no terminal is to be had: ${refusal.message}`);
  return environment;
}

export const processes = {
  "a process has an id, a log and an exit code": async ({ environment }) => {
    const started = await environment.processes.start("echo out; echo err >&2; exit 3");
    expect(await started.wait({ timeoutMs: WAIT_MS })).toEqual({
      reason: "exit",
      match: null,
      info: described({
        id: started.id,
        command: "echo out; echo err >&2; exit 3",
        cwd: environment.workspace,
        exitCode: 3,
        logBytes: 8,
        logTruncated: false,
      }),
    });
    expect(await started.log()).toEqual({ text: "out\nerr\n", offset: 0, nextOffset: 8, totalBytes: 8 });
  },
  "a running process says so": async ({ environment }) => {
    const seconds = uniqueSeconds();
    const started = await environment.processes.start(["sleep", seconds]);
    expect(await started.info()).toEqual(
      described({
        id: started.id,
        command: expect.stringMatching(`sleep.*${seconds}`),
        status: "running",
        exitCode: null,
        endedAt: null,
        logBytes: 0,
        logTruncated: false,
      }),
    );
    await started.kill();
  },
  "start() returns while the process runs": async ({ environment }) => {
    const before = performance.now();
    const started = await environment.processes.start("sleep 30");
    expect(performance.now() - before).toBeLessThan(8_000);
    await started.kill();
  },
  "a process starts in a folder and with variables of its own": async ({ environment }) => {
    const folder = await scratch(environment);
    const started = await environment.processes.start('pwd; echo "$OWN"', {
      cwd: folder,
      env: { OWN: "a 'b'\nc" },
    });
    expect(await ended(started)).toBe(`${folder}\na 'b'\nc\n`);
    expect((await started.info()).cwd).toBe(folder);
  },
  "a process starts with the folder and variables of a session": async ({ environment }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession();
    await session.exec(`cd ${folder}; export OWN='of session'`);
    expect(await ended(await environment.processes.start('pwd; echo "$OWN"', { session }))).toBe(
      `${folder}\nof session\n`,
    );
    expect(await session.exec("pwd")).toEqual(result({ output: `${folder}\n`, cwd: folder }));
  },
  "a process cannot start in a missing folder": async ({ environment }) => {
    expect(
      await expectCode(environment.processes.start("true", { cwd: "/nope/nowhere" }), "WORKDIR_MISSING"),
    ).toContain("/nope/nowhere");
  },
  "a NUL is refused": async ({ environment }) => {
    await expectCode(environment.processes.start("echo a\0b"), "EXECUTION_REFUSED");
    await expectCode(environment.processes.start("true", { env: { A: "\0" } }), "EXECUTION_REFUSED");
  },
  "an argv process is started by no shell": async ({ environment }) => {
    expect(
      await ended(await environment.processes.start(["printf", "[%s]", "a b", "*", "$HOME", "it's"])),
    ).toBe("[a b][*][$HOME][it's]");
  },
  "a missing program is told by exit code 127": async ({ environment }) => {
    const started = await environment.processes.start([`/nowhere/${token()}`]);
    expect(await started.wait({ timeoutMs: WAIT_MS })).toMatchObject({
      info: { status: "exited", exitCode: 127 },
    });
  },
  "a syntax error is told by exit code 2": async ({ environment }) => {
    const started = await environment.processes.start('echo "abc');
    expect(await started.wait({ timeoutMs: WAIT_MS })).toMatchObject({
      info: { status: "exited", exitCode: 2 },
    });
    expect(await logOf(started)).toMatch(/./);
  },
  "a death by signal is told by 128 and its number": async ({ environment }) => {
    const started = await environment.processes.start(["sh", "-c", "kill -SEGV $$"]);
    expect(await started.wait({ timeoutMs: WAIT_MS })).toMatchObject({ info: { exitCode: 139 } });
  },
  "the log is read from any byte, and never cut inside a code point": async ({ environment }) => {
    const started = await environment.processes.start("printf 'abc€def\\n'");
    await ended(started);
    expect(await started.log({ offset: -4 })).toEqual({
      text: "def\n",
      offset: 6,
      nextOffset: 10,
      totalBytes: 10,
    });
    expect(await started.log({ offset: 0, maxBytes: 4 })).toMatchObject({ text: "abc", nextOffset: 3 });
    expect(await started.log({ offset: 3, maxBytes: 100 })).toEqual({
      text: "€def\n",
      offset: 3,
      nextOffset: 10,
      totalBytes: 10,
    });
    expect(await started.log({ offset: 10 })).toEqual({
      text: "",
      offset: 10,
      nextOffset: 10,
      totalBytes: 10,
    });
    expect((await started.log({ offset: -100 })).text).toBe("abc€def\n");
  },
  "the log grows while the process runs, also without newlines": async ({ environment }) => {
    const folder = await scratch(environment);
    const started = await environment.processes.start(
      `printf first; until [ -e ${folder}/go ]; do sleep 1; done; printf last`,
    );
    await until(async () => (await logOf(started)) === "first", "the first bytes are in the log");
    await environment.exec(`: > ${folder}/go`);
    expect(await ended(started)).toBe("firstlast");
  },
  "a log of 10 MB is whole": async ({ environment }) => {
    const started = await environment.processes.start("head -c 10000000 /dev/zero | tr '\\000' x; echo END");
    await started.wait({ timeoutMs: WAIT_MS });
    expect(await started.log({ offset: -5 })).toEqual({
      text: "xEND\n",
      offset: 9_999_999,
      nextOffset: 10_000_004,
      totalBytes: 10_000_004,
    });
    expect((await started.log({ offset: 5_000_000, maxBytes: 100_000 })).text).toBe("x".repeat(100_000));
  },
  "wait() ends at the exit": async ({ environment }) => {
    const started = await environment.processes.start("sleep 1; exit 4");
    expect(await started.wait()).toMatchObject({ reason: "exit", info: { exitCode: 4 } });
    expect(await started.wait({ exit: true })).toMatchObject({ reason: "exit", info: { exitCode: 4 } });
  },
  "wait() ends at a text or pattern in the log": async ({ environment }) => {
    const started = await environment.processes.start(
      "echo starting; sleep 1; echo 'ready on [80.]'; sleep 60",
    );
    expect(await started.wait({ logPattern: "on [80.]", timeoutMs: WAIT_MS })).toMatchObject({
      reason: "log",
      match: "on [80.]",
      info: { status: "running" },
    });
    expect(await started.wait({ logPattern: /ready on \[(\d+)/, timeoutMs: WAIT_MS })).toMatchObject({
      reason: "log",
      match: "ready on [80",
    });
    expect(await started.wait({ logPattern: /^starting$/m, timeoutMs: WAIT_MS })).toMatchObject({
      reason: "log",
      match: "starting",
    });
    await started.kill();
  },
  "wait() finds a pattern that arrives in pieces": async ({ environment }) => {
    const started = await environment.processes.start("printf rea; sleep 1; printf dy; sleep 60");
    expect(await started.wait({ logPattern: "ready", timeoutMs: WAIT_MS })).toMatchObject({
      reason: "log",
      match: "ready",
    });
    await started.kill();
  },
  "wait() for a pattern ends when the process ends without it": async ({ environment }) => {
    const started = await environment.processes.start("sleep 1; echo other; exit 6");
    expect(await started.wait({ logPattern: "ready", timeoutMs: WAIT_MS })).toMatchObject({
      reason: "exit",
      match: null,
      info: { exitCode: 6 },
    });
  },
  "wait() finds a pattern in the last bytes before the end": async ({ environment }) => {
    const started = await environment.processes.start("printf ready");
    expect(await started.wait({ logPattern: "ready", timeoutMs: WAIT_MS })).toMatchObject({
      reason: "log",
      match: "ready",
    });
  },
  "wait() ends at a port that listens inside": async (context) => {
    const { environment } = context;
    const { output } = await environment.exec("command -v python3 || command -v nc || true");
    const program = output.trim();
    if (program === "") context.skip("the environment has no program that listens on a port");
    const port = await freePort();
    const listen = program.endsWith("python3")
      ? `exec python3 -c 'import socket,time; s=socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", ${port})); s.listen(); time.sleep(60)'`
      : `exec nc -l -p ${port}`;
    const started = await environment.processes.start(`sleep 1; ${listen}`);
    expect(await started.wait({ port, timeoutMs: WAIT_MS })).toMatchObject({
      reason: "port",
      info: { status: "running" },
    });
    await started.kill();
    const mute = await environment.processes.start("sleep 60");
    expect(await mute.wait({ port, timeoutMs: 1_000 })).toMatchObject({ reason: "timeout" });
    await mute.kill();
  },
  "wait() gives up at its timeout and at an abort, and the process goes on": async ({ environment }) => {
    const started = await environment.processes.start("sleep 60");
    expect(await started.wait({ timeoutMs: 300 })).toMatchObject({
      reason: "timeout",
      info: { status: "running" },
    });
    expect(await started.wait({ logPattern: "x", timeoutMs: 300 })).toMatchObject({ reason: "timeout" });
    expect(await started.wait({ abortSignal: AbortSignal.timeout(300) })).toMatchObject({
      reason: "aborted",
      info: { status: "running" },
    });
    expect(await started.wait({ abortSignal: AbortSignal.abort() })).toMatchObject({ reason: "aborted" });
    await started.kill();
  },
  "stdin takes text until it is closed": async ({ environment }) => {
    const started = await environment.processes.start('while read line; do echo "got $line"; done; echo eof');
    await started.write("one\n");
    await started.wait({ logPattern: "got one", timeoutMs: WAIT_MS });
    await started.write("two\nthr");
    await started.write("ee\n");
    await started.closeStdin();
    await started.closeStdin();
    expect(await ended(started)).toBe("got one\ngot two\ngot three\neof\n");
    expect((await started.info()).stdinOpen).toBe(false);
  },
  "stdin is byte-exact": async ({ environment }) => {
    const bytes = pseudoRandom(300_000, 5);
    const started = await environment.processes.start("sha256sum");
    for (let at = 0; at < bytes.length; at += 100_000) await started.write(bytes.subarray(at, at + 100_000));
    await started.closeStdin();
    const { output } = await environment.exec("sha256sum", { stdin: bytes });
    expect(await ended(started)).toBe(output);
  },
  "stdin refuses text after its end": async ({ environment }) => {
    const started = await environment.processes.start("cat; sleep 60");
    await started.closeStdin();
    await expectCode(started.write("x"), "PROCESS_NO_STDIN");
    await started.kill();
    await expectCode(started.write("x"), "PROCESS_NOT_RUNNING", "PROCESS_NO_STDIN");
  },
  "a signal reaches the process group": async ({ environment }) => {
    const started = await environment.processes.start(
      "trap 'echo usr; exit 7' USR1; echo ready; while :; do sleep 1; done",
    );
    await started.wait({ logPattern: "ready", timeoutMs: WAIT_MS });
    await started.signal("SIGUSR1");
    expect(await started.wait({ timeoutMs: WAIT_MS })).toMatchObject({ info: { exitCode: 7 } });
    expect(await logOf(started)).toContain("usr\n");
    await expectCode(started.signal("SIGTERM"), "PROCESS_NOT_RUNNING");
  },
  "an interrupt ends a process that does not catch it": async ({ environment }) => {
    const started = await environment.processes.start(["sleep", "60"]);
    await started.signal("SIGINT");
    expect(await started.wait({ timeoutMs: WAIT_MS })).toMatchObject({ info: { exitCode: 130 } });
  },
  "an unknown signal is refused": async ({ environment }) => {
    const started = await environment.processes.start("sleep 60");
    for (const signal of ["SIGNOPE", "", "-9", "TERM; touch /tmp/x"]) {
      await expect(started.signal(signal)).rejects.toThrow(Error);
    }
    expect((await started.info()).status).toBe("running");
    await started.kill();
  },
  "kill() ends the whole tree and is idempotent": async ({ environment }) => {
    const seconds = uniqueSeconds();
    const started = await environment.processes.start(
      `setsid sleep ${seconds} & (sleep ${seconds} &); env -i sleep ${seconds} & trap '' TERM; echo ready; sleep ${seconds}`,
    );
    await started.wait({ logPattern: "ready", timeoutMs: WAIT_MS });
    const killed = await started.kill();
    expect(killed).toMatchObject({ info: { status: "killed" }, survivors: [] });
    expect(await living(environment, seconds)).toBe(0);
    expect(await started.kill()).toMatchObject({ info: { status: "killed" }, survivors: [] });
    expect(await logOf(started)).toBe("ready\n");
  },
  "kill() of an ended process leaves its record": async ({ environment }) => {
    const started = await environment.processes.start("exit 5");
    await ended(started);
    expect(await started.kill()).toMatchObject({ info: { status: "exited", exitCode: 5 }, survivors: [] });
  },
  "a process outlives the session that it started from": async ({ environment }) => {
    const session = await environment.openSession();
    const started = await environment.processes.start("sleep 2; echo after", { session });
    await session.close();
    expect(await ended(started)).toBe("after\n");
  },
  "a timeout in a session leaves processes alone": async ({ environment }) => {
    await using session = await environment.openSession();
    const started = await environment.processes.start("sleep 60", { session });
    await session.exec("sleep 60", { timeoutMs: 300 });
    expect((await started.info()).status).toBe("running");
    await started.kill();
  },
  "list() gives all, oldest first, with the ended ones": async ({ environment }) => {
    const ids: string[] = [];
    for (const text of ["one", "two", "three"]) {
      const started = await environment.processes.start(`echo ${text}`);
      await ended(started);
      ids.push(started.id);
    }
    const listed = await environment.processes.list();
    expect(listed.filter(({ id }) => ids.includes(id)).map(({ id, exitCode }) => [id, exitCode])).toEqual(
      ids.map((id) => [id, 0]),
    );
  },
  "get() finds by id or unique prefix and keeps record and log after the end": async ({ environment }) => {
    const started = await environment.processes.start("echo kept; exit 9");
    await ended(started);
    // Other cases start processes beside this one, so a prefix is long enough to be one's alone.
    for (const id of [started.id, started.id.slice(0, -2)]) {
      const found = await environment.processes.get(id);
      expect(await found.info()).toMatchObject({ id: started.id, status: "exited", exitCode: 9 });
      expect(await logOf(found)).toBe("kept\n");
    }
  },
  "get() refuses what is missing, short or a path": async ({ environment }) => {
    const started = await environment.processes.start("true");
    await ended(started);
    for (const id of ["", started.id.slice(0, 3), "nosuchprocess", "../..", "*", "????????"]) {
      await expectCode(environment.processes.get(id), "PROCESS_MISSING");
    }
  },
  "20 processes at once keep their own log and code": async ({ environment }) => {
    const started = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        environment.processes.start(`echo ${index}; sleep 1; echo ${index}; exit ${index}`),
      ),
    );
    const outcomes = await Promise.all(
      started.map(async (one) => [await ended(one), (await one.info()).exitCode]),
    );
    expect(outcomes).toEqual(outcomes.map((_, index) => [`${index}\n${index}\n`, index]));
    expect(new Set(started.map(({ id }) => id)).size).toBe(20);
  },
  "a process has no terminal unless asked": async ({ environment }) => {
    const started = await environment.processes.start("[ -t 0 ] || [ -t 1 ] || echo none");
    expect(await ended(started)).toBe("none\n");
  },
  "a terminal is one, of the size asked (DK-37)": async (context) => {
    const environment = await needPty(context);
    const started = await environment.processes.start(
      "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo tty; stty size",
      { pty: { columns: 120, rows: 40 } },
    );
    expect(await ended(started)).toBe("tty\r\n40 120\r\n");
    expect((await started.info()).pty).toBe(true);
    expect(await ended(await environment.processes.start("stty size", { pty: true }))).toBe("24 80\r\n");
  },
  "a terminal shows no pager that waits for a key (SH-33)": async (context) => {
    const environment = await needPty(context);
    const folder = await scratch(environment);
    const start = (command: string, env = {}) =>
      environment.processes.start(command, { cwd: folder, env, pty: true });
    const pagers = 'for p in "$PAGER" "$MANPAGER" "$SYSTEMD_PAGER" "$GIT_PAGER"; do echo text | $p; done';
    expect(await ended(await start(pagers))).toBe("text\r\n".repeat(4));
    expect(await ended(await start('echo "$PAGER $GIT_PAGER"', { PAGER: "mine" }))).toBe("mine cat\r\n");
    if ((await environment.exec("command -v git")).exitCode !== 0) return;
    const commits = Array.from(
      { length: 300 },
      (_, index) => `commit refs/heads/main\ncommitter a <a@b> ${index} +0000\ndata 4\nn${index + 100}\n`,
    );
    const setUp =
      "git init -q . && git fast-import --quiet && git symbolic-ref HEAD refs/heads/main && git config core.pager 'cat; sleep 600;'";
    expect(await environment.exec(setUp, { cwd: folder, stdin: commits.join("\n") })).toMatchObject({
      exitCode: 0,
    });
    const log = await ended(await start("git log --format=%s"));
    expect(log.match(/n\d+/g)).toEqual(commits.map((_, index) => `n${399 - index}`));
  },
  "a terminal takes input and control characters": async (context) => {
    const environment = await needPty(context);
    const started = await environment.processes.start('echo ready; read line; echo "got $line"; sleep 60', {
      pty: true,
    });
    await started.wait({ logPattern: "ready", timeoutMs: WAIT_MS });
    await started.write("hello\r");
    expect(await started.wait({ logPattern: "got hello", timeoutMs: WAIT_MS })).toMatchObject({
      reason: "log",
    });
    await started.write("\x03");
    expect(await started.wait({ timeoutMs: WAIT_MS })).toMatchObject({
      reason: "exit",
      info: { exitCode: 130 },
    });
  },
  "a terminal's exit code is the command's": async (context) => {
    const environment = await needPty(context);
    const started = await environment.processes.start("exit 6", { pty: true });
    expect(await started.wait({ timeoutMs: WAIT_MS })).toMatchObject({
      reason: "exit",
      info: { exitCode: 6 },
    });
  },
  "a terminal's tree is killed whole": async (context) => {
    const environment = await needPty(context);
    const seconds = uniqueSeconds();
    const started = await environment.processes.start(
      `setsid sleep ${seconds} & echo ready; sleep ${seconds}`,
      { pty: true },
    );
    await started.wait({ logPattern: "ready", timeoutMs: WAIT_MS });
    expect((await started.kill()).survivors).toEqual([]);
    await untilGone(environment, seconds);
  },
  "a terminal is given, or refused as unsupported": async ({ environment }) => {
    const started = environment.processes.start("[ -t 0 ] && echo tty", { pty: true });
    const given = await started.catch((error: unknown) => expectCode(Promise.reject(error), "UNSUPPORTED"));
    if (typeof given === "string") expect(environment.capabilities.has("pty"), given).toBe(false);
    else expect(await ended(given)).toBe("tty\r\n");
  },
} satisfies Cases;

/** A port that was free a moment ago on this machine. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((listening) => server.once("listening", listening));
  const address = server.address();
  await new Promise((closed) => server.close(closed));
  if (address === null || typeof address === "string") throw new Error("A TCP server has no port");
  return address.port;
}
