/**
 * Keeps the head and the tail of one stream in bounded memory and sends the whole to a spill once something would
 * be lost.
 */
import { limits } from "../../src/limits.ts";
import type { Truncation } from "../base.ts";
import { brokenUtf8Head, incompleteUtf8Tail, type Spill } from "./outputs.ts";

export interface CaptureOptions {
  /** Bytes kept, head and tail together. */
  readonly captureBytes: number;
  /** Makes the spill on first need. */
  readonly spill: () => Spill;
}

export class Capture {
  readonly #headBytes: number;
  readonly #tailBytes: number;
  readonly #options: CaptureOptions;
  readonly #head: Buffer[] = [];
  #headLength = 0;
  #tail: Buffer[] = [];
  #tailLength = 0;
  #total = 0;
  #spill: Spill | null = null;

  constructor(options: CaptureOptions) {
    const third = limits.captureHeadBytes / (limits.captureHeadBytes + limits.captureTailBytes);
    this.#headBytes = Math.floor(options.captureBytes * third);
    this.#tailBytes = options.captureBytes - this.#headBytes;
    this.#options = options;
  }

  get totalBytes(): number {
    return this.#total;
  }

  push(chunk: Buffer): void | Promise<void> {
    this.#total += chunk.length;
    if (!this.#spill && this.#total > this.#headBytes + this.#tailBytes) this.startSpill();
    const held = this.#spill?.write(chunk);
    let rest = chunk;
    if (this.#headLength < this.#headBytes) {
      const part = rest.subarray(0, this.#headBytes - this.#headLength);
      this.#head.push(part);
      this.#headLength += part.length;
      rest = rest.subarray(part.length);
    }
    if (rest.length > 0) {
      this.#tail.push(rest);
      this.#tailLength += rest.length;
      this.#dropOldTail();
    }
    return held;
  }

  /** Sends all that came so far, and all that follows, to the spill. Works only while nothing was lost. */
  startSpill(): Spill {
    if (!this.#spill) {
      this.#spill = this.#options.spill();
      for (const part of [...this.#head, ...this.#tail]) void this.#spill.write(part);
    }
    return this.#spill;
  }

  /** The text as it is now, decoded as UTF-8, cut only between characters. */
  read(): { readonly text: string; readonly truncated: Truncation | null } {
    const head = Buffer.concat(this.#head);
    const tail = Buffer.concat(this.#tail);
    const kept = Math.min(tail.length, this.#tailBytes);
    const lost = this.#total - head.length - kept;
    if (lost === 0) return { text: Buffer.concat([head, tail]).toString("utf8"), truncated: null };
    const last = tail.subarray(tail.length - kept);
    const headCut = incompleteUtf8Tail(head);
    const tailCut = brokenUtf8Head(last);
    const omittedBytes = lost + headCut + tailCut;
    const mark = `\n[... ${omittedBytes} of ${this.#total} bytes omitted ...]\n`;
    return {
      text: head.toString("utf8", 0, head.length - headCut) + mark + last.toString("utf8", tailCut),
      truncated: { totalBytes: this.#total, omittedBytes },
    };
  }

  #dropOldTail(): void {
    // Whole pieces only, so that a flood of small chunks costs no copying.
    while (this.#tail.length > 1 && this.#tailLength - (this.#tail[0]?.length ?? 0) >= this.#tailBytes) {
      this.#tailLength -= this.#tail.shift()?.length ?? 0;
    }
    if (this.#tail.length > 4_096) {
      const whole = Buffer.concat(this.#tail);
      this.#tail = [whole.subarray(Math.max(0, whole.length - this.#tailBytes))];
      this.#tailLength = this.#tail[0]?.length ?? 0;
    }
  }
}
