import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { PassThrough, Transform } from "node:stream";
import { describe, expect, it, vi } from "vitest";
import { spawnStream } from "../../../environments/local/spawn.ts";
import { ownedOrphans } from "../../../environments/shell/left-behind.ts";
import { PLACE_LOST } from "../../../environments/shell/phrases.ts";
import { ResidentWorker } from "../../../environments/shell/resident.ts";
import { emptyState, type ShellState } from "../../../environments/shell/state.ts";
import type { ShellStream } from "../../../environments/shell/stream.ts";
import type { CallEnd } from "../../../environments/shell/worker.ts";
import { limits } from "../../../src/limits.ts";
import { carriers } from "../../carriers.ts";
import { token, until } from "../../conformance/support.ts";
import { createSpawnSystemShell } from "./spawn-system-shell.ts";

interface Rig {
  readonly worker: ResidentWorker;
  /** What the worker writes to. */
  readonly stream: ShellStream;
  /** Keeps what the shell writes on its way, as a slow network does. */
  readonly hold: () => void;
  readonly letGo: () => void;
  readonly call: (
    command: string,
    separate?: boolean,
    stdin?: Uint8Array | null,
    state?: ShellState,
    plain?: boolean,
  ) => Promise<CallEnd & { readonly output: string }>;
}

function spawnLocal(
  argv: readonly string[],
  env: Readonly<Record<string, string>>,
  path = process.env.PATH ?? "/usr/bin:/bin",
): Promise<ShellStream> {
  return spawnStream({ argv, env: { ...env, PATH: path }, cwd: "/" });
}

/** How late what a stream carries is, beside the other. */
const LAG_MS = 20;

function lagging(): Transform {
  return new Transform({
    transform: (chunk, _encoding, done) => void setTimeout(() => done(null, chunk), LAG_MS),
  });
}

async function openRig(shell: "bash" | "sh", path?: string, late?: "stdout" | "stderr"): Promise<Rig> {
  const streams: ShellStream[] = [];
  const sides: { readonly from: NodeJS.ReadableStream; readonly to: Transform }[] = [];
  const worker = await ResidentWorker.open({
    id: token(),
    shell,
    library: "",
    login: false,
    open: async (argv, env): Promise<ShellStream> => {
      const stream = await spawnLocal(argv, env, path);
      streams.push(stream);
      const delayed = (name: "stdout" | "stderr"): Transform => {
        const from = stream[name];
        const to = name === late ? lagging() : new PassThrough();
        from.pipe(to);
        sides.push({ from, to });
        return to;
      };
      return { ...stream, stdout: delayed("stdout"), stderr: delayed("stderr") };
    },
  });
  const [stream] = streams;
  if (!stream) throw new Error("No shell was started");
  return {
    worker,
    stream,
    hold: () => {
      for (const { from, to } of sides) from.unpipe(to).pause();
    },
    letGo: () => {
      for (const { from, to } of sides) from.pipe(to);
    },
    call: async (command, separate = false, stdin = null, state = emptyState("/"), plain = false) => {
      const chunks: Buffer[] = [];
      const end = await worker.run({
        command,
        cwd: "/",
        cwdRequired: false,
        state,
        env: new Map(),
        stdin,
        separate,
        dump: false,
        plain,
        onData: (_stream, chunk) => void chunks.push(chunk),
      });
      return { ...end, output: Buffer.concat(chunks).toString() };
    },
  };
}

/** Runs a script as our own are run. */
async function runOurs({ worker }: Rig, script: string) {
  const said = { stdout: "", stderr: "" };
  const end = await worker.run({
    command: script,
    cwd: "/",
    cwdRequired: false,
    state: emptyState("/"),
    env: new Map(),
    stdin: null,
    separate: true,
    dump: false,
    plain: true,
    sound: true,
    onData: (stream, chunk) => {
      said[stream] += chunk.toString("latin1");
    },
  });
  return { end, said };
}

describe.each(["bash", "sh"] as const)("a worker of %s", (shell) => {
  it.each([
    ["merged", false],
    ["apart", true],
  ] as const)(
    "never takes a dead child's last bytes for a later call's, with streams %s",
    async (_title, separate) => {
      const { worker, hold, letGo, call } = await openRig(shell);
      const fifo = `${tmpdir()}/${token()}`;
      const first = await call(
        `mkfifo ${fifo}; (read -r go <${fifo}; echo LATE; echo LATE >&2) & echo one`,
        separate,
      );
      expect(first).toMatchObject({ kind: "ended", output: "one\n" });
      hold();
      // It writes and ends while its bytes are still on their way.
      await expect(spawnAndWait(`echo >${fifo}; rm ${fifo}`)).resolves.toBe(0);
      await until(async () => (await carriers(worker.id)).length === 1, "only the shell is left");
      const second = call("echo two; echo two >&2", separate);
      letGo();
      expect(await second).toMatchObject({ kind: "ended", output: "two\ntwo\n", restored: true });
      await worker.close();
    },
  );

  it("that is heard too late ends, and takes that for no loss of its orchestrator", async () => {
    const will = `${tmpdir()}/${token()}`;
    const streams: ShellStream[] = [];
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const opening = ResidentWorker.open({
        id: token(),
        shell,
        library: "",
        atLoss: `: >${will}`,
        login: false,
        open: async (argv, env) => {
          const stream = await spawnLocal(argv, env);
          streams.push(stream);
          // Its greeting stays on its way.
          return { ...stream, stderr: new PassThrough() };
        },
      });
      const refused = expect(opening).rejects.toMatchObject({ code: "ENVIRONMENT_UNAVAILABLE" });
      await vi.waitUntil(() => vi.getTimerCount() > 0 && streams.length > 0);
      await vi.advanceTimersByTimeAsync(limits.openTimeoutMs);
      await refused;
    } finally {
      vi.useRealTimers();
    }
    expect(await streams[0]?.ended).toMatchObject({ exitCode: 0, lost: null });
    await expect(stat(will)).rejects.toMatchObject({ code: "ENOENT" });
  });

  it("gives all that a dying shell wrote, up to bytes that could have begun a frame", async () => {
    const { worker, call } = await openRig(shell);
    const end = await call("printf 'last\\000'; kill -9 $$");
    expect(end).toMatchObject({ kind: "died", signal: "SIGKILL", output: "last\0" });
    await worker.close();
  });

  it.each([
    ["merged", false],
    ["apart", true],
  ] as const)(
    "hears of a plain command's end before its shell does, with streams %s",
    async (_title, separate) => {
      const { worker, call } = await openRig(shell);
      const fifo = `${tmpdir()}/${token()}`;
      await call(`mkfifo ${fifo}`);
      for (const round of ["first", "next"]) {
        const running = call(`cat ${fifo} /nowhere`, separate, null, emptyState("/"), true);
        await until(async () => (await carriers(worker.id)).length === 3, "the command runs");
        // The shell around it does nothing until it is told to.
        process.kill(worker.facts.pid, "SIGSTOP");
        await writeFile(fifo, `${round}\n`);
        const end = await running;
        process.kill(worker.facts.pid, "SIGCONT");
        expect(end).toMatchObject({ kind: "ended", exitCode: 1, restored: true });
        expect(end.output).toMatch(new RegExp(`^${round}\ncat: .*/nowhere.*\n$`));
      }
      expect(await call("echo usual; exit 4", separate)).toMatchObject({ exitCode: 4, output: "usual\n" });
      await rm(fifo);
      await worker.close();
    },
  );

  it("hears of a plain command's end from the shell when the subshell was killed", async () => {
    const { worker, call } = await openRig(shell);
    const running = call("sleep 1000", false, null, emptyState("/"), true);
    await until(async () => (await carriers(worker.id)).length === 3, "the command runs");
    for (const pid of await carriers(worker.id)) if (pid !== worker.facts.pid) process.kill(pid, "SIGKILL");
    expect(await running).toMatchObject({ kind: "ended", exitCode: 137, restored: true, output: "" });
    expect(await call("echo next")).toMatchObject({ kind: "ended", output: "next\n" });
    await worker.close();
  });

  it("takes a large stdin exactly where dd cannot count bytes", async () => {
    const folder = await mkdtemp(`${tmpdir()}/moorage-worker-`);
    await writeFile(`${folder}/dd`, '#!/bin/sh\necho used >>"${0%/*}/told"; exit 1\n', { mode: 0o755 });
    const { worker, call } = await openRig(shell, `${folder}:${process.env.PATH}`);
    const stdin = Buffer.alloc(3_000_001, "0123456789\n");
    const digest = `${createHash("sha256").update(stdin).digest("hex")}  -\n`;
    expect(await call("sha256sum", false, stdin)).toMatchObject({ kind: "ended", output: digest });
    expect(await call("echo next")).toMatchObject({ kind: "ended", output: "next\n" });
    expect(await readFile(`${folder}/told`, "utf8")).toBe("used\n");
    await worker.close();
    await rm(folder, { recursive: true });
  });

  it("runs nothing of a stdin the reader of which was ended", async () => {
    const { worker, stream, call } = await openRig(shell);
    const file = `${tmpdir()}/${token()}`;
    const running = call("sleep 1000", false, Buffer.from(`: >${file}\n`.repeat(50_000)));
    await until(async () => (await carriers(worker.id)).length > 2, "the command runs");
    for (const pid of await carriers(worker.id)) if (pid !== worker.shellPid) process.kill(pid, "SIGKILL");
    expect(await running).toMatchObject({ kind: "ended", exitCode: 137 });
    expect(await stream.ended).toMatchObject({ exitCode: PLACE_LOST, lost: null });
    expect(existsSync(file)).toBe(false);
  });

  it("finds the child of an orphan that ended before it was looked at", async () => {
    const { worker, call } = await openRig(shell);
    await using system = await createSpawnSystemShell(shell === "bash" ? "bash" : "dash");
    const end = await call("(sleep 1000; :) & :");
    await until(async () => (await carriers(worker.id)).length === 3, "the orphan has its child");
    // Somebody else's may have been adopted at the same time.
    const own = await carriers(worker.id);
    const gone = end.newOrphans.find((pid) => own.includes(pid));
    if (gone === undefined) throw new Error("No orphan of the call was told");
    // Its `sleep` is adopted in its place.
    process.kill(gone, "SIGKILL");
    await until(async () => !(await carriers(worker.id)).includes(gone), "the orphan is gone");
    const found = await ownedOrphans(system, worker, end);
    expect(found).toHaveLength(1);
    expect(found).not.toContain(gone);
    for (const pid of found) process.kill(pid, "SIGKILL");
    await worker.close();
  });
});

describe("a worker whose next subshell is forked ahead", () => {
  /** One that a shell is told before its call, which no subshell that waits already knows. */
  const LONG_STATE = { ...emptyState("/"), variables: new Map([["LONG", "x".repeat(10_000)]]) };

  /** Process id of the subshell that waits. */
  async function waiting({ worker }: Rig): Promise<number> {
    worker.prepare();
    let found: number | undefined;
    await until(async () => {
      found = (await carriers(worker.id)).find((pid) => pid !== worker.shellPid);
      return found !== undefined;
    }, "a subshell waits");
    if (found === undefined) throw new Error("No subshell waits");
    return found;
  }

  it("runs a call in it as in any other, and none in a shell that was told to wait twice", async () => {
    const rig = await openRig("bash");
    const pid = await waiting(rig);
    rig.worker.prepare();
    expect(await rig.call("echo $BASHPID $LINENO; cat; exit 3")).toMatchObject({
      output: `${pid} 1\n`,
      exitCode: 3,
    });
    await waiting(rig);
    expect(await rig.call("cat", false, Buffer.from("in"))).toMatchObject({ output: "in", exitCode: 0 });
    await rig.worker.close();
    expect(await carriers(rig.worker.id)).toEqual([]);
  });

  it.each([false, true])(
    "tells the state after a command that ends in an exit, with streams apart: %s",
    async (separate) => {
      const rig = await openRig("bash");
      await waiting(rig);
      const end = await rig.worker.run({
        command: "cd /usr; export KEPT=1; exit 3",
        cwd: "/",
        cwdRequired: false,
        state: emptyState("/"),
        env: new Map(),
        stdin: null,
        separate,
        dump: true,
        onData: () => {},
      });
      expect(end).toMatchObject({ kind: "ended", exitCode: 3 });
      expect(end.dump?.variables.get("PWD")).toBe("/usr");
      expect(end.dump?.variables.get("KEPT")).toBe("1");
      await rig.worker.close();
    },
  );

  it("goes on without one that was ended while it waited", async () => {
    const rig = await openRig("bash");
    process.kill(await waiting(rig), "SIGKILL");
    await until(async () => (await carriers(rig.worker.id)).length === 1, "only the shell is left");
    await until(async () => {
      const end = await rig.call("echo on");
      return end.kind === "ended" && end.output === "on\n";
    }, "the shell runs the next call");
    await rig.worker.close();
  });

  it.each([
    ["a line of any kind", "exit", false],
    ["a plain one", "true", true],
    ["a plain one that is not read at once", `echo ${"x".repeat(1_000)}`, true],
  ])("proves that a call did not run whose subshell was ended before: %s", async (_title, rest, isPlain) => {
    const rig = await openRig("bash");
    const pid = await waiting(rig);
    rig.hold();
    process.kill(pid, "SIGKILL");
    await until(async () => (await carriers(rig.worker.id)).length === 1, "only the shell is left");
    const file = `${tmpdir()}/${token()}`;
    const missed = rig.call(`echo >${file}; ${rest}`, false, null, emptyState("/"), isPlain);
    rig.letGo();
    expect(await missed).toMatchObject({ kind: "lost", begun: false, output: "" });
    expect(existsSync(file)).toBe(false);
    expect(await rig.call("echo next")).toMatchObject({ kind: "ended", output: "next\n" });
    await waiting(rig);
    expect(await rig.call("echo last", false, null, emptyState("/"), true)).toMatchObject({
      kind: "ended",
      output: "last\n",
    });
    await rig.worker.close();
  });

  it("tells the end of a plain line whose subshell was ended in its middle, and runs it once", async () => {
    const rig = await openRig("bash");
    await waiting(rig);
    const file = `${tmpdir()}/${token()}`;
    const end = await rig.call(
      `sh -c 'echo ran | tee -a ${file}; kill -9 $PPID; sleep 0.1'; echo never`,
      false,
      null,
      emptyState("/"),
      true,
    );
    expect(end).toMatchObject({ kind: "ended", restored: true, begun: true, exitCode: 137, output: "ran\n" });
    expect(await readFile(file, "utf8")).toBe("ran\n");
    await rm(file);
    await waiting(rig);
    expect(await rig.call("echo on", false, null, emptyState("/"), true)).toMatchObject({ output: "on\n" });
    await rig.worker.close();
  });

  it.each([
    ["echo out; echo err >&2; false", 1, "out\n", "err\n"],
    ["echo err >&2; printf out", 0, "out", "err\n"],
    ["echo err >&2; exit 90", 90, "", "err\n"],
    ["exec sh -c 'echo out; echo err >&2; exit 3'", 3, "out\n", "err\n"],
    ["echo out; echo err >&2; kill -9 $BASHPID", 137, "out\n", "err\n"],
    [
      "head -c 300000 /dev/zero | tr '\\0' o; head -c 300000 /dev/zero | tr '\\0' e >&2",
      0,
      "o".repeat(300_000),
      "e".repeat(300_000),
    ],
  ])("gives both streams of a script of ours whole: %s", async (script, exitCode, out, err) => {
    const rig = await openRig("bash");
    for (const isReady of [true, false, true]) {
      if (isReady) await waiting(rig);
      const { end, said } = await runOurs(rig, script);
      expect(end).toMatchObject({ kind: "ended", begun: true, exitCode });
      expect(said).toEqual({ stdout: out, stderr: err });
    }
    await rig.worker.close();
  });

  it.each(["stdout", "stderr"] as const)(
    "takes nothing for a script's that the one before it left on its way, with %s late",
    async (late) => {
      const rig = await openRig("bash", undefined, late);
      for (let turn = 0; turn < 4; turn += 1) {
        rig.worker.prepare();
        const { end, said } = await runOurs(rig, "echo out; echo err >&2");
        expect(end).toMatchObject({ kind: "ended", exitCode: 0 });
        expect(said).toEqual({ stdout: "out\n", stderr: "err\n" });
      }
      await rig.worker.close();
    },
  );

  it("proves that a script of ours did not run whose subshell was ended before", async () => {
    const rig = await openRig("bash");
    const pid = await waiting(rig);
    rig.hold();
    process.kill(pid, "SIGKILL");
    await until(async () => (await carriers(rig.worker.id)).length === 1, "only the shell is left");
    const file = `${tmpdir()}/${token()}`;
    const missed = runOurs(rig, `echo >${file}; echo out; echo err >&2`);
    rig.letGo();
    expect(await missed).toMatchObject({
      end: { kind: "lost", begun: false },
      said: { stdout: "", stderr: "" },
    });
    expect(existsSync(file)).toBe(false);
    await waiting(rig);
    expect(await runOurs(rig, "echo next")).toMatchObject({
      end: { exitCode: 0 },
      said: { stdout: "next\n" },
    });
    await rig.worker.close();
  });

  it("reads a plain line of any length and any bytes", async () => {
    const rig = await openRig("bash");
    for (const word of ["short", "x".repeat(440), "x".repeat(600), "x".repeat(70_000), "h\xc3\xa9", "\xff"]) {
      await waiting(rig);
      const end = await rig.call(`echo ${word}\necho $LINENO`, false, null, emptyState("/"), true);
      const output = `${Buffer.from(word, "latin1").toString()}\n2\n`;
      expect(end).toMatchObject({ kind: "ended", exitCode: 0, output });
    }
    await rig.worker.close();
  });

  it.each([true, false])("has the variables of its own call alone, in a plain line: %s", async (isPlain) => {
    const rig = await openRig("bash");
    const base = (await rig.call("echo $PATH")).output;
    const stateOf = (variables: Record<string, string | null>): ShellState => ({
      ...emptyState("/"),
      variables: new Map(Object.entries(variables)),
    });
    const path = `/nowhere:${base.trim()}`;
    const gone = { ...LONG_STATE, variables: new Map([...LONG_STATE.variables, ["C", "3"]]) };
    const calls: readonly (readonly [ShellState, string])[] = [
      [stateOf({ A: "1", PATH: path }), `1..:${path}\n`],
      [stateOf({ A: "1", PATH: path }), `1..:${path}\n`],
      [stateOf({ A: "2", B: "b", PATH: null }), "2.b.:\n"],
      [stateOf({ B: "b", TMOUT: "1", IFS: "x" }), `.b.:${base}`],
      [stateOf({ A: "4" }), `4..:${base}`],
      [gone, `..3:${base}`],
      [stateOf({}), `..:${base}`],
    ];
    for (const [state, output] of calls) {
      await waiting(rig);
      const end = await rig.call('echo "$A.$B.$C:$PATH"', false, null, state, isPlain);
      expect(end).toMatchObject({ kind: "ended", exitCode: 0, output });
    }
    await rig.worker.close();
  });

  it("shows nothing of ours to a command", async () => {
    const rig = await openRig("bash");
    await waiting(rig);
    const look = "declare -F; compgen -v | grep moor; echo $OLDPWD $#";
    const end = await rig.call(look);
    expect(end).toMatchObject({ output: "0\n" });
    await rig.worker.close();
  });

  it.each([false, true])(
    "runs nothing of a text in the middle of which its subshell was ended, plain: %s",
    async (isPlain) => {
      const rig = await openRig("bash");
      const pid = await waiting(rig);
      // What the shell writes stays on its way, so that nobody answers it.
      rig.hold();
      const file = `${tmpdir()}/${token()}`;
      rig.stream.stdin.write("1000\nthe first half");
      process.kill(pid, "SIGKILL");
      await until(async () => (await carriers(rig.worker.id)).length < 2, "the subshell is gone");
      rig.stream.stdin.write("and the rest of it");
      const call = rig.call(`echo >${file}`, false, null, isPlain ? emptyState("/") : LONG_STATE, isPlain);
      expect(await rig.stream.ended).toMatchObject({ exitCode: PLACE_LOST, lost: null });
      rig.letGo();
      expect(await call).toMatchObject({ kind: "lost", begun: false, output: "" });
      expect(existsSync(file)).toBe(false);
    },
  );

  it("leaves it when the call brings a state that the shell does not have yet", async () => {
    const rig = await openRig("bash");
    for (const _ of ["told", "kept"]) {
      await waiting(rig);
      const end = await rig.call("echo ${#LONG}", false, null, LONG_STATE);
      expect(end).toMatchObject({ kind: "ended", output: "10000\n", exitCode: 0 });
    }
    await rig.worker.close();
    expect(await carriers(rig.worker.id)).toEqual([]);
  });
});

async function spawnAndWait(script: string): Promise<number | null> {
  const stream = await spawnStream({
    argv: ["sh", "-c", script],
    env: { PATH: process.env.PATH ?? "/usr/bin:/bin" },
    cwd: "/",
  });
  const { exitCode } = await stream.ended;
  await stream.close();
  return exitCode;
}
