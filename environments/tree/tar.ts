/**
 * tar streams with names as bytes: a decoder for what a tar of an environment writes, and an encoder for what one
 * reads. The other side is not trusted: every header is bounded and its sum is checked, an early end is an error, and
 * nothing is ever done with an entry here but handing it on.
 */
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";

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
  let pax = new Map<string, string>();
  let ended = true;
  let count = 0;
  let records = 0;
  while (true) {
    const header = await reader.exactly(BLOCK, true);
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
    if (type === "S" || [...pax.keys()].some((key) => key.startsWith("GNU.sparse"))) {
      throw broken("it has a sparse file");
    }
    count += 1;
    if (count > maxEntries) throw broken(`it has more than ${maxEntries} entries`);
    const hasContent = TYPES[type] === "file";
    const body = reader.bounded(hasContent ? size : 0);
    yield {
      path: pax.get("path") ?? longPath ?? headerPath(header),
      type: TYPES[type] ?? "other",
      size: hasContent ? size : 0,
      mode: number(header, 100, 8) & 0o7777,
      linkTarget: pax.get("linkpath") ?? longLink ?? untilNul(header.subarray(157, 257)),
      content: body,
    };
    for await (const _ of body) {
      // What the reader of the entry left.
    }
    if (hasContent) await reader.exactly(padded(size) - size);
    else if (TYPES[type] === undefined && size > 0) await reader.skip(padded(size));
    longPath = null;
    longLink = null;
    pax = new Map();
    records = 0;
  }
}

/** Header records before one entry; tars write three at most. */
const RECORDS_MAX = 16;

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
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
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

  async skip(count: number): Promise<void> {
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
    if (this.#rest.length === 0) {
      const { done, value } = await this.#source.next();
      if (done) return null;
      this.#rest = value;
    }
    const part = this.#rest.subarray(0, count);
    this.#rest = this.#rest.subarray(part.length);
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
  const link = entry.linkTarget ?? "";
  const type = { file: "0", directory: "5", symlink: "2" }[entry.type];
  const header = headerBlock({ ...entry, uid: entry.uid ?? 0, gid: entry.gid ?? 0 }, type, link);
  if (entry.path.length <= 100 && link.length <= 100) return header;
  const long = entry.path.length > 100 ? [record("L", entry.path)] : [];
  return Buffer.concat([...long, ...(link.length > 100 ? [record("K", link)] : []), header]);
}

/** What ends an archive. */
const TAR_END: Buffer = Buffer.alloc(2 * BLOCK);

/** An archive that grows in one piece of memory. */
export class TarBatch {
  #buffer = Buffer.alloc(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** @param chunks as many bytes in all as the entry has */
  add(entry: TarHeader, chunks: readonly Uint8Array[] = []): void {
    this.#append(encodeTarHeader(entry));
    for (const chunk of chunks) this.#append(chunk);
    this.#append(ZEROS.subarray(0, padded(entry.size) - entry.size));
  }

  /** The whole archive; the next one begins. */
  take(): Buffer {
    this.#append(TAR_END);
    const archive = this.#buffer.subarray(0, this.#length);
    this.#buffer = Buffer.alloc(0);
    this.#length = 0;
    return archive;
  }

  #append(bytes: Uint8Array): void {
    const length = this.#length + bytes.length;
    if (length > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(length, 2 * this.#buffer.length, 64 * BLOCK));
      this.#buffer.copy(larger, 0, 0, this.#length);
      this.#buffer = larger;
    }
    this.#buffer.set(bytes, this.#length);
    this.#length = length;
  }
}

function record(type: string, text: string): Buffer {
  const body = Buffer.from(`${text}\0`, "latin1");
  const header = headerBlock(
    { path: "././@LongLink", size: body.length, mode: 0, modifiedAt: 0, uid: 0, gid: 0 },
    type,
    "",
  );
  return Buffer.concat([header, body], BLOCK + padded(body.length));
}

function headerBlock(
  entry: Omit<Required<TarHeader>, "type" | "linkTarget">,
  type: string,
  link: string,
): Buffer {
  const block = Buffer.alloc(BLOCK);
  block.write(entry.path.slice(0, 100), 0, "latin1");
  writeNumber(block, entry.mode, 100, 8);
  writeNumber(block, entry.uid, 108, 8);
  writeNumber(block, entry.gid, 116, 8);
  writeNumber(block, entry.size, 124, 12);
  writeNumber(block, Math.max(0, entry.modifiedAt), 136, 12);
  block.write("        ", 148, "latin1");
  block.write(type, 156, "latin1");
  block.write(link.slice(0, 100), 157, "latin1");
  block.write("ustar  \0", 257, "latin1");
  block.write(`${sumOf(block).toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

/** Octal, or base 256 for what has too many digits. */
function writeNumber(block: Buffer, value: number, at: number, length: number): void {
  const octal = value.toString(8);
  if (octal.length < length) {
    block.write(octal.padStart(length - 1, "0"), at, "latin1");
    return;
  }
  block.writeBigUInt64BE(BigInt(value), at + length - 8);
  block[at] = (block[at] ?? 0) | 0x80;
}

function number(header: Buffer, at: number, length: number): number {
  if (((header[at] ?? 0) & 0x80) !== 0) {
    let value = (header[at] ?? 0) & 0x7f;
    for (let index = 1; index < length; index += 1) value = value * 256 + (header[at + index] ?? 0);
    if (!Number.isSafeInteger(value)) throw broken("a number in it is too large");
    return value;
  }
  const text = header.toString("latin1", at, at + length).replaceAll(/[\0 ]/g, "");
  if (!/^[0-7]*$/.test(text)) throw broken("a number in it is malformed");
  return text === "" ? 0 : Number.parseInt(text, 8);
}

function decimal(text: string): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(value)) throw broken("a size in it is malformed");
  return value;
}

function checkSum(header: Buffer): void {
  if (number(header, 148, 8) !== sumOf(header)) throw broken("a header's sum is wrong");
}

function sumOf(header: Buffer): number {
  let sum = 8 * 0x20;
  for (let index = 0; index < BLOCK; index += 1) {
    if (index < 148 || index >= 156) sum += header[index] ?? 0;
  }
  return sum;
}

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
