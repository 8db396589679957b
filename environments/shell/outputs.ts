/** Full outputs of commands on the host, for the part that a capture left out and for commands that went on. */
import { randomBytes } from "node:crypto";
import { createWriteStream, type WriteStream } from "node:fs";
import { open, readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { MoorageError } from "../../src/errors.ts";
import { makePrivateFolder } from "../../src/folders.ts";
import { limits } from "../../src/limits.ts";
import type { EnvironmentOutputs, LogSlice } from "../base.ts";

/** A flood waits for the disk once in this many bytes, and what came meanwhile is written at once. */
const WRITE_AHEAD_BYTES = 4_194_304;
/** A flood is written in pieces of this size: each write is a thread's work, and wakes us when it is done, bytes. */
const WRITE_BYTES = 524_288;
/** What comes slowly can be read after so long, milliseconds. */
const WRITE_AFTER_MS = 5;

const ID = /^out_[0-9a-f]{16}$/;

/** Number of bytes at the end of `bytes` that begin a UTF-8 character which is not complete. */
export function incompleteUtf8Tail(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte < 0x80) return 0;
    if (byte >= 0xc0) {
      const needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return needed > back ? back : 0;
    }
  }
  return 0;
}

/** Number of bytes at the start of `bytes` that continue a character which began before. */
export function brokenUtf8Head(bytes: Uint8Array): number {
  let at = 0;
  while (at < Math.min(3, bytes.length) && ((bytes[at] ?? 0) & 0xc0) === 0x80) at += 1;
  return at;
}

/** One file that takes a command's whole output, up to `limits.spillMaxBytes` or what it is limited to. */
export class Spill {
  readonly id: string;
  /** Resolves once it can be read, or cannot be made. */
  readonly opened: Promise<void>;
  readonly #file: WriteStream;
  #bytes = 0;
  #maxBytes: number = limits.spillMaxBytes;
  #truncated = false;
  #failed: Error | null = null;
  /** One for all who wait. */
  #drain: Promise<void> | null = null;
  /** Set while what comes is gathered. */
  #flushing: NodeJS.Timeout | null = null;

  constructor(folder: string) {
    this.id = `out_${randomBytes(8).toString("hex")}`;
    this.#file = createWriteStream(join(folder, `${this.id}.log`), {
      flags: "wx",
      mode: 0o600,
      highWaterMark: WRITE_AHEAD_BYTES,
    });
    this.#file.on("error", (error) => {
      this.#failed = error;
    });
    this.opened = new Promise((resolve) => {
      this.#file.once("open", () => resolve()).once("error", () => resolve());
    });
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Whether bytes beyond the limit were dropped. */
  get truncated(): boolean {
    return this.#truncated;
  }

  /** From now on nothing is taken beyond so many bytes in all; what is there stays. */
  limitTo(maxBytes: number): void {
    this.#maxBytes = maxBytes;
  }

  /** Why the file is not whole, when it is not. */
  get failure(): Error | null {
    return this.#failed;
  }

  /** Resolves when the disk has room for more, so that a flood is held back and not kept in memory. */
  write(chunk: Uint8Array): void | Promise<void> {
    const room = Math.max(0, this.#maxBytes - this.#bytes);
    if (chunk.length > room) this.#truncated = true;
    if (this.#failed || room === 0) return undefined;
    const part = chunk.subarray(0, room);
    this.#bytes += part.length;
    this.#gather();
    const hasRoom = this.#file.write(part);
    if (this.#file.writableLength >= WRITE_BYTES) this.#flush();
    if (hasRoom) return undefined;
    this.#drain ??= new Promise<void>((resolve) => {
      const go = () => {
        this.#file.off("drain", go).off("error", go).off("finish", go);
        this.#drain = null;
        resolve();
      };
      // A file that is ended tells of no more room.
      this.#file.once("drain", go).once("error", go).once("finish", go);
    });
    return this.#drain;
  }

  close(): Promise<void> {
    this.#flush();
    return new Promise((resolve) => {
      if (this.#failed || this.#file.closed) return resolve();
      this.#file.once("error", () => resolve());
      this.#file.end(() => resolve());
    });
  }

  #gather(): void {
    if (this.#flushing) return;
    this.#file.cork();
    this.#flushing = setTimeout(() => this.#flush(), WRITE_AFTER_MS);
  }

  #flush(): void {
    if (!this.#flushing) return;
    clearTimeout(this.#flushing);
    this.#flushing = null;
    this.#file.uncork();
  }
}

export class OutputStore implements EnvironmentOutputs {
  readonly #folder: string;
  #ready: Promise<void> | null = null;

  constructor(stateDir: string) {
    this.#folder = join(stateDir, "outputs");
  }

  /** Makes the folder, once, and removes what is older than `limits.spillMaxAgeMs`. */
  prepare(): Promise<void> {
    this.#ready ??= (async () => {
      await makePrivateFolder(this.#folder);
      for (const name of await readdir(this.#folder)) {
        const path = join(this.#folder, name);
        try {
          if (Date.now() - (await stat(path)).mtimeMs > limits.spillMaxAgeMs) await rm(path, { force: true });
        } catch (error) {
          // Another orchestrator prunes the same folder.
          if (!(error instanceof Error && "code" in error && error.code === "ENOENT")) throw error;
        }
      }
    })();
    return this.#ready;
  }

  create(): Spill {
    return new Spill(this.#folder);
  }

  async read(
    id: string,
    options: { readonly offset?: number; readonly maxBytes?: number } = {},
  ): Promise<LogSlice> {
    const missing = () =>
      new MoorageError("PROCESS_MISSING", `Cannot read output "${id}": there is no such output`);
    if (!ID.test(id)) throw missing();
    const { maxBytes = 65_536 } = options;
    let file: Awaited<ReturnType<typeof open>>;
    try {
      file = await open(join(this.#folder, `${id}.log`), "r");
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") throw missing();
      throw error;
    }
    try {
      const { size } = await file.stat();
      const asked = options.offset ?? 0;
      const start = Math.min(size, asked < 0 ? Math.max(0, size + asked) : asked);
      const buffer = Buffer.alloc(Math.max(0, Math.min(maxBytes, size - start)));
      const { bytesRead } = await file.read(buffer, 0, buffer.length, start);
      const bytes = buffer.subarray(0, bytesRead);
      const head = start > 0 ? brokenUtf8Head(bytes) : 0;
      const tail = start + bytesRead < size ? incompleteUtf8Tail(bytes) : 0;
      return {
        text: bytes.toString("utf8", head, bytes.length - tail),
        offset: start + head,
        nextOffset: start + bytesRead - tail,
        totalBytes: size,
      };
    } finally {
      await file.close();
    }
  }
}
