/**
 * Passes what one socket reads to another through a few buffers that go round. A stream's own way makes a buffer for
 * every read, which costs more than the read itself.
 */
import type { OnReadOpts, Socket } from "node:net";

/**
 * A flow begins with the least. A read that fills its buffer has the next ones twice as large: 100 MiB took a proxy 62 ms
 * of processor time with 128 KiB, 54 with 256 KiB and 45 with 512 KiB. One that leaves it nearly empty has them shrink.
 */
const BUFFER_BYTES = { least: 64 * 1024, most: 512 * 1024 } as const;
/** So many flows of this process may have larger buffers than the least: three of 512 KiB each are 48 MiB in all. */
const LARGE_MAX = 32;
/** Reads that wait to be written; the next one has its buffer already. */
const WAITING_MAX = 2;

export class Flow {
  /** For the socket that is read, which is paused until it is passed on. */
  readonly onread: OnReadOpts = {
    buffer: () => this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#bytes),
    callback: (bytes, buffer) => this.#pass(bytes, buffer),
  };
  readonly #free: Uint8Array[] = [];
  static #large = 0;
  /** Size of the next buffers. */
  #bytes: number = BUFFER_BYTES.least;
  #waiting = 0;
  #from: Socket | null = null;
  #to: Socket | null = null;
  #onBytes: () => void = () => {};

  /** Begins to pass bytes on, half-close too. Once. @param onBytes called for every read */
  start(from: Socket, to: Socket, onBytes: () => void): void {
    this.#from = from;
    this.#to = to;
    this.#onBytes = onBytes;
    from.once("end", () => to.end());
    from.once("close", () => this.#resize(BUFFER_BYTES.least));
    from.resume();
  }

  #pass(bytes: number, buffer: Uint8Array): boolean {
    this.#onBytes();
    this.#fit(bytes, buffer.length);
    this.#waiting += 1;
    this.#to?.write(buffer.subarray(0, bytes), () => {
      if (buffer.length === this.#bytes) this.#free.push(buffer);
      this.#waiting -= 1;
      // Reading that was stopped goes on; it is none that goes on already.
      if (this.#waiting < WAITING_MAX && !this.#from?.destroyed) this.#from?.resume();
    });
    return this.#waiting < WAITING_MAX;
  }

  #fit(read: number, of: number): void {
    if (read === of) this.#resize(Math.min(Math.max(this.#bytes, of * 2), BUFFER_BYTES.most));
    else if (read < this.#bytes / 16) this.#resize(Math.max(this.#bytes / 2, BUFFER_BYTES.least));
  }

  #resize(bytes: number): void {
    if (bytes === this.#bytes) return;
    const [was, is] = [this.#bytes, bytes].map((size) => size > BUFFER_BYTES.least);
    if (is && !was && Flow.#large >= LARGE_MAX) return;
    Flow.#large += Number(is) - Number(was);
    this.#bytes = bytes;
    this.#free.length = 0;
  }
}
