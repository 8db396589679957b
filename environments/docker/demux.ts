/**
 * Takes the engine's one byte stream apart into stdout and stderr.
 *
 * Without a terminal each piece has a header of 8 bytes: kind (0 and 1 stdout, 2 stderr, 3 a failure of the
 * engine), three zeros, length as big-endian u32. With a terminal the bytes are raw. Which of the two comes from
 * the flag given at creation, never from a look at the bytes. Pieces are passed on as they arrive, without waiting for
 * their end and without copies; a reader that lags pauses the source.
 */
import { Readable } from "node:stream";
import { limits } from "../../src/limits.ts";

/** How the source came to its end. */
export interface SourceEnd {
  /** Null after a clean end between two frames; else what was wrong. */
  readonly broken: string | null;
  /** The engine's own words, when all that came was its report that the program could not be started. */
  readonly engineText: string | null;
}

const HEADER_BYTES = 8;
/** Larger first frames are a program's: the engine's report is one short line. */
const REPORT_MAX_BYTES = 8192;
/** A program that prints such a line and goes on gets it through after this, milliseconds. */
const REPORT_HOLD_MS = 250;
const REPORT =
  /^(OCI runtime exec failed|failed to (create|start) |cannot exec in a |rpc error: |Container [0-9a-f]+ is not running)/;

export class Demultiplexer {
  readonly stdout: Readable;
  readonly stderr: Readable;
  /**
   * Settles once, after the last byte was taken from the source. Never rejects. With an `engineText`, stdout
   * stays open until `settleReport`.
   */
  readonly ended: Promise<SourceEnd>;

  readonly #source: Readable;
  readonly #tty: boolean;
  #onFirstBytes: (() => void) | undefined;
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  #kind = 0;
  #left = 0;
  #frames = 0;
  #first: Buffer[] | null = null;
  #held: Buffer | null = null;
  #holdTimer: NodeJS.Timeout | undefined;
  readonly #full = new Set<Readable>();
  #finished = false;
  #engineFailure = "";
  #settle: (end: SourceEnd) => void = () => {};

  constructor(source: Readable, options: { readonly tty: boolean; readonly onFirstBytes?: () => void }) {
    this.#source = source;
    this.#tty = options.tty;
    this.#onFirstBytes = options.onFirstBytes;
    this.stdout = this.#output();
    this.stderr = this.#output();
    this.ended = new Promise((resolve) => {
      this.#settle = resolve;
    });
    source.on("data", (chunk: Buffer) => this.#take(chunk));
    source.on("end", () => this.#finish(null));
    source.on("error", (error) => this.#finish(error.message));
    source.on("close", () => this.#finish("the connection was closed"));
  }

  /** Whether a reader holds the source back at the moment. */
  get paused(): boolean {
    return this.#full.size > 0;
  }

  #output(): Readable {
    const output: Readable = new Readable({
      highWaterMark: limits.streamHighWaterBytes,
      read: () => this.#drained(output),
      destroy: (error, done) => {
        // A reader that left must not hold back the other.
        this.#drained(output);
        done(error);
      },
    });
    return output;
  }

  #drained(output: Readable): void {
    if (this.#full.delete(output) && this.#full.size === 0) this.#source.resume();
  }

  #push(output: Readable, bytes: Buffer): void {
    if (bytes.length === 0 || output.destroyed || this.#finished) return;
    this.#onFirstBytes?.();
    this.#onFirstBytes = undefined;
    if (!output.push(bytes) && !output.destroyed) {
      this.#full.add(output);
      this.#source.pause();
    }
  }

  #take(chunk: Buffer): void {
    if (this.#finished) return;
    if (this.#tty) {
      this.#push(this.stdout, chunk);
      return;
    }
    let at = 0;
    while (at < chunk.length) {
      if (this.#left === 0) {
        const wanted = HEADER_BYTES - this.#headerBytes;
        const taken = chunk.copy(this.#header, this.#headerBytes, at, at + wanted);
        this.#headerBytes += taken;
        at += taken;
        if (this.#headerBytes < HEADER_BYTES) return;
        this.#headerBytes = 0;
        if (!this.#begin(this.#header.readUInt8(0), this.#header.readUInt32BE(4))) return;
        continue;
      }
      const piece = chunk.subarray(at, at + this.#left);
      at += piece.length;
      this.#left -= piece.length;
      this.#pass(piece);
    }
  }

  #begin(kind: number, length: number): boolean {
    if (kind > 3) {
      this.#finish(`the engine sent a frame of unknown kind ${kind}`);
      this.#source.destroy();
      return false;
    }
    this.#kind = kind;
    this.#left = length;
    this.#frames += 1;
    this.#release();
    if (this.#frames === 1 && kind === 1 && length > 0 && length <= REPORT_MAX_BYTES) this.#first = [];
    return true;
  }

  #pass(piece: Buffer): void {
    if (this.#kind === 3) {
      this.#engineFailure = (this.#engineFailure + piece.toString("utf8")).slice(0, REPORT_MAX_BYTES);
    } else if (this.#first) {
      this.#first.push(piece);
      if (this.#left > 0) return;
      const bytes = Buffer.concat(this.#first);
      this.#first = null;
      if (REPORT.test(bytes.toString("latin1"))) {
        this.#held = bytes;
        this.#holdTimer = setTimeout(() => this.#release(), REPORT_HOLD_MS);
      } else {
        this.#push(this.stdout, bytes);
      }
    } else {
      this.#push(this.#kind === 2 ? this.stderr : this.stdout, piece);
    }
  }

  #release(): void {
    clearTimeout(this.#holdTimer);
    const held = this.#held;
    this.#held = null;
    if (held) this.#push(this.stdout, held);
  }

  /** Says what `engineText` was, after `ended`: a report is dropped, a program's own text is let through. */
  settleReport(isReport: boolean): void {
    const held = this.#held;
    this.#held = null;
    if (held === null) return;
    if (!isReport) this.stdout.push(held);
    this.stdout.push(null);
  }

  #finish(fault: string | null): void {
    if (this.#finished) return;
    clearTimeout(this.#holdTimer);
    // A frame may be cut anywhere; what was gathered of a first one is the program's all the same.
    for (const piece of this.#first ?? []) this.#push(this.stdout, piece);
    const cut = this.#left > 0 || this.#headerBytes > 0 ? "the stream ended inside a frame" : null;
    const failure = this.#engineFailure ? `the engine reported: ${this.#engineFailure.trim()}` : null;
    this.#finished = true;
    this.#full.clear();
    this.stderr.push(null);
    if (this.#held === null) this.stdout.push(null);
    this.#settle({
      broken: failure ?? fault ?? cut,
      engineText: this.#held ? this.#held.toString("utf8").trim() : null,
    });
  }
}
