/**
 * What holds the place of a protected part that is missing: an empty folder, or a file of a few bytes. Each is made and
 * removed in the very folder that was meant: a path is a name that somebody may have given to a link since, and by it
 * things would come and go elsewhere on the machine.
 */
import {
  closeSync,
  constants,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  readSync,
  rmdirSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname } from "node:path";
import { MoorageError } from "../../../src/errors.ts";
import { type Kind, kindOf } from "./kinds.ts";

export interface Placeholder {
  /** Its folder's path has no link in it. */
  readonly path: string;
  readonly hold: "folder" | { readonly text: string };
}

/** Opens a folder for its name alone, which takes no right to read it. Node does not know the flag. */
const O_PATH = 0o10000000;

/** Folders that are open for as long as `use` runs, by their paths. Null where a path no longer leads to itself. */
function inFolders<Result>(use: (open: (path: string) => string | null) => Result): Result {
  const descriptors = new Map<string, number | null>();
  try {
    return use((path) => {
      if (!descriptors.has(path)) descriptors.set(path, openFolder(path));
      const descriptor = descriptors.get(path) ?? null;
      return descriptor === null ? null : `/proc/self/fd/${descriptor}`;
    });
  } finally {
    for (const descriptor of descriptors.values()) if (descriptor !== null) closeSync(descriptor);
  }
}

function openFolder(path: string): number | null {
  let descriptor: number;
  try {
    descriptor = openSync(path, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  } catch (error) {
    if (["ENOENT", "ENOTDIR", "ELOOP"].includes(codeOf(error))) return null;
    throw error;
  }
  // Links above it would have been followed.
  if (readlinkSync(`/proc/self/fd/${descriptor}`) === path) return descriptor;
  closeSync(descriptor);
  return null;
}

/**
 * Makes them, one that lies in another after it. At once: each takes some 30 microseconds on a disk, other threads are
 * waited for longer, and bwrap for all of them.
 *
 * @throws {MoorageError} ENVIRONMENT_UNAVAILABLE for the first that cannot be made
 */
export function makePlaceholders(missing: readonly Placeholder[]): void {
  inFolders((open) => {
    for (const each of missing) makeOne(each, open);
  });
}

function makeOne({ path, hold }: Placeholder, open: (path: string) => string | null): void {
  const kind: Kind = hold === "folder" ? "folder" : "other";
  try {
    const folder = open(dirname(path));
    if (folder === null) throw new Error("its folder was replaced meanwhile");
    const own = `${folder}/${basename(path)}`;
    try {
      if (hold === "folder") mkdirSync(own);
      else writeFileSync(own, hold.text, { flag: "wx" });
    } catch (error) {
      // Another sandbox of this workspace, or somebody else, came first: what is there now is held as well.
      if (codeOf(error) !== "EEXIST" || kindOf(own) !== kind) throw error;
    }
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new MoorageError("ENVIRONMENT_UNAVAILABLE", `Cannot protect "${path}" in the sandbox: ${reason}`, {
      suggestion: "Choose a workspace in which you may make files, and that nobody else changes meanwhile.",
      cause: error,
    });
  }
}

/**
 * Removes placeholders, deepest first. What somebody has filled, mounted over or put in the place of one stays.
 *
 * @param texts contents of files that are placeholders
 * @returns those that are left though they should go, each with the reason
 */
export function removePlaceholders(paths: readonly string[], texts: readonly string[]): readonly string[] {
  return inFolders((open) =>
    [...paths]
      .sort((a, b) => b.length - a.length)
      .flatMap((path) => {
        try {
          const folder = open(dirname(path));
          if (folder !== null) removeOne(`${folder}/${basename(path)}`, texts);
          return [];
        } catch (error) {
          const gone = ["ENOENT", "ENOTDIR", "ENOTEMPTY", "EEXIST", "EBUSY", "ELOOP"].includes(codeOf(error));
          return gone ? [] : [`${path} (${error instanceof Error ? error.message : String(error)})`];
        }
      }),
  );
}

function removeOne(path: string, texts: readonly string[]): void {
  const stat = lstatSync(path);
  if (stat.isDirectory()) rmdirSync(path);
  // Pipes, devices and what links lead to must not be opened.
  else if (stat.isFile() && texts.includes(beginningOf(path, texts))) unlinkSync(path);
}

/** One byte more than the longest of `texts`. */
function beginningOf(path: string, texts: readonly string[]): string {
  const longest = Math.max(...texts.map((text) => Buffer.byteLength(text)));
  const descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  try {
    const bytes = Buffer.alloc(longest + 1);
    return bytes.toString("latin1", 0, readSync(descriptor, bytes));
  } finally {
    closeSync(descriptor);
  }
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}
