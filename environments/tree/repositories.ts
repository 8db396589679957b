/**
 * What git knows of a folder of this machine beside the `.gitignore` files in it: the rules and the index of each
 * repository in it, and of the one that it lies in, wherever they are. A worktree and a submodule have a `.git` file that
 * names another folder. Read without git: nothing is run, and no repository's configuration is followed.
 */
import { closeSync, constants, fstatSync, lstatSync, openSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { INDEX_MAX_BYTES, trackedPaths } from "./git-index.ts";
import { userRulesFile } from "./git-user-rules.ts";
import { IGNORE_FILE, type Repository, RULES_MAX_BYTES, type Surroundings } from "./ignore-rules.ts";
import { bytesOf, foldersOn, isUnder, parentOf } from "./names.ts";

/** Longest `.git` file, bytes: it names one folder. */
const LINK_MAX_BYTES = 8 * 1024;

/** Whether an entry of a tree may be a repository's: one that is called `.git`, and not in another such. */
export function isRepositoryEntry(path: string): boolean {
  return /^(?:.*\/)?\.git$/s.test(path) && !`/${parentOf(path)}/`.includes("/.git/");
}

export class HostRepositories {
  /** As all paths in here, one character per byte. */
  readonly #root: string;
  /** Stamps of what was read or looked for, by path. */
  readonly #read = new Map<string, string>();

  /** @param root real path of the folder */
  constructor(root: string) {
    this.#root = bytesOf(root);
  }

  /** Whether what was read has changed since, or what was missing is there. */
  isStale(): boolean {
    return [...this.#read].some(([file, stamp]) => stampAt(file) !== stamp);
  }

  /** @param entries paths for which `isRepositoryEntry` */
  inside(entries: readonly string[]): readonly Repository[] {
    return entries.map((entry) => {
      const git = this.#gitFolder(join(this.#root, entry));
      return {
        folder: parentOf(entry),
        readExclude: () => this.#exclude(git),
        readTracked: () => this.#tracked(git),
      };
    });
  }

  /**
   * The repository around the folder, where that is not one's own root, and the person's own rules.
   *
   * @param hasRepository whether the folder is a repository's root
   */
  around(hasRepository: boolean): Surroundings | null {
    const top = hasRepository ? this.#root : this.#topAround();
    if (top === null) return null;
    const path = relative(top, this.#root);
    const folders = [...foldersOn(path).reverse(), ""];
    const levels = hasRepository
      ? []
      : folders.map((folder) => ({
          folder,
          text: this.#text(join(top, folder, IGNORE_FILE), RULES_MAX_BYTES, constants.O_NOFOLLOW),
        }));
    const git = hasRepository ? null : this.#gitFolder(join(top, ".git"));
    if (git !== null) levels.push({ folder: "", text: this.#exclude(git) });
    const user = userRulesFile();
    const last = user === null ? "" : this.#text(bytesOf(user), RULES_MAX_BYTES);
    return {
      path,
      levels: [...levels, { folder: "", text: last }],
      readTracked: () =>
        (git === null ? [] : this.#tracked(git)).flatMap((each) =>
          isUnder(each, path) ? [each.slice(path.length + 1)] : [],
        ),
    };
  }

  /** As git finds it: on the same file system, and of the same owner, since anybody may put one into a folder for all. */
  #topAround(): string | null {
    const { dev } = lstatSync(bufferOf(this.#root));
    for (let at = this.#root; at !== "/"; ) {
      at = dirname(at);
      if (lstatSync(bufferOf(at)).dev !== dev) return null;
      const entry = join(at, ".git");
      this.#note(entry);
      const stat = lstatSync(bufferOf(entry), { throwIfNoEntry: false });
      if (!stat || (process.getuid && stat.uid !== process.getuid())) continue;
      const head = lstatSync(bufferOf(join(this.#gitFolder(entry), "HEAD")), { throwIfNoEntry: false });
      if (head) return at;
    }
    return null;
  }

  /** The folder that a `.git` is, or names. */
  #gitFolder(entry: string): string {
    const text = this.#text(entry, LINK_MAX_BYTES);
    const [, named] = /^gitdir: ([^\0\n]+)/.exec(text) ?? [];
    return named === undefined ? entry : resolve(dirname(entry), named.replace(/\r$/, ""));
  }

  #exclude(git: string): string {
    // Of a worktree the rules are those of the repository.
    const common = this.#text(join(git, "commondir"), LINK_MAX_BYTES).replace(/\r?\n.*$/s, "");
    return this.#text(join(common === "" ? git : resolve(git, common), "info/exclude"), RULES_MAX_BYTES);
  }

  #tracked(git: string): readonly string[] {
    const index = this.#bytes(join(git, "index"), INDEX_MAX_BYTES);
    return index ? trackedPaths(index, (name) => this.#bytes(join(git, name), INDEX_MAX_BYTES)) : [];
  }

  #text(file: string, maxBytes: number, flags = 0): string {
    return this.#bytes(file, maxBytes, flags)?.toString("latin1") ?? "";
  }

  /** @returns null for what is no file, cannot be read, or is longer */
  #bytes(file: string, maxBytes: number, flags = 0): Buffer | null {
    this.#note(file);
    let descriptor: number;
    try {
      descriptor = openSync(bufferOf(file), constants.O_RDONLY | constants.O_NONBLOCK | flags);
    } catch (error) {
      if (error instanceof Error && "code" in error) return null;
      throw error;
    }
    try {
      const stat = fstatSync(descriptor);
      return stat.isFile() && stat.size <= maxBytes ? readFileSync(descriptor) : null;
    } finally {
      closeSync(descriptor);
    }
  }

  #note(file: string): void {
    this.#read.set(file, stampAt(file));
  }
}

function stampAt(file: string): string {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs, mode } = lstatSync(bufferOf(file), { bigint: true });
    // A folder is looked into for other names than the one that is asked for.
    return (mode & 0o170000n) === 0o040000n ? `${dev} ${ino}` : [dev, ino, size, mtimeNs, ctimeNs].join(" ");
  } catch {
    return "";
  }
}

function bufferOf(path: string): Buffer {
  return Buffer.from(path, "latin1");
}
