/** Takes the outputs of a shell of one call apart: the command's bytes go on, what frames tell is kept. */
import { createSplitters, type Frame, type FrameTaker, handOn, type Splitters } from "./frames.ts";
import { pidList } from "./greeting.ts";
import { FRAME } from "./phrases.ts";
import type { CallRequest } from "./worker.ts";

export interface OneShotReaderOptions {
  readonly nonce: string;
  readonly secret: string;
  readonly separate: boolean;
  /** See `CallText`. */
  readonly isOneStream: boolean;
  /** Whether stdout comes as base64. */
  readonly encoded: boolean;
  readonly onData: CallRequest["onData"];
  /** Told when the call's shell began, in ticks since boot. */
  readonly onStart: (ticks: string) => void;
  /** All that belongs to the call has come. */
  readonly onEnd: () => void;
}

export class OneShotReader implements FrameTaker {
  dump: string | null = null;
  restored = false;
  workdirProblem: "missing" | "kernel" | null = null;
  movedTo: string | null = null;
  exitCode: number | null = null;
  orphans: readonly number[] = [];
  holders: readonly number[] = [];
  before: ReadonlySet<number> = new Set();
  readonly #secret: string;
  readonly #onStart: OneShotReaderOptions["onStart"];
  readonly #separate: boolean;
  readonly #onData: CallRequest["onData"];
  readonly #splitters: Splitters;
  readonly #open: Set<string>;
  readonly #onEnd: OneShotReaderOptions["onEnd"];
  /** Text of less than one group of base64; null where bytes come as they are. */
  #base64: string | null;

  constructor({
    nonce,
    secret,
    separate,
    isOneStream,
    encoded,
    onData,
    onStart,
    onEnd,
  }: OneShotReaderOptions) {
    this.#onEnd = onEnd;
    this.#onStart = onStart;
    this.#secret = secret;
    this.#separate = separate;
    this.#onData = onData;
    this.#splitters = createSplitters(nonce);
    this.#open = new Set(isOneStream ? ["stdout"] : ["stdout", "stderr"]);
    this.#base64 = encoded ? "" : null;
  }

  get isComplete(): boolean {
    return this.#open.size === 0;
  }

  take(stream: "stdout" | "stderr", chunk: Buffer): void | Promise<void> {
    const bytes = stream === "stdout" ? this.#decode(chunk) : chunk;
    return handOn(this.#splitters, stream, bytes, this);
  }

  /** Hands on what was held back as the start of a frame, when nothing follows. */
  flush(): void {
    for (const stream of ["stdout", "stderr"] as const) {
      const rest = this.#splitters[stream].flush();
      if (rest.length > 0) void this.onBytes(stream, rest);
    }
  }

  onBytes(stream: "stdout" | "stderr", bytes: Buffer): void | Promise<void> {
    if (this.#open.has(stream) && (stream === "stdout" || this.#separate)) return this.#onData(stream, bytes);
  }

  #decode(chunk: Buffer): Buffer {
    if (this.#base64 === null) return chunk;
    const text = this.#base64 + chunk.toString("latin1").replaceAll(/\s/g, "");
    const whole = text.length - (text.length % 4);
    this.#base64 = text.slice(whole);
    // What was sent in pieces is padded in its middle.
    const pieces = text.slice(0, whole).match(/[^=]+=*/g) ?? [];
    return Buffer.concat(pieces.map((piece) => Buffer.from(piece, "base64")));
  }

  onFrame(stream: "stdout" | "stderr", { kind, fields }: Frame): void {
    const [first = "", second = "", orphans = "", holders = "", before] = fields;
    if (kind === FRAME.begun) this.restored = true;
    else if (kind === FRAME.workdir) this.workdirProblem = first === "kernel" ? "kernel" : "missing";
    else if (kind === FRAME.before) {
      this.before = new Set(pidList(first));
      const ticks = startTicks(second);
      if (ticks !== null) this.#onStart(ticks);
    } else if (kind === FRAME.moved) this.movedTo = first;
    else if (kind === FRAME.state) this.dump = first;
    else if (kind === FRAME.end && first === this.#secret) {
      if (stream === "stdout") {
        this.exitCode = Number(second);
        this.orphans = pidList(orphans);
        this.holders = pidList(holders);
        if (before !== undefined) {
          this.before = new Set(pidList(before));
          this.restored = true;
        }
      }
      this.#open.delete(stream);
      if (this.isComplete) this.#onEnd();
    }
  }
}

/** A process's start, in ticks since boot, from its stat line. */
export function startTicks(stat: string): string | null {
  // A name in parentheses may hold anything; the start is the 20th field behind it.
  const ticks = stat.slice(stat.lastIndexOf(") ") + 2).split(" ")[19] ?? "";
  return /^\d+$/.test(ticks) ? ticks : null;
}
