/** Full outputs of commands on the host, for the part that a capture left out and for commands that went on. */
import { randomBytes } from "node:crypto";
import { type FileHandle, open, readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { MoorageError } from "../../src/errors.ts";
import { makePrivateFolder } from "../../src/folders.ts";
import { limits } from "../../src/limits.ts";
import type { EnvironmentOutputs, LogSlice } from "../base.ts";

/** A flood waits for the disk while it has so much to write, bytes. */
const WRITE_AHEAD_BYTES = 1_048_576;
/**
 * What comes fast is written in pieces of this size: each write is a thread's turn, and wakes us when it is done,
 * bytes.
 */
const WRITE_BYTES = 262_144;
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
  #file: FileHandle | null = null;
  #bytes = 0;
  #maxBytes: number = limits.spillMaxBytes;
  #truncated = false;
  #failed: Error | null = null;
  /** What the disk has not been given yet. */
  #pieces: Uint8Array[] = [];
  #pieceBytes = 0;
  #writing: Promise<void> | null = null;
  #closed = false;
  #timer: NodeJS.Timeout | null = null;
  /** One for all who wait for room. */
  #room: PromiseWithResolvers<void> | null = null;

  constructor(folder: string) {
    this.id = `out_${randomBytes(8).toString("hex")}`;
    this.opened = open(join(folder, `${this.id}.log`), "wx", 0o600).then(
      (file) => {
        this.#file = file;
      },
      (error: unknown) => this.#fail(error),
    );
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
    if (this.#failed || this.#closed || room === 0) return undefined;
    const part = chunk.subarray(0, room);
    this.#bytes += part.length;
    this.#pieces.push(part);
    this.#pieceBytes += part.length;
    if (this.#pieceBytes >= WRITE_BYTES) void this.#flush();
    else this.#timer ??= setTimeout(() => void this.#flush(), WRITE_AFTER_MS);
    if (this.#pieceBytes < WRITE_AHEAD_BYTES) return undefined;
    this.#room ??= Promise.withResolvers();
    return this.#room.promise;
  }

  /** What comes later is dropped. Idempotent, never rejects. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#flush();
    const file = this.#file;
    this.#file = null;
    await file?.close().catch((error: unknown) => this.#fail(error));
  }

  /** Resolves when all that was taken is written, or cannot be; never rejects. */
  #flush(): Promise<void> {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#writing ??= this.#writeAll();
    return this.#writing;
  }

  async #writeAll(): Promise<void> {
    await this.opened;
    while (this.#file && !this.#failed && this.#pieces.length > 0) {
      const pieces = this.#pieces;
      this.#pieces = [];
      this.#pieceBytes = 0;
      // What comes meanwhile fills the next write.
      this.#makeRoom();
      try {
        await writePieces(this.#file, pieces);
      } catch (error) {
        this.#fail(error);
      }
    }
    this.#writing = null;
  }

  #makeRoom(): void {
    this.#room?.resolve();
    this.#room = null;
  }

  #fail(error: unknown): void {
    this.#failed ??= error instanceof Error ? error : new Error(String(error));
    this.#pieces = [];
    this.#pieceBytes = 0;
    this.#makeRoom();
  }
}

/** The kernel takes so many pieces in one call. */
const PIECES_MAX = 1_024;

async function writePieces(file: FileHandle, pieces: readonly Uint8Array[]): Promise<void> {
  for (let from = 0; from < pieces.length; from += PIECES_MAX) {
    const some = pieces.slice(from, from + PIECES_MAX);
    const bytes = some.reduce((sum, { length }) => sum + length, 0);
    const { bytesWritten } = await file.writev(some);
    // A full disk takes a part; the next attempt says why it takes no more.
    if (bytesWritten < bytes) await file.writeFile(Buffer.concat(some).subarray(bytesWritten));
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
    let file: FileHandle;
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
