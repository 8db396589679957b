/** `tree` for folders of this machine: without any program but GNU find, which looks at many files in a third of the time. */
import { spawn } from "node:child_process";
import { createHash, hash as hashOnce } from "node:crypto";
import {
  type BigIntStats,
  closeSync,
  constants,
  type Dirent,
  fstatSync,
  lstatSync,
  openSync,
  read,
  readdirSync,
  readlinkSync,
  readSync,
} from "node:fs";
import { setImmediate as turn } from "node:timers/promises";
import { promisify } from "node:util";
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { EnvironmentTree, FileKind, TreeEntry, TreeFile, TreeScan, TreeScanOptions } from "../base.ts";
import { hostProgram } from "../host-programs.ts";
import { onlyChunk } from "./content.ts";
import { hasFraction, stampOf } from "./copy-files.mjs";
import { COARSE_SECONDS, FindReader, findExpression, pickNamed, tooMany } from "./find.ts";
import { HostFolders, realRoot } from "./host-folders.ts";
import { HostWriter } from "./host-writer.ts";
import { byPath, isInside, isOurs, OUR_PREFIX } from "./names.ts";

/** What sync needs of a folder of the host. */
export type HostTree = Omit<EnvironmentTree, "capture" | "identity">;

/** Entries looked at before others get their turn. */
const BATCH = 500;
/** Files read before others get their turn. */
const PACK_BATCH = 64;
/** Longest answer of find, bytes. */
const FIND_MAX_BYTES = 256 * 1024 * 1024;
/** Times are told to the nanosecond, but clocks of file systems tick every few milliseconds. */
export const GRAIN_SECONDS = 0.1;
const CHUNK_BYTES = 256 * 1024;
const readAt = promisify(read);

/** Makes the tree of this machine's own folders. It remembers the last scan, so that the next one costs less. */
export function createHostTree(): HostTree {
  let hasFind = process.platform === "linux";
  let last: { readonly root: string; readonly reader: FindReader } | null = null;
  const scan: HostTree["scan"] = async (root, options) => {
    const { paths } = options ?? {};
    if (hasFind && (!paths || last?.reader.isWorthWhole(paths.length))) {
      const real = realRoot(root);
      if (last?.root !== real) last = { root: real, reader: new FindReader(real) };
      const found = await scanByFind(real, last.reader, options);
      if (found) return paths ? { ...found, entries: pickNamed(found.entries, paths), closed: [] } : found;
      hasFind = false;
    }
    return scanByHand(root, options);
  };
  return { scan, hash, pack, writer: (root) => new HostWriter(root, scan) };
}

/** @returns null where there is no find that tells everything */
async function scanByFind(
  root: string,
  reader: FindReader,
  { abortSignal }: TreeScanOptions = {},
): Promise<TreeScan | null> {
  const takenAt = Date.now() / 1000;
  const program = hostProgram("find", [root]);
  if (program === null) return null;
  const child = spawn(program, [".", ...findExpression(OUR_PREFIX)], {
    cwd: root,
    env: { PATH: process.env.PATH, LC_ALL: "C" },
    stdio: ["ignore", "pipe", "ignore"],
  });
  const stop = () => child.kill("SIGKILL");
  abortSignal?.addEventListener("abort", stop, { once: true });
  try {
    const ended = new Promise<string | null>((resolve) => {
      child.once("error", () => resolve("it did not start"));
      child.once("close", (_code, signal) => resolve(signal));
    });
    const chunks: Buffer[] = [];
    let bytes = 0;
    child.stdout.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes <= FIND_MAX_BYTES) chunks.push(chunk);
      else stop();
    });
    const failure = await ended;
    abortSignal?.throwIfAborted();
    if (bytes > FIND_MAX_BYTES) throw tooMany(root);
    if (failure !== null || bytes === 0) return null;
    const answer = Buffer.concat(chunks, bytes);
    if (answer[0] === "!".charCodeAt(0)) throw permission(root, new Error("permission denied"));
    const { entries, closed } = reader.read(answer, 0, { takenAt, fineSeconds: GRAIN_SECONDS });
    return { root, entries, closed };
  } finally {
    abortSignal?.removeEventListener("abort", stop);
  }
}

async function scanByHand(root: string, options: TreeScanOptions = {}): Promise<TreeScan> {
  using folders = new HostFolders(root);
  const takenAt = Date.now();
  const entries: TreeEntry[] = [];
  const closed: string[] = [];
  const device = lstatSync(folders.root, { bigint: true }).dev;
  const look = (path: string): TreeEntry | null => {
    try {
      const at = folders.at(path);
      const stat = lstatSync(at, { bigint: true });
      const target = stat.isSymbolicLink() ? readlinkSync(at, { encoding: "buffer" }) : null;
      return toEntry(path, stat, target, takenAt);
    } catch (error) {
      // It went away meanwhile, or a folder on its way did.
      if (isGone(error) || (options.paths && isUnnameable(error))) return null;
      throw error;
    }
  };
  if (options.paths) {
    for (const path of [...options.paths].filter(isInside).sort(byPath)) {
      const entry = look(path);
      if (entry) entries.push(entry);
    }
    return { root: folders.root, entries, closed };
  }
  const waiting = [""];
  let sinceTurn = 0;
  for (let folder = waiting.pop(); folder !== undefined; folder = waiting.pop()) {
    let names: Buffer[];
    try {
      if (folder !== "" && lstatSync(folders.at(folder), { bigint: true }).dev !== device) {
        closed.push(folder);
        continue;
      }
      names = readdirSync(folders.inside(folder), { encoding: "buffer" });
    } catch (error) {
      if (isGone(error)) continue;
      if (folder === "") throw permission(root, error);
      closed.push(folder);
      continue;
    }
    const inner: string[] = [];
    for (const name of names.map((each) => each.toString("latin1")).sort(byPath)) {
      if (name.startsWith(OUR_PREFIX)) continue;
      const entry = look(folder === "" ? name : `${folder}/${name}`);
      if (!entry) continue;
      entries.push(entry);
      if (entry.kind === "directory") inner.push(entry.path);
      if (entries.length > limits.treeMaxEntries) throw tooMany(root);
    }
    waiting.push(...inner.reverse());
    sinceTurn += names.length;
    if (sinceTurn > BATCH) {
      sinceTurn = 0;
      await turn();
      options.abortSignal?.throwIfAborted();
    }
  }
  entries.sort((a, b) => byPath(a.path, b.path));
  return { root: folders.root, entries, closed };
}

async function hash(
  root: string,
  paths: readonly string[],
  options: { readonly abortSignal?: AbortSignal } = {},
): Promise<ReadonlyMap<string, string>> {
  const hashes = new Map<string, string>();
  await pack(
    root,
    paths,
    async ({ path, content, bytes }) => {
      if (bytes) {
        hashes.set(path, hashOnce("sha256", bytes));
        return;
      }
      const sum = createHash("sha256");
      for await (const chunk of content) sum.update(chunk);
      hashes.set(path, sum.digest("hex"));
    },
    options,
  );
  return hashes;
}

async function pack(
  root: string,
  paths: readonly string[],
  take: (file: TreeFile) => Promise<void> | void,
  options: { readonly abortSignal?: AbortSignal } = {},
): Promise<void> {
  using folders = new HostFolders(root);
  // One for all small files: to make one for each costs more than to read it.
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  for (const [index, path] of paths.entries()) {
    options.abortSignal?.throwIfAborted();
    if (index % PACK_BATCH === PACK_BATCH - 1) await turn();
    if (!isInside(path) || isOurs(path)) continue;
    let descriptor: number;
    try {
      descriptor = openSync(folders.at(path), FILE_FLAGS);
    } catch (error) {
      if (isGone(error) || isRefused(error) || isUnnameable(error)) continue;
      throw error;
    }
    const reading = { isShort: false };
    try {
      const stat = fstatSync(descriptor);
      if (!stat.isFile()) continue;
      const { size } = stat;
      const mode = stat.mode & 0o7777;
      const taken =
        size > CHUNK_BYTES
          ? take({ path, size, mode, content: contentOf(descriptor, path, size, reading) })
          : take(new SmallFile(path, mode, readSmall(descriptor, path, buffer, size, reading)));
      // Nothing to wait for is the usual case, and a turn for each file is dear.
      if (taken) await taken;
    } catch (error) {
      // It cannot be read this time, which is no reason to leave out the others.
      if (!reading.isShort) throw error;
    } finally {
      closeSync(descriptor);
    }
  }
}

/** Without O_NONBLOCK a pipe in the place of a file would be waited for. */
const FILE_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** A small file's bytes at once, which costs a tenth of a turn through the thread pool. */
function readSmall(descriptor: number, path: string, buffer: Buffer, size: number, reading: Reading): Buffer {
  for (let at = 0; at < size; ) {
    const bytes = readSync(descriptor, buffer, at, size - at, at);
    if (bytes === 0) throw becameShorter(path, reading);
    at += bytes;
  }
  return buffer.subarray(0, size);
}

/** Its content as a sequence is made for those alone who ask for it. */
class SmallFile implements TreeFile {
  readonly path: string;
  readonly mode: number;
  readonly bytes: Buffer;

  constructor(path: string, mode: number, bytes: Buffer) {
    this.path = path;
    this.mode = mode;
    this.bytes = bytes;
  }

  get size(): number {
    return this.bytes.length;
  }

  get content(): AsyncIterable<Buffer> {
    return onlyChunk(this.bytes);
  }
}

/** Whether a file became shorter while it was read, whatever its reader makes of the error. */
interface Reading {
  isShort: boolean;
}

function becameShorter(path: string, reading: Reading): MoorageError {
  reading.isShort = true;
  return new MoorageError("FILE_CHANGED", `Cannot read "${path}": it became shorter while it was read`);
}

/** Exactly `size` bytes: what is appended meanwhile is not part of them. */
async function* contentOf(
  descriptor: number,
  path: string,
  size: number,
  reading: Reading,
): AsyncGenerator<Buffer> {
  for (let at = 0; at < size; ) {
    const buffer = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, size - at));
    const { bytesRead } = await readAt(descriptor, buffer, 0, buffer.length, at);
    if (bytesRead === 0) throw becameShorter(path, reading);
    at += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

function toEntry(path: string, stat: BigIntStats, target: Buffer | null, takenAt: number): TreeEntry {
  const kind = kindOf(stat);
  const grainMs = (hasFraction(stat) ? GRAIN_SECONDS : COARSE_SECONDS) * 1000;
  return {
    path,
    kind,
    mode: Number(stat.mode & 0o7777n),
    size: kind === "file" ? Number(stat.size) : 0,
    uid: Number(stat.uid),
    gid: Number(stat.gid),
    modifiedAt: Number(stat.mtimeNs / 1_000_000_000n),
    stamp: stampOf(stat),
    settled: Number(stat.ctimeNs / 1_000_000n) < takenAt - grainMs,
    ...(target && { linkTarget: target.toString("latin1") }),
  };
}

/** @param entry by its status, or as its folder lists it */
export function kindOf(entry: BigIntStats | Dirent): FileKind {
  if (entry.isFile()) return "file";
  if (entry.isDirectory()) return "directory";
  if (entry.isSymbolicLink()) return "symlink";
  if (entry.isFIFO()) return "fifo";
  return entry.isSocket() ? "socket" : "device";
}

function hasCode(error: unknown, codes: readonly string[]): boolean {
  return error instanceof Error && "code" in error && codes.includes(String(error.code));
}

function isGone(error: unknown): boolean {
  return hasCode(error, ["ENOENT", "ENOTDIR", "ELOOP"]);
}

/** Of a name that somebody else chose: no file system here could hold it. */
function isUnnameable(error: unknown): boolean {
  return hasCode(error, ["ENAMETOOLONG", "EILSEQ", "EINVAL"]);
}

function isRefused(error: unknown): boolean {
  return hasCode(error, ["EACCES", "EPERM", "ENXIO"]);
}

function permission(root: string, cause: unknown): MoorageError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new MoorageError("FILE_PERMISSION", `Cannot scan "${root}": ${reason}`, { cause });
}
