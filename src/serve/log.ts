/** The output of one served command: kept for replay up to a bound, followed by any number of readers. */
import { StringDecoder } from "node:string_decoder";
import { limits } from "../limits.ts";

export interface LogLine {
  readonly stream: "stdout" | "stderr";
  readonly data: string;
}

interface Follower {
  /** Number of the line that it reads next. */
  next: number;
}

export class CommandLog {
  readonly #maxBytes: number;
  readonly #decoders = { stdout: new StringDecoder("utf8"), stderr: new StringDecoder("utf8") };
  readonly #lines: LogLine[] = [];
  readonly #followers = new Set<Follower>();
  #bytes = 0;
  /** Number of the first line that is kept. */
  #first = 0;
  #closed = false;
  #changed = Promise.withResolvers<void>();

  constructor(maxBytes: number = limits.serveLogMaxBytes) {
    this.#maxBytes = maxBytes;
  }

  /** Takes bytes in; the promise holds the source back while a reader would lose what it has not read. */
  push(stream: "stdout" | "stderr", chunk: Uint8Array): Promise<void> | undefined {
    const data = this.#decoders[stream].write(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
    if (data !== "") this.#add({ stream, data });
    return this.#isFull() && this.#slowest() <= this.#first ? this.#makeRoom() : this.#drop();
  }

  close(): void {
    for (const stream of ["stdout", "stderr"] as const) {
      const data = this.#decoders[stream].end();
      if (data !== "") this.#add({ stream, data });
    }
    this.#closed = true;
    this.#wake();
  }

  /** Lines from the oldest that is kept to the end of the command. Ends when `abortSignal` fires. */
  async *follow(abortSignal: AbortSignal): AsyncGenerator<readonly LogLine[]> {
    const follower: Follower = { next: this.#first };
    this.#followers.add(follower);
    const onAbort = (): void => this.#wake();
    abortSignal.addEventListener("abort", onAbort, { once: true });
    try {
      while (!abortSignal.aborted) {
        const from = Math.max(follower.next, this.#first) - this.#first;
        const lines = this.#lines.slice(from);
        if (lines.length > 0) {
          follower.next = this.#first + this.#lines.length;
          this.#wake();
          yield lines;
        } else if (this.#closed) {
          return;
        } else {
          await this.#changed.promise;
        }
      }
    } finally {
      abortSignal.removeEventListener("abort", onAbort);
      this.#followers.delete(follower);
      this.#wake();
    }
  }

  #add(line: LogLine): void {
    this.#lines.push(line);
    this.#bytes += line.data.length;
    this.#wake();
  }

  #isFull(): boolean {
    return this.#bytes > this.#maxBytes;
  }

  #slowest(): number {
    return Math.min(Number.POSITIVE_INFINITY, ...[...this.#followers].map(({ next }) => next));
  }

  async #makeRoom(): Promise<void> {
    while (this.#isFull() && this.#slowest() <= this.#first) await this.#changed.promise;
    this.#drop();
  }

  #drop(): undefined {
    while (this.#isFull() && this.#slowest() > this.#first) {
      const dropped = this.#lines.shift();
      if (!dropped) return;
      this.#first += 1;
      this.#bytes -= dropped.data.length;
    }
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers<void>();
  }
}
