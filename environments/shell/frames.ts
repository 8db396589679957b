/**
 * Finds our frames in a byte stream that also carries whatever a command writes.
 *
 * A frame is `NUL nonce kind body NUL nonce ;` where the nonce is 128 fresh random bits per call, so that no
 * output can be taken for a frame and no frame for output. A body's fields are separated by NUL.
 */
import { randomBytes } from "node:crypto";

const NONCE_BYTES = 16;
/** Random bytes for the next nonces: to ask for each one alone takes longer than to make a call's text. */
let random = Buffer.alloc(0);

/** 128 random bits, hexadecimal. */
export function createNonce(): string {
  if (random.length < NONCE_BYTES) random = randomBytes(256 * NONCE_BYTES);
  const nonce = random.toString("hex", 0, NONCE_BYTES);
  random = random.subarray(NONCE_BYTES);
  return nonce;
}

export interface Frame {
  /** One letter that tells what the body is. */
  readonly kind: string;
  /** Fields, one byte a character. */
  readonly fields: readonly string[];
}

const NOTHING: Buffer = Buffer.alloc(0);
/** `;`, which no frame has as its kind. */
const END = 0x3b;

/** Splits one stream of one call. Bytes that may be the start of a frame are held back until that is known. */
export class FrameSplitter {
  readonly #mark: Buffer;
  #held: Buffer = NOTHING;
  /** Pieces of the frame that has begun and not ended; null outside of one. */
  #body: Buffer[] | null = null;

  constructor(nonce: string) {
    this.#mark = Buffer.from(`\0${nonce}`, "latin1");
  }

  /** @returns the command's bytes and our frames, in the order in which they came */
  push(chunk: Buffer): (Buffer | Frame)[] {
    const parts: (Buffer | Frame)[] = [];
    let rest = this.#held.length > 0 ? Buffer.concat([this.#held, chunk]) : chunk;
    this.#held = NOTHING;
    while (rest.length > 0) {
      const at = rest.indexOf(this.#mark);
      const complete = at >= 0 && at + this.#mark.length < rest.length;
      const plain = rest.subarray(0, at >= 0 ? at : rest.length - this.#partialMark(rest));
      if (plain.length > 0) (this.#body ?? parts).push(plain);
      if (!complete) {
        // Copied, since the chunk's memory belongs to the stream.
        this.#held = Buffer.from(rest.subarray(plain.length));
        break;
      }
      const isEnd = rest[at + this.#mark.length] === END;
      rest = rest.subarray(at + this.#mark.length + (isEnd ? 1 : 0));
      if (isEnd && this.#body) {
        const text = Buffer.concat(this.#body).toString("latin1");
        parts.push({ kind: text.charAt(0), fields: text.slice(1).split("\0") });
      }
      // A writer that was killed in the middle of a frame left it open: half of one is none.
      this.#body = isEnd ? null : [];
    }
    return parts;
  }

  /** What was held back, once the stream has ended and it can no longer become a frame. */
  flush(): Buffer {
    const held = this.#body === null ? this.#held : NOTHING;
    this.#held = NOTHING;
    return held;
  }

  /** Length of the longest suffix of `bytes` that is a proper prefix of the mark. */
  #partialMark(bytes: Buffer): number {
    let from = Math.max(0, bytes.length - this.#mark.length + 1);
    for (;;) {
      const at = bytes.indexOf(0, from);
      if (at < 0) return 0;
      if (this.#mark.compare(bytes, at, bytes.length, 0, bytes.length - at) === 0) return bytes.length - at;
      from = at + 1;
    }
  }
}

/** The splitters of one call's two streams. */
export type Splitters = Readonly<Record<"stdout" | "stderr", FrameSplitter>>;

export function createSplitters(nonce: string): Splitters {
  return { stdout: new FrameSplitter(nonce), stderr: new FrameSplitter(nonce) };
}

/** Who takes what the streams of a call bring. */
export interface FrameTaker {
  onFrame(stream: keyof Splitters, frame: Frame): void;
  /** @returns a promise that holds the stream back */
  onBytes(stream: keyof Splitters, bytes: Buffer): void | Promise<void>;
}

/**
 * Hands on what a chunk brings, in its order.
 *
 * @returns when all bytes are taken, where somebody takes time for them
 */
export function handOn(
  splitters: Splitters,
  stream: keyof Splitters,
  chunk: Buffer,
  taker: FrameTaker,
): void | Promise<void> {
  let held: Promise<void> | undefined;
  for (const part of splitters[stream].push(chunk)) {
    if (!Buffer.isBuffer(part)) {
      taker.onFrame(stream, part);
      continue;
    }
    const promise = taker.onBytes(stream, part);
    if (promise) held = held ? Promise.all([held, promise]).then(() => undefined) : promise;
  }
  return held;
}
