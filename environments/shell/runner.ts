/**
 * One command from its options to its result: a worker is taken, the call is run, watched (timeout, abort, yield),
 * its tree ended when it must be, and what it left behind is told.
 */

import { constants } from "node:os";
import { isAbsolute, normalize } from "node:path/posix";
import { MoorageError, toMoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { shellLines } from "../../src/line-ends.ts";
import type {
  Command,
  ExecOptions,
  ExecResult,
  LeftProcess,
  OutputStream,
  Truncation,
  WaitCondition,
} from "../base.ts";
import { Capture } from "./capture.ts";
import { folderOf, type StateDump } from "./exports.ts";
import type { OutputStore, Spill } from "./outputs.ts";
import type { WorkerPool } from "./pool.ts";
import { NOTHING_LEFT, noReason, notEnded, settle } from "./settle.ts";
import { fromBytes, type ShellState, toBytes } from "./state.ts";
import type { Stop } from "./stop.ts";
import type { CallEnd, CallWorker } from "./worker.ts";

/** A command that goes on after its call returned. */
export interface YieldedCommand {
  readonly command: string;
  readonly cwd: string;
  readonly worker: CallWorker;
  readonly spill: Spill;
  /** Resolves with how it ended; never rejects. */
  readonly end: Promise<CallEnd>;
  /**
   * Runs `action`, which looks for the command's processes by its worker; until it is done the worker is given to no
   * other call, whose processes would be found too. Null when the command is over.
   */
  withWorker<Result>(action: (worker: CallWorker) => Promise<Result>): Promise<Result | null>;
}

/** What the runner needs of its environment. */
export interface RunnerHost {
  readonly pool: WorkerPool;
  readonly outputs: OutputStore;
  /** Brings the environment up and gives a worker of the pool, with notes when the place had to be made again. */
  acquire(options: {
    readonly anyShell: boolean;
  }): Promise<{ readonly worker: CallWorker; readonly notes: readonly string[] }>;
  /** Has the next result tell what a call that was given up meanwhile would have told. */
  keepNotes(notes: readonly string[]): void;
  /** Ends all processes of the worker's call, and says what survived. */
  endTree(worker: CallWorker): Promise<readonly LeftProcess[]>;
  /** Which of the processes that were adopted during a call belong to the worker, with all that they started. */
  leftBehind(worker: CallWorker, end: CallEnd): Promise<readonly LeftProcess[]>;
  /** Resolves when the worker's processes are gone. */
  gone(worker: CallWorker): Promise<void>;
  adopt(yielded: YieldedCommand): string;
  explainExit(exitCode: number, startedAt: number): Promise<string | null>;
  refusalsSince(startedAt: number): readonly string[];
  /** What requests of our own met, to be told with a result; each is given once. */
  takeNotes(): readonly string[];
}

export interface RunRequest {
  readonly command: Command;
  readonly options: ExecOptions;
  readonly state: ShellState;
  /** Absolute folder to which `options.cwd` is relative. */
  readonly base: string;
  readonly home: string;
  readonly dump: boolean;
  /** Whether the command is one by `isPlain`. @default false */
  readonly plain?: boolean;
  /** Abort the call, beside `options.abortSignal`. */
  readonly stops: readonly Stop[];
}

export interface RunOutcome {
  readonly result: ExecResult;
  /** What the shell printed at the end; null when there is nothing to keep. */
  readonly dump: StateDump | null;
  /** Null when the call ended before it had one. */
  readonly worker: CallWorker | null;
  /** Folder used because the session's is gone, one byte a character; null otherwise. */
  readonly movedTo: string | null;
}

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** @throws {MoorageError} what `fail` makes, by default INVALID_ARGUMENTS, naming the variable that cannot be set */
export function checkVariables(env: Readonly<Record<string, string>>, fail = invalid): void {
  for (const [name, value] of Object.entries(env)) {
    if (!NAME.test(name)) throw fail(`"${name}" is no variable name`);
    if (value.includes("\0")) throw fail(`variable "${name}" holds a NUL byte`);
  }
}

/** @throws {MoorageError} INVALID_ARGUMENTS unless it is a whole number from `min` on */
export function checkWhole(name: string, value: number, min: number): void {
  if (!Number.isSafeInteger(value) || value < min) {
    throw invalid(
      `${name} must be a whole number${Number.isFinite(min) ? ` from ${min} on` : ""}, not ${value}`,
    );
  }
}

/** @throws {MoorageError} INVALID_ARGUMENTS for a part of a log that cannot be meant */
export function checkSlice({
  offset,
  maxBytes,
}: {
  readonly offset?: number;
  readonly maxBytes?: number;
}): void {
  if (offset !== undefined) checkWhole("offset", offset, Number.NEGATIVE_INFINITY);
  if (maxBytes !== undefined) checkWhole("maxBytes", maxBytes, 1);
}

/** @throws {MoorageError} INVALID_ARGUMENTS for a condition that cannot come true */
export function checkCondition({ port, timeoutMs }: WaitCondition): void {
  if (port !== undefined && !(Number.isInteger(port) && port > 0 && port < 65_536))
    throw invalid(`port must be between 1 and 65535, not ${port}`);
  if (timeoutMs !== undefined && !(timeoutMs >= 0))
    throw invalid(`timeoutMs must not be negative, but is ${timeoutMs}`);
}

/** Without its `SIG`. @throws {MoorageError} INVALID_ARGUMENTS when there is no signal of that name */
export function signalName(signal: string): string {
  const name = signal.toUpperCase().replace(/^SIG/, "");
  if (`SIG${name}` in constants.signals) return name;
  throw new MoorageError("INVALID_ARGUMENTS", `Cannot send "${signal}": it is not a POSIX signal`);
}

function invalid(message: string): MoorageError {
  return new MoorageError("INVALID_ARGUMENTS", `Cannot use these options: ${message}`);
}

function refuse(message: string): MoorageError {
  return new MoorageError("EXECUTION_REFUSED", `Cannot run the command: ${message}`);
}

/** @throws {MoorageError} EXECUTION_REFUSED naming what is wrong */
export function checkCommand(command: Command): void {
  const words = typeof command === "string" ? [command] : command;
  if (words.length === 0) throw refuse("the argument list is empty");
  if (words.some((word) => word.includes("\0"))) throw refuse("it holds a NUL byte");
  const bytes = words.reduce((sum, word) => sum + Buffer.byteLength(word) + 1, 0);
  if (bytes > limits.commandMaxBytes)
    throw refuse(`it has ${bytes} bytes, the limit is ${limits.commandMaxBytes}`);
  if (typeof command !== "string" && (command[0] === "" || command[0]?.startsWith("-"))) {
    throw refuse(`"${command[0]}" is no program name`);
  }
}

/** @throws {MoorageError} EXECUTION_REFUSED or INVALID_ARGUMENTS naming what is wrong */
export function checkOptions(options: ExecOptions): void {
  checkVariables(options.env ?? {}, refuse);
  if (options.cwd?.includes("\0")) throw refuse("the working directory holds a NUL byte");
  for (const name of ["timeoutMs", "yieldMs"] as const) {
    const value = options[name];
    if (value !== undefined && !(value > 0)) throw invalid(`${name} must be positive, not ${value}`);
  }
  if (options.captureBytes !== undefined) checkWhole("captureBytes", options.captureBytes, 1);
  const stdinBytes =
    typeof options.stdin === "string" ? Buffer.byteLength(options.stdin) : (options.stdin?.byteLength ?? 0);
  if (stdinBytes > limits.stdinMaxBytes) {
    throw refuse(`standard input has ${stdinBytes} bytes, the limit is ${limits.stdinMaxBytes}`);
  }
}

/** Absolute form of a working directory as a caller may write it. */
export function resolveCwd(cwd: string, base: string, home: string): string {
  const expanded = cwd === "~" ? home : cwd.startsWith("~/") ? `${home}/${cwd.slice(2)}` : cwd;
  return isAbsolute(expanded) ? expanded : `${base === "/" ? "" : base}/${expanded}`;
}

const KERNEL_FOLDERS = /^\/(?:proc|sys|dev\/fd)(?:\/|$)/;

function workdirError(problem: "missing" | "kernel", cwd: string): MoorageError {
  return problem === "kernel"
    ? refuse(`"${cwd}" is a folder of the kernel's`)
    : new MoorageError(
        "WORKDIR_MISSING",
        `Cannot enter "${cwd}": there is no such folder, or it may not be entered`,
      );
}

/** Which exit code a shell would give for a program that this signal ended. */
export function signalExitCode(signal: string): number | null {
  const number = Object.entries(constants.signals).find(([name]) => name === signal)?.[1];
  return number === undefined ? null : 128 + number;
}

/** Several shells that wait may be ended at once, by a `pkill` in another session say. */
const MAX_MISSES = 5;

type Interruption = "timeout" | "abort" | "yield";

/** Fires once, for the first reason that comes. */
function watch(
  options: ExecOptions,
  stops: readonly Stop[],
): {
  readonly fired: Promise<Interruption>;
  readonly dispose: () => void;
} {
  const disposers: (() => void)[] = [];
  const fired = new Promise<Interruption>((resolve) => {
    const after = (ms: number | undefined, reason: Interruption) => {
      // Node's timers hold 31 bits; a longer wait is no wait that anybody measures.
      if (ms === undefined || ms > 2 ** 31 - 1) return;
      const timer = setTimeout(() => resolve(reason), ms);
      disposers.push(() => clearTimeout(timer));
    };
    const on = (abortSignal: AbortSignal | undefined, reason: Interruption) => {
      if (!abortSignal) return;
      const listener = () => resolve(reason);
      if (abortSignal.aborted) listener();
      abortSignal.addEventListener("abort", listener, { once: true });
      disposers.push(() => abortSignal.removeEventListener("abort", listener));
    };
    on(options.abortSignal, "abort");
    for (const stop of stops) disposers.push(stop.onStop(() => resolve("abort")));
    on(options.yieldSignal, "yield");
    after(options.timeoutMs, "timeout");
    after(options.yieldMs, "yield");
  });
  return { fired, dispose: () => disposers.forEach((dispose) => void dispose()) };
}

function wait(ms: number): Promise<"late"> {
  return new Promise((resolve) => {
    setTimeout(() => resolve("late"), ms);
  });
}

/** A result for a call that was cancelled before anything ran. */
export function abortedResult(cwd: string): ExecResult {
  return {
    exitCode: null,
    signal: null,
    timedOut: false,
    aborted: true,
    output: "",
    stdout: "",
    stderr: "",
    truncated: {},
    outputId: null,
    cwd,
    durationMs: 0,
    leftRunning: [],
    survivors: [],
    processId: null,
    notes: [],
  };
}

/** Of a call whose session stays as it was. */
function nothingKept(result: ExecResult, worker: CallWorker | null): RunOutcome {
  return { result, dump: null, worker, movedTo: null };
}

/** The captures of one call, by the name under which a result has them. */
class Captures {
  readonly #captures: Partial<Record<OutputStream, Capture>>;
  readonly #separate: boolean;
  #spill: Spill | null = null;
  readonly #outputs: OutputStore;
  #closed = false;

  constructor(options: ExecOptions, outputs: OutputStore) {
    this.#separate = options.output === "separate";
    this.#outputs = outputs;
    const captureBytes = options.captureBytes ?? limits.captureHeadBytes + limits.captureTailBytes;
    const make = () => new Capture({ captureBytes, spill: () => this.#makeSpill() });
    this.#captures = this.#separate ? { stdout: make(), stderr: make() } : { output: make() };
  }

  push(stream: "stdout" | "stderr", chunk: Buffer): void | Promise<void> {
    return this.#captures[this.#separate ? stream : "output"]?.push(chunk);
  }

  /** Everything, what came and what comes, goes to the spill too. */
  spillAll(): Spill {
    for (const capture of Object.values(this.#captures)) capture.startSpill();
    return this.#makeSpill();
  }

  async finish(): Promise<void> {
    this.#closed = true;
    await this.#spill?.close();
  }

  read(): Pick<ExecResult, "output" | "stdout" | "stderr" | "truncated" | "outputId"> {
    const texts: Record<OutputStream, string> = { output: "", stdout: "", stderr: "" };
    const truncated: Partial<Record<OutputStream, Truncation>> = {};
    for (const name of ["output", "stdout", "stderr"] as const) {
      const read = this.#captures[name]?.read();
      if (!read) continue;
      texts[name] = read.text;
      if (read.truncated) truncated[name] = read.truncated;
    }
    return { ...texts, truncated, outputId: this.#spill?.id ?? null };
  }

  get spillFailure(): string | null {
    return this.#spill?.failure && this.#closed ? this.#spill.failure.message : null;
  }

  /** Both streams of a separate call share one file, in the order in which they came. */
  #makeSpill(): Spill {
    this.#spill ??= this.#outputs.create();
    return this.#spill;
  }
}

/**
 * @throws {MoorageError} ENVIRONMENT_*, EXECUTION_UNKNOWN, EXECUTION_REFUSED, WORKDIR_MISSING
 */
export async function runCommand(host: RunnerHost, request: RunRequest): Promise<RunOutcome> {
  const { options, state } = request;
  const command = typeof request.command === "string" ? shellLines(request.command) : request.command;
  const requiredCwd = options.cwd === undefined ? null : resolveCwd(options.cwd, request.base, request.home);
  if (requiredCwd !== null && KERNEL_FOLDERS.test(normalize(requiredCwd)))
    throw workdirError("kernel", options.cwd ?? "");
  await host.outputs.prepare();
  const startedAt = performance.now();
  const env = new Map(
    Object.entries(options.env ?? {}).map(([name, value]) => [name, toBytes(value)] as const),
  );
  const stdin = typeof options.stdin === "string" ? Buffer.from(options.stdin, "utf8") : options.stdin;
  const watcher = watch(options, request.stops);
  const notes: string[] = [];
  try {
    for (let attempt = 1; ; attempt += 1) {
      const acquired = await acquireUnlessStopped(host, request.plain ?? false, watcher.fired);
      if (typeof acquired === "string") {
        const result = { ...abortedResult(fromBytes(state.cwd)), aborted: false, [acquired]: true, notes };
        return nothingKept({ ...result, durationMs: performance.now() - startedAt }, null);
      }
      notes.push(...acquired.notes);
      const { worker } = acquired;
      if (options.abortSignal?.aborted || request.stops.some(({ stopped }) => stopped)) {
        host.pool.release(worker);
        return nothingKept({ ...abortedResult(fromBytes(state.cwd)), notes }, worker);
      }
      const captures = new Captures(options, host.outputs);
      let listenerError: unknown = null;
      const listening = new Set<Promise<void>>();
      const running = worker.run({
        command: typeof command === "string" ? toBytes(command) : command.map(toBytes),
        cwd: requiredCwd === null ? state.cwd : toBytes(requiredCwd),
        cwdRequired: requiredCwd !== null,
        state,
        env,
        stdin: stdin && stdin.byteLength > 0 ? stdin : null,
        separate: options.output === "separate",
        dump: request.dump,
        plain: request.plain ?? false,
        onData: (stream, chunk) => {
          const held = captures.push(stream, chunk);
          if (!options.onOutput) return held;
          const name = options.output === "separate" ? stream : "output";
          const fail = (error: unknown) => {
            listenerError ??= error;
          };
          const hear = () => {
            try {
              return options.onOutput?.({ stream: name, data: chunk });
            } catch (error) {
              return fail(error);
            }
          };
          const answer = hear();
          // Only a listener that takes its time holds the source back: to stop and start it costs more than a chunk.
          if (!answer) return held;
          const heard = Promise.resolve(answer).catch(fail);
          listening.add(heard);
          void heard.then(() => listening.delete(heard));
          return held ? Promise.all([held, heard]).then(() => undefined) : heard;
        },
      });
      const first = await Promise.race([running, watcher.fired]);

      if (first === "yield") {
        const spill = captures.spillAll();
        spill.limitTo(limits.processLogMaxBytes);
        await spill.opened;
        const actions = new Set<Promise<unknown>>();
        let over = false;
        const end = running.then(async (ended) => {
          await captures.finish();
          while (actions.size > 0) await Promise.allSettled(actions);
          over = true;
          host.keepNotes((await settle(host, worker, ended)).notes);
          return ended;
        });
        const processId = host.adopt({
          command: typeof command === "string" ? command : command.join(" "),
          cwd: fromBytes(requiredCwd ?? state.cwd),
          worker,
          spill,
          end,
          withWorker: async (action) => {
            if (over) return null;
            const acting = action(worker);
            actions.add(acting);
            return await acting.finally(() => actions.delete(acting));
          },
        });
        const result: ExecResult = {
          ...abortedResult(fromBytes(state.cwd)),
          aborted: false,
          ...captures.read(),
          durationMs: performance.now() - startedAt,
          processId,
          notes,
        };
        return nothingKept(result, worker);
      }

      let end: CallEnd | "late";
      let survivors: readonly LeftProcess[] = [];
      if (first === "timeout" || first === "abort") {
        try {
          survivors = await host.endTree(worker);
        } catch (error) {
          await host.pool.discard(worker);
          await captures.finish();
          throw notEnded(error, captures.read().output);
        }
        end = await Promise.race([running, wait(limits.killGraceMs)]);
        // After a cut standard input the shell may stand anywhere in it, and a shell that is silent is stuck.
        if (end === "late" || stdin) await host.pool.discard(worker);
        if (end === "late") end = await running;
      } else {
        end = first;
      }
      // The command itself begins after its session's state was brought back, which a signal to its shell can cut short.
      const isEndedEarly = end.kind === "ended" && !end.restored && (end.exitCode ?? 0) > 128;
      const isMissed = end.lost?.details.phase === "ready" || isEndedEarly;
      const isUnbegun = (end.kind === "lost" && !end.begun) || isEndedEarly;
      if (isUnbegun && attempt < (isMissed ? MAX_MISSES : 2) && typeof first !== "string") {
        await host.pool.discard(worker);
        continue;
      }
      // The last chunks too are delivered before the result; a call that was cut waits for no listener.
      if (typeof first !== "string") await Promise.all(listening);
      await captures.finish();
      const settled = typeof first === "string" && stdin ? NOTHING_LEFT : await settle(host, worker, end);
      if (end.kind === "lost" && typeof first !== "string") {
        throw new MoorageError(
          end.begun ? "EXECUTION_UNKNOWN" : "ENVIRONMENT_UNAVAILABLE",
          `Cannot tell how the command ended: ${end.lost?.message ?? "the connection broke"}`,
          { cause: end.lost, details: { output: captures.read().output, cause: end.lost?.code } },
        );
      }
      if (end.kind === "ended" && !end.restored && !end.workdirProblem && typeof first !== "string") {
        throw new MoorageError("INTERNAL", "Cannot bring the session's variables and functions back", {
          details: { unrestored: true },
        });
      }
      if (end.workdirProblem) throw workdirError(end.workdirProblem, options.cwd ?? fromBytes(state.cwd));
      if (listenerError) throw toMoorageError(listenerError, "INTERNAL", "Cannot deliver output");
      if (end.movedTo) {
        notes.push(
          `The working directory ${fromBytes(state.cwd)} is gone; the command ran in ${fromBytes(end.movedTo)}`,
        );
      }
      if (captures.spillFailure) notes.push(`The full output could not be kept: ${captures.spillFailure}`);
      const exitCode = end.exitCode ?? (end.signal ? signalExitCode(end.signal) : null);
      const stopped = typeof first === "string";
      if (exitCode === null && !stopped) {
        throw new MoorageError(
          "EXECUTION_UNKNOWN",
          "Cannot tell how the command ended: its shell ended, and nobody told how",
          { details: { output: captures.read().output } },
        );
      }
      if (exitCode !== null && exitCode > 128 && !stopped) {
        const why = await host.explainExit(exitCode, startedAt).catch(noReason);
        if (why) notes.push(why);
      }
      notes.push(...settled.notes, ...host.refusalsSince(startedAt), ...host.takeNotes());
      const result: ExecResult = {
        exitCode: stopped ? null : exitCode,
        signal: end.signal,
        timedOut: first === "timeout",
        aborted: first === "abort",
        ...captures.read(),
        cwd: cwdAfter(end, requiredCwd, state),
        durationMs: performance.now() - startedAt,
        leftRunning: settled.left,
        survivors,
        processId: null,
        notes,
      };
      return { result, dump: stopped ? null : end.dump, worker, movedTo: stopped ? null : end.movedTo };
    }
  } finally {
    watcher.dispose();
  }
}

/** A worker that comes too late goes back. */
async function acquireUnlessStopped(
  host: RunnerHost,
  anyShell: boolean,
  fired: Promise<Interruption>,
): Promise<Awaited<ReturnType<RunnerHost["acquire"]>> | "timedOut" | "aborted"> {
  const acquiring = host.acquire({ anyShell });
  const first = await Promise.race([acquiring, fired]);
  if (typeof first !== "string") return first;
  if (first === "yield") return await acquiring;
  void acquiring.then(
    ({ worker, notes }) => {
      host.keepNotes(notes);
      host.pool.release(worker);
    },
    // Nobody waits for this call any more; the next one meets the same failure.
    () => undefined,
  );
  return first === "timeout" ? "timedOut" : "aborted";
}

/** As the shell told it, else where the command began. */
function cwdAfter(end: CallEnd, requiredCwd: string | null, state: ShellState): string {
  const told = (end.dump && folderOf(end.dump)) ?? end.movedTo;
  if (told) return fromBytes(told);
  return requiredCwd === null ? fromBytes(state.cwd) : normalize(requiredCwd).replace(/(?<=.)\/$/, "");
}
