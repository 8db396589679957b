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
const OPEN_MAX = 64;

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
    const slash = path.lastIndexOf("/");
    const folder = this.#folder(slash < 0 ? "" : path.slice(0, slash));
    const name = `/${path.slice(slash + 1)}`;
    // A text is handed over at a fifth of what bytes cost.
    if (typeof folder === "string" && !BEYOND_ASCII.test(name)) return folder + name;
    return Buffer.concat([Buffer.from(folder), Buffer.from(name, "latin1")]);
  }

  /** What to hand to the file system for a folder itself, entered. */
  inside(path: string): Buffer | string {
    return this.#folder(path);
  }

  /** Makes the folders on the way to `path`, and `path` itself. */
  make(path: string): void {
    if (path === "") return;
    try {
      this.#folder(path);
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "ENOENT")) throw error;
      this.make(parentOf(path));
      mkdirSync(this.at(path), { mode: 0o755 });
    }
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
    let descriptor = this.#open.get(path);
    if (descriptor === undefined) {
      const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
      descriptor = openSync(path === "" ? this.#root : this.at(path), flags);
    } else this.#open.delete(path);
    this.#open.set(path, descriptor);
    const [oldest] = this.#open;
    if (this.#open.size > OPEN_MAX && oldest) {
      this.#open.delete(oldest[0]);
      closeSync(oldest[1]);
    }
    // By its number our process is found sooner than as `self`; in the mounted /proc it may have another one than for us.
    this.#descriptors ??= `/proc/${readlinkSync("/proc/self")}/fd`;
    const name = `${this.#descriptors}/${descriptor}`;
    this.#last = { path, name };
    return name;
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
