/**
 * tar streams with names as bytes: a decoder for what a tar of an environment writes, and an encoder for what one
 * reads. The other side is not trusted: every header is bounded and its sum is checked, an early end is an error, and
 * nothing is ever done with an entry here but handing it on.
 */
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { onlyChunk } from "./content.ts";

const BLOCK = 512;
const ZEROS = Buffer.alloc(BLOCK);

/** One entry of an archive. Names have one character per byte, as they stand in the archive. */
export interface TarEntry {
  readonly path: string;
  readonly type: "file" | "directory" | "symlink" | "hardlink" | "other";
  readonly size: number;
  readonly mode: number;
  readonly linkTarget: string;
  /** To be read before the next entry is asked for; what is left is skipped. */
  readonly content: AsyncIterable<Buffer>;
  /** The same at once, of a small file. */
  readonly bytes?: Buffer;
}

/**
 * Reads archives, also several one after the other.
 *
 * @throws {MoorageError} INTERNAL for what is no archive, ends early, is sparse, or has headers beyond all measure
 */
export async function* decodeTar(
  source: AsyncIterable<Buffer>,
  { maxEntries = limits.treeMaxEntries }: { readonly maxEntries?: number } = {},
): AsyncGenerator<TarEntry> {
  const reader = new ByteReader(source);
  let longPath: string | null = null;
  let longLink: string | null = null;
  let pax = NO_RECORDS;
  let ended = true;
  let count = 0;
  let records = 0;
  while (true) {
    const header = reader.now(BLOCK) ?? (await reader.exactly(BLOCK, true));
    if (header === null) {
      if (ended) return;
      throw broken("it ends without its end mark");
    }
    if (header.equals(ZEROS)) {
      ended = true;
      continue;
    }
    ended = false;
    checkSum(header);
    const type = String.fromCharCode(header[156] ?? 0);
    const size =
      pax.has("size") && !META.has(type) ? decimal(pax.get("size") ?? "") : number(header, 124, 12);
    if (META.has(type)) {
      records += 1;
      if (records > RECORDS_MAX) throw broken("it has header records without end");
      if (size > limits.tarRecordMaxBytes) throw broken(`a header record has ${size} bytes`);
      const body = (await reader.exactly(padded(size)))?.subarray(0, size) ?? Buffer.alloc(0);
      if (type === "L") longPath = untilNul(body);
      else if (type === "K") longLink = untilNul(body);
      else if (type === "x") pax = parsePax(body);
      continue;
    }
    if (type === "S" || (pax.size > 0 && [...pax.keys()].some((key) => key.startsWith("GNU.sparse")))) {
      throw broken("it has a sparse file");
    }
    count += 1;
    if (count > maxEntries) throw broken(`it has more than ${maxEntries} entries`);
    const hasContent = TYPES[type] === "file";
    const bytes =
      hasContent && size <= WHOLE_MAX_BYTES ? (reader.now(size) ?? (await reader.exactly(size))) : null;
    const body = bytes ? onlyChunk(bytes) : reader.bounded(hasContent ? size : 0);
    yield {
      path: pax.get("path") ?? longPath ?? headerPath(header),
      type: TYPES[type] ?? "other",
      size: hasContent ? size : 0,
      mode: number(header, 100, 8) & 0o7777,
      linkTarget: pax.get("linkpath") ?? longLink ?? untilNul(header.subarray(157, 257)),
      content: body,
      ...(bytes && { bytes }),
    };
    if (!bytes)
      for await (const _ of body) {
        // What the reader of the entry left.
      }
    if (hasContent) await reader.skip(padded(size) - size);
    else if (TYPES[type] === undefined && size > 0) await reader.skip(padded(size));
    longPath = null;
    longLink = null;
    pax = NO_RECORDS;
    records = 0;
  }
}

/** A content of so many bytes comes at once. */
const WHOLE_MAX_BYTES = 256 * 1024;

/** Header records before one entry; tars write three at most. */
const RECORDS_MAX = 16;

const NO_RECORDS: ReadonlyMap<string, string> = new Map();

const TYPE_OF = { file: "0", directory: "5", symlink: "2" } as const;
const META: ReadonlySet<string> = new Set(["L", "K", "x", "g"]);
const TYPES: Readonly<Record<string, TarEntry["type"]>> = {
  "0": "file",
  "\0": "file",
  "7": "file",
  "1": "hardlink",
  "2": "symlink",
  "3": "other",
  "4": "other",
  "5": "directory",
  "6": "other",
};

/** Bytes of a source by number, whatever its chunks are. */
class ByteReader {
  readonly #source: AsyncIterator<Buffer>;
  #chunk: Buffer = Buffer.alloc(0);
  #at = 0;

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** @returns null when they have not all come yet */
  now(count: number): Buffer | null {
    if (this.#chunk.length - this.#at < count) return null;
    this.#at += count;
    return this.#chunk.subarray(this.#at - count, this.#at);
  }

  /** @returns null at a clean end, where `mayEnd` allows it */
  async exactly(count: number, mayEnd = false): Promise<Buffer | null> {
    const parts: Buffer[] = [];
    let missing = count;
    while (missing > 0) {
      const part = await this.#upTo(missing);
      if (part === null) {
        if (mayEnd && missing === count) return null;
        throw broken("it ends early");
      }
      parts.push(part);
      missing -= part.length;
    }
    const [only] = parts;
    return only && parts.length === 1 ? only : Buffer.concat(parts);
  }

  /** @returns what is to be waited for, if anything */
  skip(count: number): Promise<void> | undefined {
    if (this.#chunk.length - this.#at < count) return this.#skipSlowly(count);
    this.#at += count;
    return undefined;
  }

  async #skipSlowly(count: number): Promise<void> {
    for (let left = count; left > 0; ) {
      const part = await this.#upTo(left);
      if (part === null) throw broken("it ends early");
      left -= part.length;
    }
  }

  /** The next `count` bytes as a sequence that can be taken up again where it was left. */
  bounded(count: number): AsyncIterable<Buffer> {
    let left = count;
    const next = async (): Promise<IteratorResult<Buffer>> => {
      if (left === 0) return { done: true, value: undefined };
      const part = await this.#upTo(left);
      if (part === null) throw broken("it ends early");
      left -= part.length;
      return { done: false, value: part };
    };
    return { [Symbol.asyncIterator]: () => ({ next }) };
  }

  async #upTo(count: number): Promise<Buffer | null> {
    if (this.#at === this.#chunk.length) {
      const { done, value } = await this.#source.next();
      if (done) return null;
      this.#chunk = value;
      this.#at = 0;
    }
    const part = this.#chunk.subarray(this.#at, this.#at + count);
    this.#at += part.length;
    return part;
  }
}

export interface TarHeader {
  readonly path: string;
  readonly type: "file" | "directory" | "symlink";
  readonly size: number;
  readonly mode: number;
  readonly modifiedAt: number;
  readonly linkTarget?: string;
  readonly uid?: number;
  readonly gid?: number;
}

/** Everything before an entry's content. Long names are GNU records, which GNU tar and BusyBox both read as bytes. */
export function encodeTarHeader(entry: TarHeader): Buffer {
  const header = Buffer.alloc(headerBytes(entry));
  writeHeader(header, 0, entry);
  return header;
}

function headerBytes({ path, linkTarget = "" }: TarHeader): number {
  const record = (text: string) => (text.length > NAME_BYTES ? BLOCK + padded(text.length + 1) : 0);
  return record(path) + record(linkTarget) + BLOCK;
}

/** @returns where the content begins */
function writeHeader(archive: Buffer, start: number, entry: TarHeader): number {
  const { path, linkTarget = "" } = entry;
  let at = start;
  if (path.length > NAME_BYTES) at = writeRecord(archive, at, "L", path);
  if (linkTarget.length > NAME_BYTES) at = writeRecord(archive, at, "K", linkTarget);
  return writeBlock(archive, at, entry, TYPE_OF[entry.type], linkTarget);
}

/** Of a name in a header itself; a longer one is cut there, and stands in a record before. */
const NAME_BYTES = 100;

/** What ends an archive: zeros. */
const TAR_END_BYTES = 2 * BLOCK;

/** An archive that grows in one piece of memory. */
export class TarBatch {
  #buffer: Buffer = Buffer.alloc(0);
  #length = 0;
  /** Of archives that are not needed any more: fresh memory costs more than what is written to it. */
  readonly #spares: Buffer[] = [];
  /** Of the last archive: the next one most often needs as much, and to grow costs as much as to write. */
  #lastLength = 0;

  get length(): number {
    return this.#length;
  }

  /** @param chunks as many bytes in all as the entry has */
  add(entry: TarHeader, chunks: readonly Uint8Array[] = []): void {
    this.#makeRoom(headerBytes(entry) + padded(entry.size));
    let at = writeHeader(this.#buffer, this.#length, entry);
    for (const chunk of chunks) {
      this.#buffer.set(chunk, at);
      at += chunk.length;
    }
    this.#length = at + padded(entry.size) - entry.size;
    this.#buffer.fill(0, at, this.#length);
  }

  /** The whole archive; the next one begins. */
  take(): Buffer {
    this.#makeRoom(TAR_END_BYTES);
    const end = this.#length + TAR_END_BYTES;
    const archive = this.#buffer.fill(0, this.#length, end).subarray(0, end);
    this.#buffer = Buffer.alloc(0);
    this.#length = 0;
    this.#lastLength = Math.min(end, KEPT_MAX_BYTES);
    return archive;
  }

  /** Gives the memory of an archive back that was taken and is not needed any more. */
  recycle(archive: Buffer): void {
    // None is from Node's pool of small ones, so it is all its own.
    if (archive.buffer.byteLength > KEPT_MAX_BYTES) return;
    this.#spares.push(Buffer.from(archive.buffer));
    if (this.#spares.length <= SPARES_MAX) return;
    this.#spares.sort((a, b) => b.length - a.length).pop();
  }

  #makeRoom(bytes: number): void {
    const length = this.#length + bytes;
    if (length <= this.#buffer.length) return;
    const wanted = Math.max(length, this.#lastLength);
    const spare = this.#spares.findIndex((each) => each.length >= wanted);
    const [kept] = spare < 0 ? [] : this.#spares.splice(spare, 1);
    const larger = kept ?? Buffer.allocUnsafe(Math.max(wanted, 2 * this.#buffer.length, MIN_BYTES));
    this.#buffer.copy(larger, 0, 0, this.#length);
    this.#buffer = larger;
  }
}

/** First size of an archive in memory, and the largest one whose memory is used again. */
const MIN_BYTES = 64 * BLOCK;
const KEPT_MAX_BYTES = 8 * 1024 * 1024;
/** One for the archive that grows while two are on their way. */
const SPARES_MAX = 2;

/** @returns where what follows begins */
function writeRecord(archive: Buffer, at: number, type: string, text: string): number {
  const size = text.length + 1;
  const start = writeBlock(archive, at, { path: "././@LongLink", size, mode: 0, modifiedAt: 0 }, type, "");
  const end = start + padded(size);
  archive.fill(0, start + archive.write(text, start, "latin1"), end);
  return end;
}

/** @returns where what follows begins */
function writeBlock(
  archive: Buffer,
  at: number,
  entry: Omit<TarHeader, "type" | "linkTarget">,
  type: string,
  link: string,
): number {
  archive.set(EMPTY_HEADER, at);
  const typeByte = type.charCodeAt(0);
  archive[at + 156] = typeByte;
  const sum =
    EMPTY_SUM +
    typeByte +
    writeName(archive, at, entry.path) +
    writeNumber(archive, entry.mode, at + 100, 8) +
    writeNumber(archive, entry.uid ?? 0, at + 108, 8) +
    writeNumber(archive, entry.gid ?? 0, at + 116, 8) +
    writeNumber(archive, entry.size, at + 124, 12) +
    writeNumber(archive, Math.max(0, entry.modifiedAt), at + 136, 12) +
    writeName(archive, at + 157, link);
  writeNumber(archive, sum, at + SUM_AT, 7);
  archive[at + 155] = SPACE;
  return at + BLOCK;
}

/** A few characters are written faster here than by a call of Buffer's. @returns the sum of its bytes */
function writeName(archive: Buffer, at: number, name: string): number {
  const length = Math.min(name.length, NAME_BYTES);
  let sum = 0;
  for (let index = 0; index < length; index += 1) {
    const byte = name.charCodeAt(index) & 0xff;
    archive[at + index] = byte;
    sum += byte;
  }
  return sum;
}

const SPACE = " ".charCodeAt(0);
const ZERO = "0".charCodeAt(0);

/** Octal, or base 256 for what has too many digits. @returns the sum of its bytes */
function writeNumber(archive: Buffer, value: number, at: number, length: number): number {
  let sum = 0;
  if (value >= 8 ** (length - 1)) {
    archive.writeBigUInt64BE(BigInt(value), at + length - 8);
    archive[at] = (archive[at] ?? 0) | 0x80;
    for (let place = at; place < at + length; place += 1) sum += archive[place] ?? 0;
    return sum;
  }
  let place = at + length - 2;
  // Beyond what a shift can hold; then by shifts, which are faster.
  let left = value;
  for (; left >= 2 ** 31; place -= 1) {
    const digit = ZERO + (left % 8);
    archive[place] = digit;
    sum += digit;
    left = Math.floor(left / 8);
  }
  for (; place >= at; place -= 1) {
    const digit = ZERO + (left & 7);
    archive[place] = digit;
    sum += digit;
    left >>= 3;
  }
  return sum;
}

function number(header: Buffer, at: number, length: number): number {
  if (((header[at] ?? 0) & 0x80) !== 0) {
    let value = (header[at] ?? 0) & 0x7f;
    for (let index = 1; index < length; index += 1) value = value * 256 + (header[at + index] ?? 0);
    if (!Number.isSafeInteger(value)) throw broken("a number in it is too large");
    return value;
  }
  let value = 0;
  for (let index = at; index < at + length; index += 1) {
    const byte = header[index] ?? 0;
    if (byte === 0 || byte === SPACE) continue;
    const digit = byte - ZERO;
    if (!(digit >= 0 && digit <= 7)) throw broken("a number in it is malformed");
    value = value * 8 + digit;
  }
  return value;
}

function decimal(text: string): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(value)) throw broken("a size in it is malformed");
  return value;
}

function checkSum(header: Buffer): void {
  if (number(header, 148, 8) !== sumOf(header)) throw broken("a header's sum is wrong");
}

/** As if the sum's own place held spaces. */
function sumOf(header: Buffer): number {
  let sum = 8 * SPACE;
  for (let index = 0; index < SUM_AT; index += 1) sum += header[index] ?? 0;
  for (let index = SUM_AT + 8; index < BLOCK; index += 1) sum += header[index] ?? 0;
  return sum;
}

const SUM_AT = 148;
const EMPTY_HEADER = Buffer.alloc(BLOCK);
EMPTY_HEADER.write("ustar  ", 257, "latin1");
const EMPTY_SUM = sumOf(EMPTY_HEADER);

/** GNU archives use the space of POSIX's prefix for times. */
function headerPath(header: Buffer): string {
  const name = untilNul(header.subarray(0, 100));
  if (header.toString("latin1", 257, 263) !== "ustar\0") return name;
  const prefix = untilNul(header.subarray(345, 500));
  return prefix === "" ? name : `${prefix}/${name}`;
}

function parsePax(body: Buffer): Map<string, string> {
  const records = new Map<string, string>();
  const text = body.toString("latin1");
  for (let at = 0; at < text.length; ) {
    const [, digits = ""] = /^(\d{1,7}) /.exec(text.slice(at, at + 9)) ?? [];
    const length = Number(digits);
    const entry = text.slice(at + digits.length + 1, at + length - 1);
    const equals = entry.indexOf("=");
    if (digits === "" || length <= digits.length || text[at + length - 1] !== "\n" || equals < 0) {
      throw broken("an extended header is malformed");
    }
    records.set(entry.slice(0, equals), entry.slice(equals + 1));
    at += length;
  }
  return records;
}

function untilNul(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString("latin1", 0, end < 0 ? bytes.length : end);
}

function padded(size: number): number {
  return Math.ceil(size / BLOCK) * BLOCK;
}

function broken(reason: string): MoorageError {
  return new MoorageError("INTERNAL", `Cannot read an archive of the environment: ${reason}`);
}
