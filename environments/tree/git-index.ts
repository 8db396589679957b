/** What a git repository's index lists, read without git. The file may be anybody's: what is not understood lists nothing. */
import { createHash } from "node:crypto";

/** Of a repository in the root of a tree. */
export const INDEX_FILE = ".git/index";
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
 * @see git's Documentation/gitformat-index.txt
 */
export function trackedPaths(index: Buffer): readonly string[] {
  try {
    return readEntries(index);
  } catch (error) {
    if (error instanceof RangeError) return [];
    throw error;
  }
}

/** @throws {RangeError} when it ends early */
function readEntries(index: Buffer): string[] {
  const version = index.toString("latin1", 0, 4) === "DIRC" ? index.readUInt32BE(4) : 0;
  const hashBytes = hashBytesOf(index);
  if (version < 2 || version > 4 || hashBytes === null) return [];
  const paths: string[] = [];
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
    if ((mode & 0o170000) !== FOLDER) paths.push(last);
  }
  return paths;
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
