/**
 * Passes what one socket reads to another through a few buffers that go round. A stream's own way makes a buffer for
 * every read, which costs more than the read itself.
 */
import type { OnReadOpts, Socket } from "node:net";

const BUFFER_BYTES = 128 * 1024;
/** Reads that wait to be written; the next one has its buffer already. */
const WAITING_MAX = 2;

export class Flow {
  /** For the socket that is read, which is paused until it is passed on. */
  readonly onread: OnReadOpts = {
    buffer: () => this.#free.pop() ?? Buffer.allocUnsafeSlow(BUFFER_BYTES),
    callback: (bytes, buffer) => this.#pass(bytes, buffer),
  };
  readonly #free: Uint8Array[] = [];
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
    from.resume();
  }

  #pass(bytes: number, buffer: Uint8Array): boolean {
    this.#onBytes();
    this.#waiting += 1;
    this.#to?.write(buffer.subarray(0, bytes), () => {
      this.#free.push(buffer);
      this.#waiting -= 1;
      // Reading that was stopped goes on; it is none that goes on already.
      if (this.#waiting < WAITING_MAX && !this.#from?.destroyed) this.#from?.resume();
    });
    return this.#waiting < WAITING_MAX;
  }
}
