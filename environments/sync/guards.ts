/** What a mirror never takes, whatever both sides hold: our own, git's, and what the host cannot hold beside another name. */
import { lstatSync, realpathSync } from "node:fs";
import { relative } from "node:path";
import type { TreeEntry } from "../base.ts";
import type { IgnoreRules } from "../tree/ignore-rules.ts";
import { bytesOf, isUnder, showName } from "../tree/names.ts";
import type { Verdict, View } from "./side.ts";

/** How a name ends under which a conflict's other content is kept. */
export const CONFLICT = /\.conflict-[0-9a-f]{8}$/;

/**
 * Makes the judge of what is mirrored.
 *
 * @param own folders of our own state, as they compare where case does not matter
 */
export function judgeBy(rules: IgnoreRules, own: readonly string[]): (entry: TreeEntry) => Verdict {
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

/** Our own folders inside the mirrored one, as they compare where case does not matter. */
export function ownFolders(root: string, stateDir: string): readonly string[] {
  let real = stateDir;
  try {
    real = realpathSync(stateDir);
  } catch {
    // It is not there yet; its name is protected all the same.
  }
  const inside = relative(root, real);
  return inside === "" || inside.startsWith("..") ? [] : [fold(bytesOf(inside))];
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
