/** What a git repository's index lists, read without git. The file may be anybody's: what is not understood lists nothing. */
import { createHash } from "node:crypto";

/** Of a million files; beyond, nothing is read. */
export const INDEX_MAX_BYTES = 128 * 1024 * 1024;

const HEADER_BYTES = 12;
/** Times, device, inode, mode, owners and size of an entry, before its object's name. */
const STAT_BYTES = 40;
const MODE_AT = 24;
const FOLDER = 0o040000;
const EXTENDED = 0x4000;

/**
 * Paths that git tracks, one character per byte.
 *
 * @param readShared reads a file beside the index: one that is split names it
 * @see git's Documentation/gitformat-index.txt
 */
export function trackedPaths(
  index: Buffer,
  readShared: (name: string) => Buffer | null = () => null,
): readonly string[] {
  try {
    const { entries, end, hashBytes } = readEntries(index);
    const own = entries.filter(({ path }) => path !== "");
    return [...sharedEntries(index, end, hashBytes, readShared), ...own]
      .filter(({ isFolder }) => !isFolder)
      .map(({ path }) => path);
  } catch (error) {
    if (error instanceof RangeError) return [];
    throw error;
  }
}

interface Entry {
  /** Empty where it stands for one of the shared index. */
  readonly path: string;
  readonly isFolder: boolean;
}

const NO_ENTRIES = { entries: [], end: 0, hashBytes: 20 } as const;

/** @throws {RangeError} when it ends early */
function readEntries(index: Buffer): {
  readonly entries: readonly Entry[];
  readonly end: number;
  readonly hashBytes: number;
} {
  const version = index.toString("latin1", 0, 4) === "DIRC" ? index.readUInt32BE(4) : 0;
  const hashBytes = hashBytesOf(index);
  if (version < 2 || version > 4 || hashBytes === null) return NO_ENTRIES;
  const entries: Entry[] = [];
  let at = HEADER_BYTES;
  let last = "";
  for (let left = index.readUInt32BE(8); left > 0; left -= 1) {
    const start = at;
    const mode = index.readUInt32BE(at + MODE_AT);
    at += STAT_BYTES + hashBytes;
    at += (index.readUInt16BE(at) & EXTENDED) === 0 ? 2 : 4;
    let kept = "";
    if (version === 4) {
      const [cut, next] = readNumber(index, at);
      kept = last.slice(0, Math.max(0, last.length - cut));
      at = next;
    }
    const end = index.indexOf(0, at);
    if (end < 0) throw new RangeError("The index ends early");
    last = kept + index.toString("latin1", at, end);
    // An entry of the older versions is filled up to eight bytes, with one at least.
    at = version === 4 ? end + 1 : start + ((end - start + 8) & ~7);
    entries.push({ path: last, isFolder: (mode & 0o170000) === FOLDER });
  }
  return { entries, end: at, hashBytes };
}

/** What a split index takes over from the one that it shares with others. */
function sharedEntries(
  index: Buffer,
  start: number,
  hashBytes: number,
  readShared: (name: string) => Buffer | null,
): readonly Entry[] {
  for (let at = start; at + 8 <= index.length - hashBytes; ) {
    const body = at + 8;
    const end = body + index.readUInt32BE(at + 4);
    if (index.toString("latin1", at, at + 4) !== "link") {
      at = end;
      continue;
    }
    const name = index.toString("hex", body, body + hashBytes);
    const shared = /^0+$/.test(name) ? null : readShared(`sharedindex.${name}`);
    if (!shared) return [];
    const gone = body + hashBytes < end ? bitsIn(index.subarray(body + hashBytes, end)) : new Set<number>();
    return readEntries(shared).entries.filter((_, position) => !gone.has(position));
  }
  return [];
}

/** Numbers of the bits that are set in a compressed bitmap. @see git's ewah/ewok.h for the form */
function bitsIn(bitmap: Buffer): ReadonlySet<number> {
  const bits = new Set<number>();
  const count = bitmap.readUInt32BE(0);
  let words = bitmap.readUInt32BE(4);
  let position = 0;
  const add = (word: bigint) => {
    for (let bit = 0; bit < 64 && position + bit < count; bit += 1)
      if (((word >> BigInt(bit)) & 1n) !== 0n) bits.add(position + bit);
    position += 64;
  };
  for (let at = 8; words > 0; ) {
    const head = bitmap.readBigUInt64BE(at);
    at += 8;
    words -= 1;
    const same = Number((head >> 1n) & 0xffff_ffffn);
    // A run of what is not set can be as long as it says; one of what is set ends with the bitmap.
    if ((head & 1n) === 0n) position += 64 * same;
    else for (let left = same; left > 0 && position < count; left -= 1) add(~0n);
    for (let literals = Number(head >> 33n); literals > 0 && words > 0; literals -= 1, words -= 1) {
      add(bitmap.readBigUInt64BE(at));
      at += 8;
    }
  }
  return bits;
}

/** The length of its objects' names, by the checksum at its end; git may leave that out. Null when it is damaged. */
function hashBytesOf(index: Buffer): 20 | 32 | null {
  for (const [algorithm, bytes] of [
    ["sha1", 20],
    ["sha256", 32],
  ] as const) {
    const sum = index.subarray(-bytes);
    if (createHash(algorithm).update(index.subarray(0, -bytes)).digest().equals(sum)) return bytes;
  }
  return index.subarray(-20).every((byte) => byte === 0) ? 20 : null;
}

/** A number as git writes it where it is short, and where the next thing begins. */
function readNumber(bytes: Buffer, start: number): readonly [value: number, next: number] {
  let at = start;
  let byte = bytes.readUInt8(at++);
  let value = byte & 127;
  while ((byte & 128) !== 0) {
    byte = bytes.readUInt8(at++);
    value = (value + 1) * 128 + (byte & 127);
  }
  return [value, at];
}
