/**
 * One command from its options to its result: a worker is taken, the call is run, watched (timeout, abort, yield),
 * its tree ended when it must be, and what it left behind is told.
 */

import { MoorageError, toMoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { shellLines } from "../../src/line-ends.ts";
import type { Command, ExecOptions, ExecResult, LeftProcess } from "../base.ts";
import { CallOutput } from "./call-output.ts";
import type { StateDump } from "./exports.ts";
import { type Interruption, watchInterruptions } from "./interruption.ts";
import type { OutputStore, Spill } from "./outputs.ts";
import { NOTHING_LEFT, noReason, notEnded, type SettleHost, settle } from "./settle.ts";
import { signalExitCode } from "./signals.ts";
import { fromBytes, type ShellState, toBytes } from "./state.ts";
import type { Stop } from "./stop.ts";
import type { CallEnd, CallWorker } from "./worker.ts";
import { cwdAfter, isKernelFolder, resolveCwd, workdirError } from "./working-directory.ts";

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
export interface RunnerHost extends SettleHost {
  readonly outputs: OutputStore;
  /** Brings the environment up and gives a worker of the pool, with notes when the place had to be made again. */
  acquire(options: {
    readonly anyShell: boolean;
  }): Promise<{ readonly worker: CallWorker; readonly notes: readonly string[] }>;
  /** Has the next result tell what a call that was given up meanwhile would have told. */
  keepNotes(notes: readonly string[]): void;
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

/** Several shells that wait may be ended at once, by a `pkill` in another session say. */
const MAX_MISSES = 5;

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

/**
 * @throws {MoorageError} ENVIRONMENT_*, EXECUTION_UNKNOWN, EXECUTION_REFUSED, WORKDIR_MISSING
 */
export async function runCommand(host: RunnerHost, request: RunRequest): Promise<RunOutcome> {
  const { options, state } = request;
  const command = typeof request.command === "string" ? shellLines(request.command) : request.command;
  const requiredCwd = options.cwd === undefined ? null : resolveCwd(options.cwd, request.base, request.home);
  if (requiredCwd !== null && isKernelFolder(requiredCwd)) throw workdirError("kernel", options.cwd ?? "");
  await host.outputs.prepare();
  const startedAt = performance.now();
  const env = new Map(
    Object.entries(options.env ?? {}).map(([name, value]) => [name, toBytes(value)] as const),
  );
  const stdin = typeof options.stdin === "string" ? Buffer.from(options.stdin, "utf8") : options.stdin;
  const watcher = watchInterruptions(options, request.stops);
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
      const output = new CallOutput(options, host.outputs);
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
        onData: (stream, chunk) => output.push(stream, chunk),
      });
      const first = await Promise.race([running, watcher.fired]);

      if (first === "yield") {
        const processId = await goOn(host, {
          worker,
          output,
          running,
          command: typeof command === "string" ? command : command.join(" "),
          cwd: fromBytes(requiredCwd ?? state.cwd),
        });
        const result: ExecResult = {
          ...abortedResult(fromBytes(state.cwd)),
          aborted: false,
          ...output.read(),
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
          await output.finish();
          throw notEnded(error, output.read().output);
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
      if (typeof first !== "string") await output.delivered();
      await output.finish();
      const settled = typeof first === "string" && stdin ? NOTHING_LEFT : await settle(host, worker, end);
      if (end.kind === "lost" && typeof first !== "string") {
        throw new MoorageError(
          end.begun ? "EXECUTION_UNKNOWN" : "ENVIRONMENT_UNAVAILABLE",
          `Cannot tell how the command ended: ${end.lost?.message ?? "the connection broke"}`,
          { cause: end.lost, details: { output: output.read().output, cause: end.lost?.code } },
        );
      }
      if (end.kind === "ended" && !end.restored && !end.workdirProblem && typeof first !== "string") {
        throw new MoorageError("INTERNAL", "Cannot bring the session's variables and functions back", {
          details: { unrestored: true },
        });
      }
      if (end.workdirProblem) throw workdirError(end.workdirProblem, options.cwd ?? fromBytes(state.cwd));
      if (output.listenerError)
        throw toMoorageError(output.listenerError, "INTERNAL", "Cannot deliver output");
      if (end.movedTo) {
        notes.push(
          `The working directory ${fromBytes(state.cwd)} is gone; the command ran in ${fromBytes(end.movedTo)}`,
        );
      }
      if (output.spillFailure) notes.push(`The full output could not be kept: ${output.spillFailure}`);
      const exitCode = end.exitCode ?? (end.signal ? signalExitCode(end.signal) : null);
      const stopped = typeof first === "string";
      if (exitCode === null && !stopped) {
        throw new MoorageError(
          "EXECUTION_UNKNOWN",
          "Cannot tell how the command ended: its shell ended, and nobody told how",
          { details: { output: output.read().output } },
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
        ...output.read(),
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

/** Has the command go on as a background process. @returns the process's id */
async function goOn(
  host: RunnerHost,
  {
    output,
    running,
    ...described
  }: Pick<YieldedCommand, "command" | "cwd" | "worker"> & {
    readonly output: CallOutput;
    readonly running: Promise<CallEnd>;
  },
): Promise<string> {
  const { worker } = described;
  const spill = output.spillAll();
  spill.limitTo(limits.processLogMaxBytes);
  await spill.opened;
  const actions = new Set<Promise<unknown>>();
  let over = false;
  const end = running.then(async (ended) => {
    await output.finish();
    while (actions.size > 0) await Promise.allSettled(actions);
    over = true;
    host.keepNotes((await settle(host, worker, ended)).notes);
    return ended;
  });
  return host.adopt({
    ...described,
    spill,
    end,
    withWorker: async (action) => {
      if (over) return null;
      const acting = action(worker);
      actions.add(acting);
      return await acting.finally(() => actions.delete(acting));
    },
  });
}
