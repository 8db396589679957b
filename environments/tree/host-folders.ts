/**
 * Folders of the host, entered one after the other without following a link. On Linux an entered folder is an open
 * descriptor and is named through it, so that what is renamed or replaced by a link afterwards changes nothing;
 * elsewhere every part of the path is looked at before each use.
 */
import { closeSync, constants, lstatSync, mkdirSync, openSync, readlinkSync, realpathSync } from "node:fs";
import { MoorageError } from "../../src/errors.ts";
import { parentOf } from "./names.ts";

const BEYOND_ASCII = /[^\0-\x7f]/;
/** Descriptors kept open at once; others are opened again when they are needed. */
const OPEN_MAX = 24;
const FOLDER_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

export class HostFolders implements Disposable {
  readonly #root: string;
  readonly #byDescriptor = process.platform === "linux";
  /** By path, in order of use. */
  readonly #open = new Map<string, number>();
  /** The one that was used last, as it is named: most entries are asked for folder by folder. */
  #last: { readonly path: string; readonly name: string } | null = null;
  #descriptors: string | null = null;

  /** @throws {MoorageError} FILE_MISSING, NOT_A_DIRECTORY, FILE_PERMISSION */
  constructor(root: string) {
    this.#root = realRoot(root);
  }

  get root(): string {
    return this.#root;
  }

  /** What to hand to the file system for an entry; its folder is entered first. @throws errors of the file system */
  at(path: string): Buffer | string {
    return inFolder(this.#folder(parentOf(path)), path);
  }

  /** What to hand to the file system for a folder itself, entered. */
  inside(path: string): Buffer | string {
    return this.#folder(path);
  }

  /** Makes the folders on the way to `path`, and `path` itself. */
  make(path: string): void {
    const missing: string[] = [];
    for (let at = path; at !== ""; at = parentOf(at)) {
      try {
        this.#folder(at);
        break;
      } catch (error) {
        if (!hasCode(error, "ENOENT")) throw error;
        missing.push(at);
      }
    }
    for (const each of missing.reverse()) mkdirSync(this.at(each), { mode: 0o755 });
  }

  /** Forgets a folder that is about to be removed or replaced, and what is in it. */
  forget(path: string): void {
    for (const [known, descriptor] of this.#open) {
      if (known !== path && !known.startsWith(`${path}/`)) continue;
      this.#open.delete(known);
      closeSync(descriptor);
    }
    this.#last = null;
  }

  [Symbol.dispose](): void {
    this.#last = null;
    for (const descriptor of this.#open.values()) closeSync(descriptor);
    this.#open.clear();
  }

  #folder(path: string): Buffer | string {
    if (!this.#byDescriptor) return this.#checked(path);
    if (this.#last?.path === path) return this.#last.name;
    // From the innermost one that is open; a path may have more folders than there is room for calls in calls.
    const closed: string[] = [];
    let at = path;
    for (; at !== "" && !this.#open.has(at); at = parentOf(at)) closed.push(at);
    let name = this.#named(at, this.#open.get(at) ?? this.#openNext(this.#root));
    for (const each of closed.reverse()) name = this.#named(each, this.#openNext(inFolder(name, each)));
    this.#last = { path, name };
    return name;
  }

  /** Keeps an open folder as the one that was used last. @returns its name */
  #named(path: string, descriptor: number): string {
    this.#open.delete(path);
    this.#open.set(path, descriptor);
    if (this.#open.size > OPEN_MAX) this.#closeOthers(OPEN_MAX);
    // By its number our process is found sooner than as `self`; in the mounted /proc it may have another one than for us.
    this.#descriptors ??= `/proc/${readlinkSync("/proc/self")}/fd`;
    return `${this.#descriptors}/${descriptor}`;
  }

  /** Where this process has no descriptor left those of other folders go. */
  #openNext(at: Buffer | string): number {
    try {
      return openSync(at, FOLDER_FLAGS);
    } catch (error) {
      if (!hasCode(error, "EMFILE") || this.#open.size <= 2) throw error;
      this.#closeOthers(2);
      return openSync(at, FOLDER_FLAGS);
    }
  }

  /** Closes those that were used longest ago; the root stays what it was when it was opened. @param left two at least */
  #closeOthers(left: number): void {
    for (const [path, descriptor] of this.#open) {
      if (this.#open.size <= left) return;
      if (path === "") continue;
      this.#open.delete(path);
      closeSync(descriptor);
    }
  }

  #checked(path: string): Buffer {
    const whole = Buffer.concat([
      Buffer.from(this.#root),
      Buffer.from(path === "" ? "" : `/${path}`, "latin1"),
    ]);
    if (path === "") return whole;
    this.#checked(parentOf(path));
    if (lstatSync(whole).isDirectory()) return whole;
    throw Object.assign(new Error("not a directory, or a link"), { code: "ENOTDIR" });
  }
}

/** @param folder as it is handed to the file system @param path of an entry in it */
function inFolder(folder: Buffer | string, path: string): Buffer | string {
  const name = `/${path.slice(path.lastIndexOf("/") + 1)}`;
  // A text is handed over at a fifth of what bytes cost.
  if (typeof folder === "string" && !BEYOND_ASCII.test(name)) return folder + name;
  return Buffer.concat([Buffer.from(folder), Buffer.from(name, "latin1")]);
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}

/**
 * A folder's own path, links resolved.
 *
 * @throws {MoorageError} FILE_MISSING, NOT_A_DIRECTORY, FILE_PERMISSION
 */
export function realRoot(root: string): string {
  try {
    const real = realpathSync(root);
    if (lstatSync(real).isDirectory()) return real;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : "";
    throw new MoorageError(
      code === "ENOENT" ? "FILE_MISSING" : code === "ENOTDIR" ? "NOT_A_DIRECTORY" : "FILE_PERMISSION",
      `Cannot open folder "${root}": ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  }
  throw new MoorageError("NOT_A_DIRECTORY", `Cannot open folder "${root}": not a directory`);
}
