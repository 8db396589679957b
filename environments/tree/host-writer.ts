/** `TreeWriter` for a folder of this machine. */
import { randomBytes } from "node:crypto";
import {
  type BigIntStats,
  chmodSync,
  chownSync,
  closeSync,
  constants,
  lchownSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  write,
} from "node:fs";
import { promisify } from "node:util";
import { MoorageError } from "../../src/errors.ts";
import type { EnvironmentTree, TreeChanges, TreeEntry, TreeOutcome, TreeWriter } from "../base.ts";
import { judgeOwner, ownerLabel } from "../owner.ts";
import { stampOf } from "./copy-files.mjs";
import { HostFolders } from "./host-folders.ts";
import { byPath, parentOf, STAGE_PREFIX } from "./names.ts";
import {
  changedSince,
  judgedPaths,
  judgeOutcome,
  requireAllInside,
  requireInside,
  type Staged,
  without,
} from "./outcome.ts";

const writeAt = promisify(write);
const FULL: ReadonlySet<string> = new Set(["ENOSPC", "EDQUOT"]);
const CLOSED: ReadonlySet<string> = new Set(["EROFS", "EACCES", "EPERM"]);

export class HostWriter implements TreeWriter {
  readonly #folders: HostFolders;
  readonly #scan: EnvironmentTree["scan"];
  readonly #files = new Map<string, Staged & { readonly name: string }>();
  readonly #failed = new Map<string, string>();
  /** Folders that are open for the time of the change, with the modes that they had. */
  readonly #opened = new Map<string, number>();
  readonly stageName = stageName();
  #hasStage = false;
  #ended = false;
  #count = 0;

  constructor(root: string, scan: EnvironmentTree["scan"]) {
    this.#folders = new HostFolders(root);
    this.#scan = scan;
  }

  async stage(file: Staged, content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    if (this.#ended) throw new TypeError("The writer has ended");
    requireInside(file.path);
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    let name = "";
    let bytes = 0;
    let descriptor: number | null = null;
    try {
      name = `${this.#stageFolder()}/${this.#count++}`;
      descriptor = openSync(this.#folders.at(name), flags, 0o600);
      for await (const chunk of content) {
        for (let at = 0; at < chunk.length; ) {
          const { bytesWritten } = await writeAt(descriptor, chunk, at, chunk.length - at);
          at += bytesWritten;
        }
        bytes += chunk.length;
      }
    } catch (error) {
      throw this.#refusal(error);
    } finally {
      if (descriptor !== null) closeSync(descriptor);
    }
    if (bytes !== file.size) {
      throw new MoorageError(
        "FILE_CHANGED",
        `Cannot write "${file.path}": ${bytes} of ${file.size} bytes came`,
      );
    }
    const at = this.#folders.at(name);
    if (file.owner && process.getuid?.() === 0) chownSync(at, file.owner.uid, file.owner.gid);
    chmodSync(at, file.mode);
    utimesSync(at, file.modifiedAt, file.modifiedAt);
    this.#files.set(file.path, { ...file, name });
  }

  unstage(path: string): void {
    this.#files.delete(path);
  }

  async finish(asked: TreeChanges): Promise<TreeOutcome> {
    requireAllInside(asked);
    const expected = new Map(asked.expected);
    const changed = new Set(await changedSince(this.#scan, this.#folders.root, expected));
    for (const path of changed) this.unstage(path);
    const { remove = [], folders = [], links = [], modes = [] } = without(asked, changed);
    // Once more just before: with many files some time has passed by then.
    const isStill = (path: string): boolean => {
      const before = expected.get(path);
      if (before === undefined || this.#isStill(path, before)) return true;
      changed.add(path);
      return false;
    };
    try {
      const open = (path: string) => this.#openUp(parentOf(path));
      for (const path of [...remove].sort(byPath).reverse())
        this.#attempt(path, () => {
          if (!isStill(path)) return;
          this.#remove(path, open);
          if (expected.has(path)) expected.set(path, null);
        });
      for (const { path } of [...folders].sort((a, b) => byPath(a.path, b.path))) {
        this.#attempt(path, () => {
          open(path);
          this.#folders.make(path);
        });
      }
      for (const { path, name } of this.#files.values()) {
        this.#attempt(path, () => {
          if (isStill(path) && !this.#place(name, path, open, expected.get(path) === null)) changed.add(path);
        });
      }
      for (const [index, { path, target, owner }] of links.entries()) {
        this.#attempt(path, () => {
          if (!isStill(path)) return;
          const name = `${this.#stageFolder()}/l${index}`;
          symlinkSync(Buffer.from(target, "latin1"), this.#folders.at(name));
          if (owner) lchownSync(this.#folders.at(name), owner.uid, owner.gid);
          if (!this.#place(name, path, open, expected.get(path) === null)) changed.add(path);
        });
      }
      for (const change of modes) this.#attempt(change.path, () => this.#setMode(change));
      for (const change of [...folders].sort((a, b) => byPath(b.path, a.path))) {
        this.#attempt(change.path, () => this.#setMode(change, "directory"));
        this.#opened.delete(change.path);
      }
    } finally {
      try {
        this.#closeAgain();
      } finally {
        await this.discard();
      }
    }
    for (const path of changed) this.unstage(path);
    const changes = without(asked, changed);
    const files = [...this.#files.values()];
    const paths = judgedPaths(files, changes);
    const { entries } = await this.#scan(this.#folders.root, { paths });
    return { ...judgeOutcome(entries, files, changes, this.#failed), ...(changed.size > 0 && { changed }) };
  }

  async discard(): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    if (this.#hasStage) {
      this.#folders.forget(this.stageName);
      rmSync(this.#folders.at(this.stageName), { recursive: true, force: true });
    }
    this.#folders[Symbol.dispose]();
  }

  /** @param kind where something else stands it keeps its own */
  #setMode({ path, mode, owner }: NonNullable<TreeChanges["modes"]>[number], kind?: "directory"): void {
    const at = this.#folders.at(path);
    const stat = lstatSync(at);
    if (stat.isSymbolicLink()) throw new Error("it is a link");
    if (kind === "directory" && !stat.isDirectory()) return;
    if (owner) lchownSync(at, owner.uid, owner.gid);
    chmodSync(at, mode);
  }

  #stageFolder(): string {
    if (!this.#hasStage) mkdirSync(this.#folders.at(this.stageName), { mode: 0o700 });
    this.#hasStage = true;
    return this.stageName;
  }

  /** A disk that is full, and a folder that takes nothing, are told as what they are. */
  #refusal(error: unknown): unknown {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    const action = `Cannot write into "${this.#folders.root}"`;
    if (FULL.has(code)) return new MoorageError("STORAGE_FULL", `${action}: no space left`, { cause: error });
    if (!CLOSED.has(code)) return error;
    const reason = code === "EROFS" ? "read-only file system" : "permission denied";
    return new MoorageError("FILE_PERMISSION", `${action}: ${reason}`, { cause: error });
  }

  #attempt(path: string, step: () => void): void {
    if (this.#failed.has(path)) return;
    try {
      step();
    } catch (error) {
      this.#failed.set(path, reasonOf(error));
    }
  }

  /** A folder that its owner may not write to is opened for the time of the change. */
  #openUp(folder: string): void {
    if (folder === "" || this.#opened.has(folder) || process.getuid?.() === 0) return;
    const stat = lstatSync(this.#folders.at(folder), { throwIfNoEntry: false });
    if (!stat?.isDirectory() || (stat.mode & 0o300) === 0o300) return;
    const mode = stat.mode & 0o7777;
    this.#opened.set(folder, mode);
    chmodSync(this.#folders.at(folder), mode | 0o700);
  }

  /** Deepest first, since what is around may keep everybody out. */
  #closeAgain(): void {
    for (const [path, mode] of [...this.#opened].sort(([a], [b]) => byPath(b, a))) {
      try {
        this.#setMode({ path, mode }, "directory");
      } catch (error) {
        // One that was removed has no mode.
        if (!(error instanceof Error && "code" in error && error.code === "ENOENT")) throw error;
      }
    }
  }

  #remove(path: string, open: (path: string) => void): void {
    open(path);
    let isFolder: boolean;
    try {
      isFolder = lstatSync(this.#folders.at(path)).isDirectory();
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return;
      throw error;
    }
    this.#folders.forget(path);
    if (isFolder) rmdirSync(this.#folders.at(path));
    else unlinkSync(this.#folders.at(path));
  }

  /** Whether the entry is what was expected, or nothing is there where nothing was. */
  #isStill(path: string, before: TreeEntry | null): boolean {
    let stat: BigIntStats | undefined;
    try {
      stat = lstatSync(this.#folders.at(path), { bigint: true, throwIfNoEntry: false });
    } catch {
      // A folder on its way is missing or none.
    }
    if (!stat || !before) return !stat && !before;
    return (before.kind === "directory" && stat.isDirectory()) || stampOf(stat) === before.stamp;
  }

  /**
   * @param isNew whether nothing is to be replaced
   * @returns false when something stands there all the same
   */
  #place(name: string, path: string, open: (path: string) => void, isNew: boolean): boolean {
    open(path);
    this.#folders.make(parentOf(path));
    const [from, to] = [this.#folders.at(name), this.#folders.at(path)];
    if (isNew) return moveNew(from, to);
    renameSync(from, to);
    return true;
  }
}

/**
 * Moves a file or a link to where nothing is, and replaces nothing that comes there meanwhile.
 *
 * @returns false when something is there
 * @throws errors of the file system
 */
export function moveNew(from: string | Buffer, to: string | Buffer): boolean {
  try {
    linkSync(from, to);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    if (code === "EEXIST") return false;
    if (!NO_SECOND_NAME.has(code)) throw error;
    if (lstatSync(to, { throwIfNoEntry: false })) return false;
    renameSync(from, to);
    return true;
  }
  unlinkSync(from);
  return true;
}

/** In words, without the code and the name by which the file system was asked. */
function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const code = error instanceof Error && "code" in error ? error.code : "";
  if (code === "ENOTEMPTY") return "the folder holds something that is not mirrored";
  return /^[A-Z0-9]+: (.*?), \w+ '/s.exec(message)?.[1] ?? message;
}

/** What file systems say that give no file a second name. */
const NO_SECOND_NAME: ReadonlySet<string> = new Set([
  "EPERM",
  "ENOTSUP",
  "EOPNOTSUPP",
  "ENOSYS",
  "EMLINK",
  "EINVAL",
]);

/** A fresh name for a folder of staged files, which tells whose it is. */
export function stageName(): string {
  return `${STAGE_PREFIX}${Buffer.from(ownerLabel()).toString("hex")}-${randomBytes(8).toString("hex")}`;
}

/** Removes what writers that died had staged in a folder of this machine. */
export function sweepStages(root: string): void {
  using folders = new HostFolders(root);
  for (const name of readdirSync(folders.inside(""), { encoding: "latin1" })) {
    if (!name.startsWith(STAGE_PREFIX)) continue;
    const owner = Buffer.from(name.slice(STAGE_PREFIX.length).split("-")[0] ?? "", "hex").toString("utf8");
    if (judgeOwner(owner, false) === "dead") rmSync(folders.at(name), { recursive: true, force: true });
  }
}
