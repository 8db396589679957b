// @ts-check
/**
 * Copies files from one folder of this machine to another and tells what it read. Plain JavaScript, since threads run it
 * as well, and each would need as long to strip types as it takes to copy three thousand files.
 */
import { createHash, hash } from "node:crypto";
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  futimesSync,
  openSync,
  readlinkSync,
  readSync,
  writeSync,
} from "node:fs";

const BEYOND_ASCII = /[^\0-\x7f]/;
/** Bytes read at once; one buffer of a thread for all files. */
const CHUNK_BYTES = 256 * 1024;
/** Without O_NONBLOCK a pipe in the place of a file would be waited for. */
const READ_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const WRITE_FLAGS = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const FOLDER_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const KINDS = 0o170000;
const FILE_KIND = 0o100000;
/** Added of one file at most, so that the sum stays a number of 32 bits. */
const MAX_KIBIBYTES = 2 ** 28;
/** What the system says of a file that went away, may not be read, or has a name that no file can have. */
const LEFT_OUT = new Set("ENOENT ENOTDIR ELOOP EACCES EPERM ENXIO ENAMETOOLONG EILSEQ EINVAL".split(" "));

/**
 * Places in the numbers that threads share: the next piece; whether to stop at once, where nothing is used of what was
 * done; whether there was too much, so that nothing more is begun; files done; KiB read.
 */
export const NEXT = 0;
export const STOP = 1;
export const LEFT = 2;
export const FILES = 3;
export const KIBIBYTES = 4;
export const SHARED_COUNT = 5;

/** A copy that is not to be had this way. */
export class NotPlain extends Error {}

/**
 * A way of folders below a root, each open and entered without following a link, so that what is renamed or replaced by
 * a link meanwhile leads nowhere else. Paths hold one character per byte. For Linux.
 */
export class Way {
  #descriptors = `/proc/${readlinkSync("/proc/self")}/fd`;
  #root;
  /** @type {{ readonly part: string, readonly fd: number }[]} */
  #entered = [];

  /** @param {number} root descriptor of a folder; it stays open */
  constructor(root) {
    this.#root = root;
  }

  /** Descriptor of the folder that was entered last. */
  get fd() {
    return this.#entered.at(-1)?.fd ?? this.#root;
  }

  /** How names of that folder begin for the file system. */
  get prefix() {
    return `${this.#descriptors}/${this.fd}/`;
  }

  /**
   * @param {string} path of a folder, empty for the root
   * @returns the prefix of the names in it
   */
  enter(path) {
    const parts = path === "" ? [] : path.split("/");
    let same = 0;
    while (same < parts.length && parts[same] === this.#entered[same]?.part) same += 1;
    this.#leave(same);
    for (const part of parts.slice(same)) {
      const fd = openSync(named(this.prefix, part), FOLDER_FLAGS);
      this.#entered.push({ part, fd });
    }
    return this.prefix;
  }

  [Symbol.dispose]() {
    this.#leave(0);
  }

  /** @param {number} depth of the folder that is left open */
  #leave(depth) {
    for (const { fd } of this.#entered.splice(depth).reverse()) closeSync(fd);
  }
}

/**
 * What to hand to the file system for a name of bytes; a text costs a fifth of what bytes do.
 *
 * @param {string} prefix
 * @param {string} name
 */
export function named(prefix, name) {
  return BEYOND_ASCII.test(name)
    ? Buffer.concat([Buffer.from(prefix), Buffer.from(name, "latin1")])
    : prefix + name;
}

/** A folder of the host. @param {string | Buffer} path real, since nothing on the way is looked at */
export function openFolder(path) {
  return openSync(path, FOLDER_FLAGS);
}

/**
 * @typedef {object} Piece
 * @property {string} folder
 * @property {string} names of files in it, joined by slashes
 */

/**
 * @typedef {object} CopyWork
 * @property {number} from descriptor of the root that is read
 * @property {number} to descriptor of the root that is written to; the folders are there, and no file of theirs
 * @property {readonly Piece[]} pieces whoever is free takes the next one
 * @property {Int32Array} shared see `NEXT`
 * @property {number} maxBytes no file is begun that would make it more, but for the first
 * @property {string} separator joins records of files
 * @property {bigint} settledNs what changed before proves by its stamp that it has not changed since, nanoseconds
 * @property {bigint} coarseSettledNs the same where the file system's clock tells no fraction
 */

/**
 * @typedef {object} Copied
 * @property {string[]} records joined ones: of each file its path, the words `file`, mode in octal and SHA-256 in hex, and its
 * stamp, each ended by NUL but for the last; an empty stamp where that proves nothing
 * @property {string[]} unreadable paths
 */

/**
 * Copies piece after piece until none is left: content, permission bits and time in whole seconds. A sequence, so that
 * others get their turn in between.
 *
 * @param {CopyWork} work
 * @param {Copied} copied what is done is added
 * @throws errors of the file system but for a source file that cannot be read, and when one became shorter
 */
export function* copyPieces(work, copied) {
  const { pieces, shared } = work;
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  const from = new Way(work.from);
  const to = new Way(work.to);
  try {
    for (;;) {
      const piece = pieces[Atomics.add(shared, NEXT, 1)];
      if (!piece || Atomics.load(shared, LEFT) !== 0) return;
      const place = {
        path: piece.folder === "" ? "" : `${piece.folder}/`,
        source: from.enter(piece.folder),
        target: to.enter(piece.folder),
        asked: new Map(),
      };
      const names = piece.names.split("/");
      /** @type {string[]} */
      const records = [];
      for (const name of names) {
        const file = openFile(work, place, name);
        if (file === null) copied.unreadable.push(place.path + name);
        else if (file === undefined) break;
        else if (file.size <= CHUNK_BYTES) records.push(copySmall(work, place, file, buffer));
        else records.push(yield* copyLarge(work, place, file, buffer));
        if (Atomics.load(shared, STOP) !== 0) return;
      }
      if (records.length > 0) copied.records.push(records.join(work.separator));
      Atomics.add(shared, FILES, names.length);
      yield;
      if (Atomics.load(shared, STOP) !== 0) return;
    }
  } finally {
    from[Symbol.dispose]();
    to[Symbol.dispose]();
  }
}

/**
 * @typedef {object} Place
 * @property {string} path of the folder, and a slash; empty for the root
 * @property {string} source prefix of names that are read
 * @property {string} target prefix of names that are written
 * @property {Map<number, boolean>} asked see `setMode`
 */

/**
 * @typedef {object} OpenFile
 * @property {string} name
 * @property {number} fd
 * @property {number} size
 * @property {number} bits
 * @property {import("node:fs").BigIntStats} stat
 */

/**
 * @param {CopyWork} work
 * @param {Place} place
 * @param {string} name
 * @returns {OpenFile | null | undefined} null for what cannot be read, undefined when it would be too much
 */
function openFile({ shared, maxBytes }, place, name) {
  const fd = openToRead(named(place.source, name));
  if (fd === null) return null;
  try {
    const stat = fstatSync(fd, { bigint: true });
    const mode = Number(stat.mode);
    const size = Number(stat.size);
    if ((mode & KINDS) === FILE_KIND) {
      const kibibytes = Math.ceil(size / 1024);
      const before = Atomics.add(shared, KIBIBYTES, Math.min(kibibytes, MAX_KIBIBYTES));
      if (before === 0 || before + kibibytes <= maxBytes / 1024)
        return { name, fd, size, bits: mode & 0o777, stat };
      Atomics.store(shared, LEFT, 1);
      closeSync(fd);
      return undefined;
    }
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  closeSync(fd);
  return null;
}

/**
 * @param {CopyWork} work
 * @param {Place} place
 * @param {OpenFile} file
 * @param {Buffer} buffer
 * @returns its record
 */
function copySmall(work, place, file, buffer) {
  const { fd, size } = file;
  try {
    fill(fd, buffer, size, 0);
  } finally {
    closeSync(fd);
  }
  const bytes = buffer.subarray(0, size);
  const written = openSync(named(place.target, file.name), WRITE_FLAGS, file.bits);
  try {
    writeAll(written, bytes);
    return finished(work, place, file, written, hash("sha256", bytes));
  } finally {
    closeSync(written);
  }
}

/**
 * @param {CopyWork} work
 * @param {Place} place
 * @param {OpenFile} file
 * @param {Buffer} buffer
 * @returns {Generator<void, string>} its record; nothing of use when it was stopped
 */
function* copyLarge(work, place, file, buffer) {
  const { fd, size } = file;
  try {
    const written = openSync(named(place.target, file.name), WRITE_FLAGS, file.bits);
    try {
      const sum = createHash("sha256");
      for (let at = 0; at < size; at += CHUNK_BYTES) {
        const bytes = buffer.subarray(0, Math.min(CHUNK_BYTES, size - at));
        fill(fd, bytes, bytes.length, at);
        sum.update(bytes);
        writeAll(written, bytes);
        yield;
        if (Atomics.load(work.shared, STOP) !== 0) return "";
      }
      return finished(work, place, file, written, sum.digest("hex"));
    } finally {
      closeSync(written);
    }
  } finally {
    closeSync(fd);
  }
}

/**
 * Gives what was written its time and mode.
 *
 * @param {CopyWork} work
 * @param {Place} place
 * @param {OpenFile} file
 * @param {number} written
 * @param {string} sum
 * @returns its record
 */
function finished(work, { path, asked }, { name, bits, stat }, written, sum) {
  const modifiedAt = Math.max(0, Number(stat.mtimeNs / 1_000_000_000n));
  futimesSync(written, modifiedAt, modifiedAt);
  setMode(written, bits, asked);
  return `${path}${name}\0file ${bits.toString(8)} ${sum}\0${settledStamp(stat, work)}`;
}

/** @param {string | Buffer} at */
function openToRead(at) {
  try {
    return openSync(at, READ_FLAGS);
  } catch (error) {
    if (error instanceof Error && "code" in error && LEFT_OUT.has(String(error.code))) return null;
    throw error;
  }
}

/**
 * @param {number} fd
 * @param {Buffer} buffer
 * @param {number} length
 * @param {number} position
 */
function fill(fd, buffer, length, position) {
  for (let at = 0; at < length; ) {
    const bytes = readSync(fd, buffer, at, length - at, position + at);
    if (bytes === 0) throw new NotPlain("a file became shorter while it was read");
    at += bytes;
  }
}

/**
 * @param {number} fd
 * @param {Buffer} bytes
 */
function writeAll(fd, bytes) {
  for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at, bytes.length - at);
}

/**
 * A file is made with its bits but for those that the umask, or a default list of the folder, takes away. They do so with
 * all files of one folder, so the first of each mode is looked at.
 *
 * @param {number} fd
 * @param {number} bits
 * @param {Map<number, boolean>} asked whether the bits have to be set, by bits; of one folder
 */
function setMode(fd, bits, asked) {
  const known = asked.get(bits);
  if (known === false) return;
  if (known === undefined) {
    const isOther = (fstatSync(fd).mode & 0o7777) !== bits;
    asked.set(bits, isOther);
    if (!isOther) return;
  }
  fchmodSync(fd, bits);
  if (known === undefined && (fstatSync(fd).mode & 0o7777) !== bits)
    throw new NotPlain("the file system keeps no modes");
}

/**
 * @param {import("node:fs").BigIntStats} stat
 * @param {CopyWork} work
 */
function settledStamp(stat, { settledNs, coarseSettledNs }) {
  return stat.ctimeNs < (hasFraction(stat) ? settledNs : coarseSettledNs) ? stampOf(stat) : "";
}

/** Whether the clock of the file system tells more than whole seconds. @param {import("node:fs").BigIntStats} stat */
export function hasFraction({ ctimeNs }) {
  return ctimeNs % 1_000_000_000n !== 0n;
}

/** As a scan by find makes a stamp. @param {import("node:fs").BigIntStats} stat */
export function stampOf({ size, mtimeNs, ctimeNs, dev, ino }) {
  return `${size} ${seconds(mtimeNs)} ${seconds(ctimeNs)} ${dev}.${ino}`;
}

/** As find prints a time. @param {bigint} timeNs */
function seconds(timeNs) {
  const digits = String(timeNs).padStart(10, "0");
  return `${digits.slice(0, -9)}.${digits.slice(-9)}0`;
}
