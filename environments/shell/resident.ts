/**
 * A resident shell at the end of one stream. It runs one call at a time, each in a forked subshell, and holds no
 * state of its own, so that any worker can run any session's next call. Bytes that arrive between calls belong to
 * processes that an earlier call left behind; they are read and dropped.
 */
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { setDeadline } from "../deadline.ts";
import type { Readied } from "./call-script.ts";
import { drained } from "./drained.ts";
import { parseState, type StateDump } from "./exports.ts";
import { createNonce, createSplitters, type Splitters } from "./frames.ts";
import type { WorkerFacts } from "./greeting.ts";
import { type OpenShell, openShell, type ResidentOptions } from "./open-shell.ts";
import { FRAME, PLACE_LOST } from "./phrases.ts";
import { canBring, leaveC, readyScript, wireReady } from "./ready.ts";
import { ResidentReader } from "./resident-reader.ts";
import { afterwards, callScript, wire } from "./script.ts";
import type { ShellStream, StreamEnd } from "./stream.ts";
import { type CallEnd, type CallRequest, type CallWorker, WORKER_MARKER } from "./worker.ts";

/** How long the control stream waits unread at the start of a call, milliseconds. */
const CONTROL_PAUSE_MS = 4;

type Receiver = (stream: "stdout" | "stderr", chunk: Buffer) => void | Promise<void>;

/** A subshell that was forked ahead of its call. */
interface Ready {
  readonly nonce: string;
  readonly secret: string;
  readonly variables: Readied["variables"];
  readonly inC: boolean;
  /** Since it was asked for. */
  readonly splitters: Splitters;
  /** Streams on which it has told that it waits, so that what comes next there is its call's. */
  readonly waits: Set<"stdout" | "stderr">;
}

/**
 * How a call ends whose text nobody was left to run: the subshell that waited for it, or for another, was ended
 * before.
 */
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

export class ResidentWorker implements CallWorker {
  readonly id: string;
  readonly facts: WorkerFacts;
  readonly loginProblem: string | null;
  readonly #stream: ShellStream;
  #receiver: Receiver | null = null;
  #ended: StreamEnd | null = null;
  /** Ends the call that runs when the stream has ended. */
  #loseCall: (() => void) | null = null;
  #knownOrphans: ReadonlySet<number>;
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

  private constructor(id: string, { stream, facts, orphans, farewell, loginProblem }: OpenShell) {
    this.id = id;
    this.facts = facts;
    this.loginProblem = loginProblem;
    this.#stream = stream;
    this.#farewell = farewell;
    this.#knownOrphans = new Set(orphans);
    this.#listen();
  }

  /** @throws {MoorageError} what `openShell` throws */
  static async open(options: ResidentOptions): Promise<ResidentWorker> {
    return new ResidentWorker(options.id, await openShell(options));
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
      splitters: createSplitters(nonce),
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
    const reader = new ResidentReader({
      nonce,
      secret,
      text,
      splitters: ready?.splitters ?? createSplitters(nonce),
      waits: ready?.waits ?? [],
      stdin,
      onData,
      write: (data) => void this.#stream.stdin.write(data, "latin1"),
      onExitCode: listenAgain,
      onEnd: () => finish("ended"),
    });
    this.#receiver = (stream, chunk) => reader.push(stream, chunk);

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
      const end = ready && stdin === null ? afterwards(nonce) : "";
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
      reader.flush();
      // A listener that never answers must not hold up a call that is over.
      await Promise.race([this.#tail, this.#abandoned.promise]);
    }
    this.#receiver = null;
    const common = {
      dump: reader.dump === null ? null : this.#parseDump(reader.dump),
      restored: reader.isRestored,
      workdirProblem: reader.workdirProblem,
      movedTo: reader.movedTo,
    };
    if (reader.isComplete) {
      const orphans = reader.orphans.filter((pid) => !this.#knownOrphans.has(pid));
      this.#knownOrphans = new Set(reader.orphans);
      if (ready && !reader.hasStarted) return { ...common, ...MISSED };
      return {
        ...common,
        kind: "ended",
        exitCode: reader.exitCode,
        signal: null,
        begun: true,
        newOrphans: orphans,
        adopted: reader.orphans,
        lost: null,
      };
    }
    const end = await this.#stream.ended;
    if (end.exitCode === PLACE_LOST && !reader.hasAnswered) return { ...common, ...MISSED };
    return {
      ...common,
      kind: end.lost ? "lost" : "died",
      exitCode: end.exitCode,
      signal: end.signal,
      // A call whose last byte was not sent did not start; one that has begun may lack bytes of its standard input.
      begun: written && (reader.hasAnswered || end.lost?.details.undelivered !== true),
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
