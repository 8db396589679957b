/** What a mirror never takes, whatever both sides hold: our own, git's, and what the host cannot hold beside another name. */
import { lstatSync, realpathSync } from "node:fs";
import { isAbsolute, relative } from "node:path";
import { MoorageError } from "../../src/errors.ts";
import type { TreeEntry } from "../base.ts";
import { IgnoreRules } from "../tree/ignore-rules.ts";
import { bytesOf, isUnder, showName } from "../tree/names.ts";
import { type HostRepositories, isRepositoryEntry } from "../tree/repositories.ts";
import type { Verdict, View } from "./side.ts";

/** How a name ends under which a conflict's other content is kept. */
export const CONFLICT = /\.conflict-[0-9a-f]{8}$/;

/**
 * What is left out: by the files with rules, and by what the host's repositories say and track.
 *
 * @param texts of files with rules, by path
 * @param entries of the host's folder
 */
export function rulesOf(
  texts: ReadonlyMap<string, string>,
  repositories: HostRepositories,
  entries: readonly Pick<TreeEntry, "path">[],
): IgnoreRules {
  const found = entries.map(({ path }) => path).filter(isRepositoryEntry);
  return new IgnoreRules(texts, repositories.inside(found), repositories.around(found.includes(".git")));
}

/**
 * Makes the judge of what is mirrored.
 *
 * @param own folders of our own state, as they compare where case does not matter
 */
export function judgeBy(
  rules: IgnoreRules,
  own: readonly string[],
): (entry: Pick<TreeEntry, "path" | "kind">) => Verdict {
  return ({ path, kind }) => {
    if (kind !== "file" && kind !== "directory" && kind !== "symlink") return "odd";
    if (own.length > 0) {
      const folded = fold(path);
      if (own.some((folder) => folded === folder || isUnder(folded, folder))) return "left out";
    }
    const isCopy = path.includes(".conflict-") && CONFLICT.test(path);
    return isCopy || rules.ignores(path, kind === "directory") ? "left out" : "mirrored";
  };
}

/**
 * Whether some file system takes the name for git's own folder: it ignores case, characters that do not show (HFS+),
 * dots and spaces at the end, or has a short name for it (NTFS).
 *
 * @see git's core.protectHFS and core.protectNTFS for the same list
 */
export function isGits(part: string): boolean {
  const text = Buffer.from(part, "latin1").toString("utf8");
  const shown = text.replaceAll(/[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]/g, "").toLowerCase();
  return /^(\.git[. ]*|git~\d+)$/.test(shown);
}

/** Our own folder inside the mirrored one, as it compares where case does not matter. */
export function ownFolders(root: string, stateDir: string): readonly string[] {
  const inside = pathWithin(root, realState(stateDir));
  return inside === null || inside === "" ? [] : [fold(bytesOf(inside))];
}

/**
 * Sees to it that two folders of this machine can be mirrored: none is our own state, or in it, and none lies in the
 * other, where each run would copy what the last one had copied.
 *
 * @param there null when it is none of this machine's
 * @throws {MoorageError} PATH_DENIED, INVALID_ARGUMENTS
 */
export function requireApart(here: string, there: string | null, stateDir: string): void {
  const state = realState(stateDir);
  for (const root of [here, there]) {
    if (root === null || pathWithin(state, root) === null) continue;
    throw new MoorageError("PATH_DENIED", `Cannot mirror "${root}": it is a part of Moorage's own state`);
  }
  if (there === null || here === there) return;
  if (pathWithin(here, there) === null && pathWithin(there, here) === null) return;
  throw new MoorageError(
    "INVALID_ARGUMENTS",
    `Cannot mirror "${here}" and "${there}": one lies in the other`,
    {
      suggestion: "Choose two folders that lie side by side.",
    },
  );
}

function realState(stateDir: string): string {
  try {
    return realpathSync(stateDir);
  } catch {
    // It is not there yet; its name is protected all the same.
    return stateDir;
  }
}

/** The path relative to the folder, empty for the folder itself; null when it is not in it. */
function pathWithin(folder: string, path: string): string | null {
  const inside = relative(folder, path);
  return inside === ".." || inside.startsWith("../") || isAbsolute(inside) ? null : inside;
}

function fold(path: string): string {
  return Buffer.from(path, "latin1").toString("utf8").normalize("NFC").toLowerCase();
}

/** Paths of the environment that the host could not hold beside another one. */
export function collisionsOf(here: View, there: View, ignoresCase: boolean): ReadonlyMap<string, string> {
  const collisions = new Map<string, string>();
  if (!ignoresCase) return collisions;
  const byFolded = new Map<string, Set<string>>();
  for (const path of new Set([...here.entries.keys(), ...there.entries.keys()])) {
    const key = fold(path);
    byFolded.set(key, (byFolded.get(key) ?? new Set()).add(path));
  }
  for (const twins of byFolded.values()) {
    if (twins.size < 2) continue;
    for (const path of twins) {
      const other = [...twins].find((each) => each !== path) ?? "";
      collisions.set(path, `on this host it would be the same as ${showName(other)}`);
    }
  }
  return collisions;
}

/** Whether the folder itself is found under its name in the other case. */
export function hostIgnoresCase(root: string): boolean {
  const swapped = root.replaceAll(/[a-zA-Z]/g, (letter) =>
    letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
  );
  if (swapped === root) return false;
  try {
    return lstatSync(swapped, { bigint: true }).ino === lstatSync(root, { bigint: true }).ino;
  } catch {
    // Nothing is there under that name.
    return false;
  }
}
