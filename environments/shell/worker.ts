/**
 * A resident shell at the end of one stream. It runs one call at a time, each in a forked subshell, and holds no
 * state of its own, so that any worker can run any session's next call. Bytes that arrive between calls belong to
 * processes that an earlier call left behind; they are read and dropped.
 */

import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { setDeadline } from "../deadline.ts";
import { drained } from "./drained.ts";
import { parseExports, parseState, type StateDump } from "./exports.ts";
import { createNonce, type Frame, FrameSplitter } from "./frames.ts";
import { parseHello, pidList, type WorkerFacts } from "./greeting.ts";
import { loginProblem } from "./login.ts";
import { FRAME, PLACE_LOST, type ShellKind } from "./phrases.ts";
import { canBring, droppedScript, leaveC, type Readied, readyScript, wireReady } from "./ready.ts";
import {
  afterwards,
  BASH_BOOT_ARGV,
  bootArgv,
  type CallScript,
  callScript,
  helloScript,
  wire,
} from "./script.ts";
import type { ShellStream, StreamEnd } from "./stream.ts";

export type CallRequest = Omit<
  CallScript,
  "shell" | "nonce" | "secret" | "reaper" | "stdinBytes" | "once" | "ready"
> & {
  readonly stdin: Uint8Array | null;
  /** Whether each piece of output is wanted when it is written, where that costs more. @default false */
  readonly live?: boolean;
  /** Bytes of the command. `stderr` only in a separate call. A promise holds that stream back. */
  readonly onData: (stream: "stdout" | "stderr", chunk: Buffer) => void | Promise<void>;
};

export interface CallEnd {
  /** `ended`: the command ended and the worker is fine. `died`: the worker's program ended. `lost`: the connection broke. */
  readonly kind: "ended" | "died" | "lost";
  readonly exitCode: number | null;
  readonly signal: string | null;
  /** Whether the shell may have begun with the call: false is a proof that nothing ran. */
  readonly begun: boolean;
  /** The state after the call; null when it was not wanted or the command had no chance to tell. */
  readonly dump: StateDump | null;
  /** Whether what the session keeps could be brought back; when not, the command did not run. */
  readonly restored: boolean;
  /** Why the asked folder could not be entered; the command did not run then. */
  readonly workdirProblem: "missing" | "kernel" | null;
  /** Folder used because the session's cwd is gone. */
  readonly movedTo: string | null;
  /** Processes that were adopted since the last call, ours or not. */
  readonly newOrphans: readonly number[];
  /** All that had been adopted by the call's end, ours or not. */
  readonly adopted: readonly number[];
  /** Those of the new ones that are known to be the call's. @default none */
  readonly ownOrphans?: readonly number[];
  readonly lost: MoorageError | null;
}

export interface WorkerOptions {
  readonly id: string;
  readonly shell: ShellKind | "auto";
  /** Shell functions defined once. */
  readonly library: string;
  /** Script that the shell runs when its stream ends without `close`. */
  readonly atLoss?: string;
  /** Script that the shell runs at `close`. */
  readonly atClose?: string;
  readonly login: boolean;
  /** @default nothing is known */
  readonly known?: KnownShells | undefined;
  readonly open: (
    argv: readonly string[],
    env: Readonly<Record<string, string>>,
    greeting: string,
  ) => Promise<ShellStream>;
}

/** What a place tells of its shells before one has answered, so that they need not find it out. */
export interface KnownShells {
  /** bash is found by its name, and no variable of `STARTUP_VARIABLES` is set. */
  readonly bash: boolean;
  /** Number of the process that adopts orphans. */
  readonly reaper: string;
  /** Descriptors that a shell is started with and that nobody needs. @default none */
  readonly unwanted?: readonly number[];
}

/** Name of the variable by which every process of a worker is found. */
export const WORKER_MARKER = "MOORAGE_WORKER";

/** How long the control stream waits unread at the start of a call, milliseconds. */
const CONTROL_PAUSE_MS = 4;

/** How long a new shell's greeting waits unread, milliseconds. */
const HELLO_PAUSE_MS = 20;

type Receiver = (stream: "stdout" | "stderr", chunk: Buffer) => void | Promise<void>;

function farewellOf({ atLoss, atClose }: WorkerOptions): string | null {
  const steps = [
    ...(atLoss === undefined ? [] : ["trap - EXIT"]),
    ...(atClose === undefined ? [] : [atClose]),
  ];
  return steps.length === 0 ? null : steps.join("\n");
}

/** Who runs calls, one at a time: a resident shell, or a shell of its own for each call. */
export interface CallWorker {
  readonly id: string;
  readonly facts: WorkerFacts;
  readonly loginProblem: string | null;
  /** The shell that outlives a call and is never to be ended with it; null when each call has its own. */
  readonly shellPid: number | null;
  /** Start of the shell of its last call, in ticks since boot, where each call has its own; nothing of it is older. */
  readonly sinceTicks?: string | null;
  readonly alive: boolean;
  readonly ended: Promise<unknown>;
  readonly marker: string;
  /** Does ahead what the next call would wait for; to be called while nobody waits. @default there is nothing to do */
  prepare?(): void;
  /** How long ago `prepare` was called for the next call, milliseconds; 0 when it is still to be. @default there is nothing to do */
  readonly preparedForMs?: number;
  /** Never rejects for what the command or the connection does: the end tells. */
  run(request: CallRequest): Promise<CallEnd>;
  close(): Promise<void>;
}

/** A subshell that was forked ahead of its call. */
interface Ready {
  readonly nonce: string;
  readonly secret: string;
  readonly variables: Readied["variables"];
  readonly inC: boolean;
  /** Since it was asked for. */
  readonly splitters: Readonly<Record<"stdout" | "stderr", FrameSplitter>>;
  /** Streams on which it has told that it waits, so that what comes next there is its call's. */
  readonly waits: Set<"stdout" | "stderr">;
}

/** How a call ends whose text nobody was left to run: the subshell that waited for it, or for another, was ended before. */
const MISSED = {
  kind: "lost",
  exitCode: null,
  signal: null,
  begun: false,
  newOrphans: [],
  adopted: [],
  lost: new MoorageError(
    "ENVIRONMENT_UNAVAILABLE",
    "Cannot run: a shell was ended before its command began",
    {
      details: { phase: "ready" },
    },
  ),
} as const;

export class Worker implements CallWorker {
  readonly id: string;
  readonly facts: WorkerFacts;
  /** Why there is no login environment although one was asked for. */
  loginProblem: string | null = null;
  readonly #stream: ShellStream;
  #receiver: Receiver | null = null;
  #ended: StreamEnd | null = null;
  /** Ends the call that runs when the stream has ended. */
  #loseCall: (() => void) | null = null;
  #knownOrphans: ReadonlySet<number> = new Set();
  #tail: Promise<void> = Promise.resolve();
  readonly #abandoned = Promise.withResolvers<void>();
  /** The last state that was read: most calls change nothing. */
  #lastDump: { readonly text: string; readonly dump: StateDump } | null = null;
  /** The long state that the shell holds. */
  #setup: string | null = null;

  #ready: Ready | null = null;
  /** Of the last call: the next one is likely to be its session's too. */
  #lastVariables: Readied["variables"] = null;
  #lastIsSound = false;
  /** When the subshell was asked for. */
  #preparedAt = 0;

  /** What the shell runs at `close`; null when there is nothing to do first. */
  readonly #farewell: string | null;

  private constructor(id: string, stream: ShellStream, facts: WorkerFacts, farewell: string | null) {
    this.id = id;
    this.#farewell = farewell;
    this.#stream = stream;
    this.facts = facts;
  }

  /**
   * @throws {MoorageError} what the backend's `openStream` throws; SHELL_MISSING when no shell answers;
   * ENVIRONMENT_UNAVAILABLE when none answers in time
   */
  static async open(options: WorkerOptions): Promise<Worker> {
    if (!options.login) return Worker.#open(options, limits.openTimeoutMs);
    const deadline = limits.loginTimeoutMs;
    try {
      return await Worker.#open(options, deadline);
    } catch (error) {
      // A profile that hangs or replaces the shell must not keep the environment from starting.
      if (!(error instanceof MoorageError) || error.details.phase !== "hello") throw error;
      const worker = await Worker.#open({ ...options, login: false }, limits.openTimeoutMs);
      worker.loginProblem = loginProblem(error);
      return worker;
    }
  }

  static async #open(options: WorkerOptions, timeoutMs: number): Promise<Worker> {
    const nonce = createNonce();
    const loginNonce = options.login ? createNonce() : null;
    const { shell, library, atLoss, known } = options;
    const direct = known?.bash === true && shell !== "sh" && loginNonce === null;
    const argv = direct ? BASH_BOOT_ARGV : bootArgv(shell, loginNonce);
    // Which shell answers is not known yet; one that reads a script finds no program by the name of a number.
    // Other shells than bash know no descriptor above 9.
    const unwanted = direct ? known.unwanted?.filter((descriptor) => descriptor > 9) : [];
    const greet = `${helloScript(nonce, { library, atLoss, reaper: known?.reaper, unwanted })}\n`;
    const greeting = wire("bash", greet);
    const stream = await options.open(argv, { [WORKER_MARKER]: options.id }, greeting);
    const splitters = [new FrameSplitter(nonce), ...(loginNonce ? [new FrameSplitter(loginNonce)] : [])];
    let login: ReadonlyMap<string, string> | null = null;
    const numberMissing = new RegExp(`^.*\\b${greet.length}: .*\\n?`, "m");
    let noise = "";
    const gather = (chunk: Buffer) => {
      noise = (noise + chunk.toString("utf8")).slice(-2_000);
    };
    const hello = new Promise<Frame>((resolve, reject) => {
      const cancel = setDeadline(timeoutMs, () => {
        const why = `Cannot open a shell: no answer within ${timeoutMs} ms`;
        reject(new MoorageError("ENVIRONMENT_UNAVAILABLE", why, { details: { phase: "hello" } }));
      });
      stream.stderr.on("data", function read(chunk: Buffer) {
        gather(chunk);
        for (const splitter of splitters) {
          for (const part of splitter.push(chunk)) {
            if (Buffer.isBuffer(part)) continue;
            if (part.kind === FRAME.login) login = parseExports(part.fields.join("\0"));
            if (part.kind === FRAME.hello) {
              cancel();
              stream.stderr.off("data", read);
              stream.stdout.off("data", gather);
              resolve(part);
            }
          }
        }
      });
      stream.stdout.on("data", gather);
      // Written line by line, each of which would wake us: it is read once all is there, or the shell takes longer.
      stream.stderr.pause();
      const later = setTimeout(() => stream.stderr.resume(), HELLO_PAUSE_MS);
      const listen = () => {
        clearTimeout(later);
        stream.stderr.resume();
      };
      stream.stdout.once("data", listen);
      void stream.ended.then(async (end) => {
        cancel();
        listen();
        // An engine that cannot start the program says why on stdout.
        await drained(stream);
        stream.stdout.off("data", gather);
        const said = noise.replace(numberMissing, "").trim();
        reject(
          end.lost ??
            new MoorageError(
              end.exitCode === 127 || /no such file|not found/i.test(said)
                ? "SHELL_MISSING"
                : "ENVIRONMENT_UNAVAILABLE",
              `Cannot open a shell: /bin/sh ended with code ${end.exitCode}${said === "" ? "" : `: ${said}`}`,
              {
                details: { phase: "hello", exitCode: end.exitCode },
              },
            ),
        );
      });
    });
    if (!stream.isGreeted) stream.stdin.write(greeting, "latin1");
    let fields: readonly string[];
    try {
      fields = (await hello).fields;
    } catch (error) {
      // A slow profile is left to end by itself: killed in its middle it may leave a lock behind. A shell that is only
      // slow has its orchestrator, and must not take this end for a loss.
      const farewell = farewellOf(options);
      if (farewell === null) stream.stdin.end();
      else stream.stdin.end(wire("bash", `${farewell}\n`), "latin1");
      stream.stdout.resume();
      stream.stderr.resume();
      void stream.ended.then(() => stream.close());
      throw error;
    }
    const { facts, orphans } = parseHello(fields, login);
    const worker = new Worker(options.id, stream, facts, farewellOf(options));
    worker.#knownOrphans = new Set(orphans);
    worker.#listen();
    return worker;
  }

  get shellPid(): number {
    return this.facts.pid;
  }

  get alive(): boolean {
    return this.#ended === null && !this.#stream.stdin.destroyed;
  }

  /** Settles when the program behind the worker has ended. */
  get ended(): Promise<StreamEnd> {
    return this.#stream.ended;
  }

  /** `name=value` that every process of this worker carries from its start. */
  get marker(): string {
    return `${WORKER_MARKER}=${this.id}`;
  }

  get preparedForMs(): number {
    if (this.facts.shell !== "bash") return Number.POSITIVE_INFINITY;
    return this.#ready === null ? 0 : performance.now() - this.#preparedAt;
  }

  prepare(): void {
    if (this.facts.shell !== "bash" || this.#receiver || this.#ready || !this.alive) return;
    const nonce = createNonce();
    const variables = this.#lastVariables;
    const ready: Ready = {
      nonce,
      secret: createNonce(),
      variables: variables && canBring(variables) ? variables : null,
      inC: this.#lastIsSound,
      splitters: { stdout: new FrameSplitter(nonce), stderr: new FrameSplitter(nonce) },
      waits: new Set(),
    };
    this.#ready = ready;
    this.#preparedAt = performance.now();
    this.#receiver = (stream, chunk) => {
      let isOver = false;
      for (const part of ready.splitters[stream].push(chunk)) {
        if (Buffer.isBuffer(part)) continue;
        if (part.kind === FRAME.ready) ready.waits.add(stream);
        if (part.kind === FRAME.end && part.fields[0] === ready.secret && stream === "stdout") isOver = true;
      }
      // Somebody ended it before its time.
      if (!isOver) return;
      this.#stream.stdin.write(afterwards(ready.nonce), "latin1");
      this.#dropReady();
    };
    this.#stream.stdin.write(wire("bash", readyScript({ ...ready, reaper: this.facts.reaper })), "latin1");
  }

  /** Has the subshell that waits end without a call. */
  #dismiss(ready: Ready): void {
    this.#stream.stdin.write(wireReady(ready, "", "") + afterwards(ready.nonce), "latin1");
  }

  #dropReady(): void {
    this.#ready = null;
    this.#receiver = null;
  }

  /**
   * Runs one call. Never rejects for what the command or the connection does: the end tells.
   *
   * @throws {RangeError} when the command or a value holds a NUL
   */
  async run(request: CallRequest): Promise<CallEnd> {
    if (this.#receiver && !this.#ready)
      throw new MoorageError("INTERNAL", `Cannot run: worker ${this.id} is busy`);
    const { stdin, onData, live: _, ...rest } = request;
    const compose = (ready: Ready | null) => {
      const ids = ready ?? { nonce: createNonce(), secret: createNonce() };
      const { shell, reaper } = this.facts;
      const stdinBytes = stdin === null ? null : stdin.byteLength;
      const readied = ready && { ...ready, base: this.facts.variables };
      const { nonce, secret } = ids;
      const text = callScript({ ...rest, nonce, secret, shell, reaper, stdinBytes, ready: readied });
      return { nonce, secret, text, ready };
    };
    let composed = compose(this.#ready);
    const { setup } = composed.text;
    const hasSetup = setup === null || setup === this.#setup;
    // One that was forked before the shell had this state is of no use.
    const dismissed = hasSetup ? null : this.#ready;
    if (dismissed) composed = compose(null);
    this.#dropReady();
    this.#lastVariables = request.state.variables;
    this.#lastIsSound = request.sound ?? false;
    const { nonce, secret, text, ready } = composed;
    const isReady = ready !== null;
    const seen: {
      dump: string | null;
      restored: boolean;
      workdir: "missing" | "kernel" | null;
      moved: string | null;
      exitCode: number | null;
      orphans: number[];
      /** The shell answered to this call, so it has read all of it. */
      answered: boolean;
      /** The subshell did, before its end. */
      started: boolean;
      /** The subshell told that it cannot run the call. */
      unready: boolean;
    } = {
      unready: false,
      restored: false,
      dump: null,
      workdir: null,
      moved: null,
      exitCode: null,
      orphans: [],
      answered: false,
      started: false,
    };
    const splitters = ready?.splitters ?? {
      stdout: new FrameSplitter(nonce),
      stderr: new FrameSplitter(nonce),
    };
    const open = new Set<string>(text.isOneStream ? ["stdout"] : ["stdout", "stderr"]);
    // Bytes before are the last ones of what an earlier call left behind and the end of which was already met.
    const begun = new Set<string>(text.isShort ? ready?.waits : []);
    let finish: (how: "ended" | "stream") => void = () => {};
    const ended = new Promise<"ended" | "stream">((resolve) => {
      finish = resolve;
    });

    // A shell writes its state line by line, and each line would wake us: it is read once the command is over, or
    // when the command takes longer, before the stream's buffer can fill up. A standard input is asked for there first.
    const control = this.#stream.stderr;
    const isReadLater = !request.separate && stdin === null && !text.isOneStream;
    const later = isReadLater ? setTimeout(() => control.resume(), CONTROL_PAUSE_MS) : undefined;
    const listenAgain = () => {
      clearTimeout(later);
      if (control.isPaused()) control.resume();
    };

    /** Whether the shell was asked if it had read the call. */
    let isAsked = false;
    const onFrame = (stream: "stdout" | "stderr", frame: Frame): void => {
      const [first = "", exitCode = "", orphans = ""] = frame.fields;
      if (frame.kind === FRAME.ready) {
        if (text.isShort) begun.add(stream);
        return;
      }
      if (text.isShort && frame.kind === FRAME.end) {
        // The shell's word alone: the subshell was ended, in its call or before it had read it.
        if (first !== secret || !open.has(stream)) return;
        if (stream === "stderr") {
          open.delete(stream);
          if (open.size === 0) finish("ended");
          return;
        }
        seen.exitCode = Number(exitCode);
        seen.orphans = pidList(orphans);
        isAsked = true;
        this.#stream.stdin.write(wire("bash", droppedScript(nonce)), "latin1");
        return;
      }
      if (frame.kind === FRAME.dropped && !isAsked) return;
      seen.answered = true;
      if (frame.kind === FRAME.dropped) {
        seen.started = first === "";
        seen.restored = first === "" && !seen.unready;
        open.delete(stream);
        if (open.size === 0) finish("ended");
        return;
      }
      if (frame.kind !== FRAME.end) seen.started = true;
      if (frame.kind === FRAME.begun) {
        seen.restored = true;
        begun.add(stream);
      } else if (frame.kind === FRAME.stdin && stdin) {
        this.#stream.stdin.write(stdin);
        this.#stream.stdin.write(afterwards(nonce), "latin1");
      } else if (frame.kind === FRAME.workdir) seen.workdir = first === "kernel" ? "kernel" : "missing";
      else if (frame.kind === FRAME.moved) seen.moved = first;
      else if (frame.kind === FRAME.unready) seen.unready = true;
      else if (frame.kind === FRAME.state) seen.dump = first;
      // The shell tells the end once more where the subshell has told it.
      else if (
        (frame.kind === FRAME.end || frame.kind === FRAME.told) &&
        first === secret &&
        open.has(stream)
      ) {
        if (frame.kind === FRAME.told) seen.restored = true;
        if (stream === "stdout") {
          seen.exitCode = Number(exitCode);
          seen.orphans = pidList(orphans);
          listenAgain();
        }
        open.delete(stream);
        if (open.size === 0) finish("ended");
      }
    };
    const onBytes = (stream: "stdout" | "stderr", bytes: Buffer) =>
      begun.has(stream) && open.has(stream) ? onData(stream, bytes) : undefined;
    this.#receiver = (stream, chunk) => {
      let held: Promise<void> | undefined;
      for (const part of splitters[stream].push(chunk)) {
        if (!Buffer.isBuffer(part)) onFrame(stream, part);
        else {
          const promise = onBytes(stream, part);
          if (promise) held = held ? Promise.all([held, promise]).then(() => undefined) : promise;
        }
      }
      return held;
    };

    const written = this.alive;
    if (written) {
      if (dismissed) this.#dismiss(dismissed);
      if (setup !== null && !hasSetup) {
        this.#stream.stdin.write(wire(this.facts.shell, setup), "latin1");
        this.#setup = setup;
      }
      if (isReadLater) control.pause();
      const message = ready
        ? wireReady(ready, text.call, leaveC(this.facts.variables, request.sound))
        : wire(this.facts.shell, text.call);
      // A standard input comes in between.
      const end = isReady && stdin === null ? afterwards(nonce) : "";
      this.#stream.stdin.write(message + end, "latin1");
    }
    // Told by the one listener of the stream's end: one of each call's own would keep the call's bytes until then.
    this.#loseCall = () => finish("stream");
    if (this.#ended) finish("stream");
    const how = await ended;
    this.#loseCall = null;
    listenAgain();
    if (how === "stream") {
      await drained(this.#stream);
      for (const stream of ["stdout", "stderr"] as const) {
        const rest = splitters[stream].flush();
        if (rest.length > 0) void onBytes(stream, rest);
      }
      // A listener that never answers must not hold up a call that is over.
      await Promise.race([this.#tail, this.#abandoned.promise]);
    }
    this.#receiver = null;
    const common = {
      dump: seen.dump === null ? null : this.#parseDump(seen.dump),
      restored: seen.restored,
      workdirProblem: seen.workdir,
      movedTo: seen.moved,
    };
    if (open.size === 0) {
      const orphans = seen.orphans.filter((pid) => !this.#knownOrphans.has(pid));
      this.#knownOrphans = new Set(seen.orphans);
      if (isReady && !seen.started) return { ...common, ...MISSED };
      return {
        ...common,
        kind: "ended",
        exitCode: seen.exitCode,
        signal: null,
        begun: true,
        newOrphans: orphans,
        adopted: seen.orphans,
        lost: null,
      };
    }
    const end = await this.#stream.ended;
    if (end.exitCode === PLACE_LOST && !seen.answered) return { ...common, ...MISSED };
    return {
      ...common,
      kind: end.lost ? "lost" : "died",
      exitCode: end.exitCode,
      signal: end.signal,
      // A call whose last byte was not sent did not start; one that has begun may lack bytes of its standard input.
      begun: written && (seen.answered || end.lost?.details.undelivered !== true),
      newOrphans: [],
      adopted: [],
      lost: end.lost,
    };
  }

  /** Ends the shell; processes that it left behind are not touched. Idempotent. */
  async close(): Promise<void> {
    this.#receiver = null;
    this.#abandoned.resolve();
    if (this.#farewell !== null && this.alive) {
      if (this.#ready) this.#dismiss(this.#ready);
      this.#stream.stdin.end(wire(this.facts.shell, this.#farewell), "latin1");
      // Cut off before it has read this, it would take the end for a loss.
      const late = Promise.withResolvers<void>();
      const cancel = setDeadline(limits.killGraceMs, late.resolve);
      await Promise.race([this.#stream.ended, late.promise]);
      cancel();
    }
    this.#stream.stdin.end();
    await this.#stream.close();
  }

  #parseDump(text: string): StateDump {
    if (this.#lastDump?.text !== text) this.#lastDump = { text, dump: parseState(text) };
    return this.#lastDump.dump;
  }

  #listen(): void {
    void this.#stream.ended.then((end) => {
      this.#ended = end;
      this.#loseCall?.();
    });
    for (const name of ["stdout", "stderr"] as const) {
      const side = this.#stream[name];
      side.on("data", (chunk: Buffer) => {
        const held = this.#receiver?.(name, chunk);
        if (!held) return;
        side.pause();
        this.#tail = held.then(
          () => void side.resume(),
          () => void side.resume(),
        );
      });
      // The stream's end is told by `ended`, with its reason.
      side.on("error", () => {});
    }
  }
}
