/**
 * Copies a folder of this machine into an empty one, with all cores, by the calls alone that it takes to read and write the
 * files. They go into a folder of our own inside the target, and what that holds is then moved in place by rename.
 *
 * No link is followed on either side, and each folder is named by its open descriptor, whatever somebody does to
 * the folders meanwhile. Who has the target's user could swap what is staged, and gains what writing there gives anyway.
 *
 * It is for what can be done plainly. For anything else it gives up, leaves the target as it was, and lets another way,
 * which knows each failure by name, meet it.
 */
import {
  accessSync,
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { availableParallelism } from "node:os";
import { setImmediate as turn } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import type { FileKind } from "../base.ts";
import {
  type Copied,
  type CopyWork,
  copyPieces,
  FILES,
  LEFT,
  NotPlain,
  named,
  openFolder,
  SHARED_COUNT,
  STOP,
  Way,
} from "./copy-files.mjs";
import { COARSE_SECONDS } from "./find.ts";
import { GRAIN_SECONDS, kindOf } from "./host.ts";
import { moveNew, stageName } from "./host-writer.ts";
import { byPath, OUR_PREFIX, parentOf } from "./names.ts";

/** Names of one folder, at most so many, are one piece of work. */
const PIECE_FILES = 128;
/** With fewer files a thread costs more than it does. */
const THREAD_MIN_FILES = 1_000;
const THREADS_MAX = 4;
/** Names looked at before others get their turn. */
const LOOK_BATCH = 2_000;
/** Folders and links made, or entries moved, before others get their turn. */
const STEP_BATCH = 256;
/** A folder whose own size is more has too many entries to be listed in one go, bytes. */
const FOLDER_MAX_BYTES = 16 * 1024 * 1024;
/** Longest path that goes this way, bytes: the programs of the other ways, which come next, must be able to name it. */
const PATH_MAX_BYTES = 4_000;

/** An entry as its name says: nothing but folders was opened. */
export interface Listed {
  readonly path: string;
  readonly kind: FileKind;
  /** Permission bits of a folder that was looked into, else 0. */
  mode: number;
}

export interface Listing {
  readonly entries: readonly Listed[];
  /** Folders that could not be looked into, and mount points; both are also entries. */
  readonly closed: readonly string[];
}

export interface CopyPlan {
  /** Parents before what is in them. */
  readonly folders: readonly Listed[];
  readonly links: readonly string[];
  /** Those of one folder stand together. */
  readonly files: readonly string[];
  /** Bytes after which no file is begun. */
  readonly maxBytes: number;
  /** Called with the files done. */
  readonly onFiles: (count: number) => void;
}

export interface CopyOutcome {
  /** Of files, as `Copied` has them. */
  readonly records: readonly string[];
  readonly links: readonly { readonly path: string; readonly target: string }[];
  /** Files that could not be read, or went away. */
  readonly unreadable: readonly string[];
  /** Whether files were left out since all of them are too much for one go. */
  readonly isPart: boolean;
}

export class DirectCopy implements AsyncDisposable {
  readonly #from: number;
  readonly #to: number;
  readonly #separator: string;
  readonly #abortSignal: AbortSignal | undefined;
  readonly #startedAt = Date.now();
  readonly #shared = new Int32Array(
    new SharedArrayBuffer((SHARED_COUNT + THREADS_MAX) * Int32Array.BYTES_PER_ELEMENT),
  );
  readonly #threads: Thread[] = [];
  #hasThreads = false;
  #stage: string | null = null;
  #isDisposed = false;

  /**
   * @param source real path of a folder, as `target` is
   * @param separator joins what is told of files
   * @throws errors of the file system
   */
  constructor(
    source: string,
    target: string,
    separator: string,
    { abortSignal }: { readonly abortSignal?: AbortSignal } = {},
  ) {
    this.#separator = separator;
    this.#abortSignal = abortSignal;
    this.#from = openFolder(source);
    try {
      this.#to = openFolder(target);
    } catch (error) {
      closeSync(this.#from);
      throw error;
    }
  }

  /** Whether there is nothing in the target but what is our own. */
  isTargetEmpty(): boolean {
    using way = new Way(this.#to);
    return readdirSync(way.prefix, { encoding: "latin1" }).every((name) => name.startsWith(OUR_PREFIX));
  }

  /**
   * Lists the source by names and kinds. Threads begin to start as soon as it is seen that they are worth it.
   *
   * @throws {NotPlain} beyond `maxEntries`, or where a path is too long
   */
  async list(maxEntries: number): Promise<Listing> {
    const entries: Listed[] = [];
    const closed: string[] = [];
    using way = new Way(this.#from);
    const { dev } = fstatSync(this.#from);
    const waiting: Listed[] = [{ path: "", kind: "directory", mode: 0 }];
    let turnAt = LOOK_BATCH;
    for (let folder = waiting.pop(); folder; folder = waiting.pop()) {
      const { path } = folder;
      const at = entered(way, path);
      const stat = at === null ? null : fstatSync(way.fd);
      if (at === null || stat?.dev !== dev) {
        if (path === "") throw new NotPlain("the folder is closed");
        closed.push(path);
        continue;
      }
      folder.mode = stat.mode & 0o7777;
      if (stat.size > FOLDER_MAX_BYTES) throw new NotPlain("there is too much");
      const place = path === "" ? "" : `${path}/`;
      if (place.length > PATH_MAX_BYTES) throw new NotPlain("a path is too long");
      for (const entry of readdirSync(at, { encoding: "latin1", withFileTypes: true })) {
        const { name } = entry;
        if (name.startsWith(OUR_PREFIX)) continue;
        const listed: Listed = { path: place + name, kind: kindOf(entry), mode: 0 };
        entries.push(listed);
        if (listed.kind === "directory") waiting.push(listed);
      }
      if (entries.length > maxEntries) throw new NotPlain("there is too much");
      if (entries.length > THREAD_MIN_FILES) this.#startThreads();
      if (entries.length > turnAt) {
        turnAt = entries.length + LOOK_BATCH;
        await this.#turn();
      }
    }
    return { entries, closed };
  }

  /**
   * Puts copies into a folder of our own inside the target.
   *
   * @throws errors of the file system but for files that cannot be read; {NotPlain}
   */
  async copy({ folders, links, files, maxBytes, onFiles }: CopyPlan): Promise<CopyOutcome> {
    const stage = this.#makeStage();
    try {
      await this.#makeFolders(stage, folders);
      const settledMs = (seconds: number) =>
        BigInt(Math.floor(this.#startedAt - seconds * 1000)) * 1_000_000n;
      const work: CopyWork = {
        from: this.#from,
        to: stage,
        pieces: piecesOf(files),
        shared: this.#shared,
        maxBytes,
        separator: this.#separator,
        settledNs: settledMs(GRAIN_SECONDS),
        coarseSettledNs: settledMs(COARSE_SECONDS),
      };
      if (work.pieces.length > 1) for (const thread of this.#threads) thread.begin(work);
      const copied: Copied = { records: [], unreadable: [] };
      for (const _ of copyPieces(work, copied)) {
        onFiles(Atomics.load(this.#shared, FILES));
        await this.#turn();
      }
      const linked = await this.#copyLinks(stage, links);
      const others = await Promise.all(this.#threads.map((thread) => thread.answer()));
      const isPart = Atomics.load(this.#shared, LEFT) !== 0;
      if (files.length > 0 && !isPart) onFiles(files.length);
      this.#abortSignal?.throwIfAborted();
      const told = [{ ...copied, records: copied.records.join(this.#separator) }, ...others];
      return {
        records: told.flatMap(({ records }) => (records === "" ? [] : [records])),
        links: linked,
        unreadable: told.flatMap(({ unreadable }) => unreadable),
        isPart,
      };
    } catch (error) {
      Atomics.store(this.#shared, STOP, 1);
      throw error;
    } finally {
      await Promise.allSettled(this.#threads.map((thread) => thread.answer()));
      closeSync(stage);
    }
  }

  /**
   * Moves everything in place, until it meets something that stands there by now.
   *
   * @param names of all that is staged at the top
   * @returns the names that were moved, and whether all of them were and everything is as it should be
   */
  async place(
    names: readonly string[],
    folders: readonly Listed[],
  ): Promise<{ readonly placed: ReadonlySet<string>; readonly isWhole: boolean }> {
    const placed = new Set<string>();
    try {
      using from = new Way(this.#to);
      using way = new Way(this.#to);
      const staged = from.enter(this.#stage ?? "");
      const target = way.prefix;
      for (const [index, name] of names.entries()) {
        if (index % STEP_BATCH === STEP_BATCH - 1) await turn();
        const at = named(target, name);
        const source = named(staged, name);
        if (lstatSync(at, { throwIfNoEntry: false })) return { placed, isWhole: false };
        // A folder replaces nothing but an empty one.
        if (lstatSync(source).isDirectory()) renameSync(source, at);
        else if (!moveNew(source, at)) return { placed, isWhole: false };
        placed.add(name);
      }
      const late = folders.filter(({ mode }) => !isStagedMode(mode));
      for (const { path, mode } of late.sort((a, b) => byPath(b.path, a.path))) {
        way.enter(path);
        setFolderMode(way.fd, mode);
      }
      return { placed, isWhole: true };
    } catch (error) {
      if (!isFault(error)) throw error;
      return { placed, isWhole: false };
    }
  }

  /** Ends threads and removes what is staged. Idempotent. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    Atomics.store(this.#shared, STOP, 1);
    // They use descriptors of ours.
    await Promise.all(this.#threads.map((thread) => thread.end()));
    using way = new Way(this.#to);
    try {
      if (this.#stage !== null) rmSync(named(way.prefix, this.#stage), { recursive: true, force: true });
    } finally {
      closeSync(this.#from);
      closeSync(this.#to);
    }
  }

  #startThreads(): void {
    if (this.#hasThreads) return;
    this.#hasThreads = true;
    const count = Math.min(THREADS_MAX, availableParallelism()) - 1;
    try {
      while (this.#threads.length < count) this.#threads.push(new Thread(this.#shared, this.#threads.length));
    } catch {
      // Where this process may have none, it does all by itself.
    }
  }

  /** @returns a descriptor, to be closed */
  #makeStage(): number {
    using way = new Way(this.#to);
    this.#stage = stageName();
    mkdirSync(named(way.prefix, this.#stage), { mode: 0o700 });
    return openFolder(named(way.prefix, this.#stage));
  }

  /** With their own modes, but where nothing could be put in them or they could not be moved. */
  async #makeFolders(stage: number, folders: readonly Listed[]): Promise<void> {
    using way = new Way(stage);
    for (const [index, { path, mode }] of folders.entries()) {
      if (index % STEP_BATCH === STEP_BATCH - 1) await this.#turn();
      mkdirSync(named(way.enter(parentOf(path)), nameOf(path)), { mode: 0o700 });
      if (!isStagedMode(mode) || mode === 0o700) continue;
      way.enter(path);
      setFolderMode(way.fd, mode);
    }
  }

  async #copyLinks(stage: number, paths: readonly string[]): Promise<CopyOutcome["links"]> {
    using from = new Way(this.#from);
    using to = new Way(stage);
    const links: { path: string; target: string }[] = [];
    for (const [index, path] of paths.entries()) {
      if (index % STEP_BATCH === STEP_BATCH - 1) await this.#turn();
      const [folder, name] = [parentOf(path), nameOf(path)];
      const target = readlinkSync(named(from.enter(folder), name), { encoding: "buffer" });
      symlinkSync(target, named(to.enter(folder), name));
      links.push({ path, target: target.toString("latin1") });
    }
    return links;
  }

  async #turn(): Promise<void> {
    await turn();
    this.#abortSignal?.throwIfAborted();
  }
}

type Answer = Omit<Copied, "records"> & { readonly records: string };
const NOTHING: Answer = { records: "", unreadable: [] };

/** A thread that starts meanwhile. One that has not begun by the time that nothing is left is not waited for. */
class Thread {
  readonly #worker: Worker;
  readonly #shared: Int32Array;
  readonly #place: number;
  #answer: Promise<Answer> | null = null;

  constructor(shared: Int32Array, index: number) {
    this.#shared = shared;
    this.#place = SHARED_COUNT + index;
    // Nothing of how this process was started is needed, and some of it would run first.
    this.#worker = new Worker(new URL("./copy-thread.mjs", import.meta.url), { env: {}, execArgv: [] });
    // Without it this thread's end would end the process; who waits for an answer is told.
    this.#worker.on("error", () => undefined);
  }

  begin(work: CopyWork): void {
    this.#worker.postMessage({ work, place: this.#place });
    const answer = new Promise<Answer>((resolve, reject) => {
      this.#worker.once("message", (answer: Answer & { readonly failure?: string }) => {
        if (answer.failure === undefined) resolve(answer);
        else reject(new NotPlain(answer.failure));
      });
      this.#worker.once("error", ({ message }) => reject(new NotPlain(message)));
      this.#worker.once("exit", () => reject(new NotPlain("a thread ended")));
    });
    answer.catch(() => undefined);
    this.#answer = answer;
  }

  /** What it did. Nothing more is begun. */
  answer(): Promise<Answer> {
    const hasBegun = Atomics.compareExchange(this.#shared, this.#place, 0, 2) === 1;
    return hasBegun && this.#answer ? this.#answer : Promise.resolve(NOTHING);
  }

  async end(): Promise<void> {
    await this.answer().catch(() => undefined);
    await this.#worker.terminate();
  }
}

/** Whether another way may do what this one could not: what the file system or Node's permissions say, or what is not plain. */
export function isFault(error: unknown): boolean {
  if (error instanceof NotPlain) return true;
  return (
    error instanceof Error && ("syscall" in error || ("code" in error && error.code === "ERR_ACCESS_DENIED"))
  );
}

/** @returns the prefix of what is in the folder; null when it may not be looked into */
function entered(way: Way, path: string): string | null {
  try {
    const at = way.enter(path);
    accessSync(at, constants.R_OK | constants.X_OK);
    return at;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EACCES") return null;
    throw error;
  }
}

function piecesOf(files: readonly string[]): CopyWork["pieces"] {
  const pieces: { folder: string; names: string }[] = [];
  let folder = "";
  let names: string[] = [];
  const add = () => {
    if (names.length > 0) pieces.push({ folder, names: names.join("/") });
    names = [];
  };
  for (const path of files) {
    const slash = path.lastIndexOf("/");
    const isSame = slash < 0 ? folder === "" : slash === folder.length && path.startsWith(folder);
    if (!isSame || names.length >= PIECE_FILES) add();
    if (!isSame) folder = parentOf(path);
    names.push(path.slice(slash + 1));
  }
  add();
  return pieces;
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** @throws {NotPlain} where the mode does not become what it should be */
function setFolderMode(fd: number, mode: number): void {
  fchmodSync(fd, mode);
  if ((fstatSync(fd).mode & 0o7777) !== mode) throw new NotPlain("the file system keeps no modes");
}

/** Whether a folder can be staged with its own mode. */
function isStagedMode(mode: number): boolean {
  return (mode & 0o700) === 0o700;
}
