/** What a mirror has to do, from what both sides are and what they were. Content decides; clocks have no say. */
import { foldersOn, parentOf } from "../tree/names.ts";
import { fileState, type View } from "./side.ts";

export type Direction = "push" | "pull" | "both";

export interface Decision {
  /** To be made there as it is here, deletions too. */
  readonly push: readonly string[];
  /** To be made here as it is there. */
  readonly pull: readonly string[];
  /** Changed on both sides, and not in the same way. */
  readonly conflicts: readonly string[];
  /** The same on both sides, and not known to be. */
  readonly equal: readonly string[];
  /** Changed there only, where it must not come from. */
  readonly held: readonly { readonly path: string; readonly reason: string }[];
}

/**
 * @param paths all that may differ from what was agreed on
 * @param mayPull why what is there must not come here; null when it may
 * @param isSettled whether a conflict of a push or a pull is settled: then it goes the direction's way
 */
export function decide(
  paths: Iterable<string>,
  here: View,
  there: View,
  base: ReadonlyMap<string, string>,
  direction: Direction,
  mayPull: (path: string) => string | null,
  isSettled: (path: string) => boolean = () => false,
): Decision {
  const push: string[] = [];
  const pull: string[] = [];
  const conflicts: string[] = [];
  const equal: string[] = [];
  const held: { path: string; reason: string }[] = [];
  // What is of no kind that is mirrored is told, and as little touched as what cannot be read.
  const closed = new Set([here, there].flatMap(({ unreadable, odd }) => [...unreadable, ...odd.keys()]));
  for (const path of paths) {
    if (closed.size > 0 && (closed.has(path) || foldersOn(path).some((folder) => closed.has(folder))))
      continue;
    if (isUntouched(here, there, base, path)) continue;
    const [ours, theirs, was] = [here.stateOf(path), there.stateOf(path), base.get(path)];
    const bothFolders = ours?.startsWith("folder") && theirs?.startsWith("folder");
    if (ours === theirs && !ours?.endsWith("?")) equal.push(path);
    else if (theirs === was || (bothFolders && ours !== was)) push.push(path);
    else {
      const reason = mayPull(path);
      if (reason !== null) {
        // Where nothing may come from, what is here still goes there unless that was changed.
        held.push({ path, reason });
      } else if (ours === was) pull.push(path);
      else if (direction !== "both" && isSettled(path)) (direction === "push" ? push : pull).push(path);
      else conflicts.push(path);
    }
  }
  const goesThere = new Set(direction === "pull" ? [] : push);
  const comesHere = new Set(direction === "push" ? [] : pull);
  keepFullFolders(goesThere, here, there);
  keepFullFolders(comesHere, there, here);
  const brought = new Set([...bringFolders(goesThere, here, there), ...bringFolders(comesHere, there, here)]);
  return {
    push: [...goesThere].sort(),
    pull: [...comesHere].sort(),
    conflicts: conflicts.filter((path) => !brought.has(path)).sort(),
    equal,
    held,
  };
}

/** Whether a file is on both sides what it was; their stamps tell, and nothing needs to be compared. */
function isUntouched(here: View, there: View, base: ReadonlyMap<string, string>, path: string): boolean {
  const hash = here.hashOf(path);
  if (hash === undefined || hash !== there.hashOf(path)) return false;
  const [ours, theirs] = [here.entries.get(path), there.entries.get(path)];
  return ours?.mode === theirs?.mode && base.get(path) === fileState(ours?.mode ?? 0, hash);
}

/** A folder that one side has removed, and the other has put something into, comes back as it is there, with its mode. */
function bringFolders(paths: Set<string>, from: View, to: View): readonly string[] {
  const brought: string[] = [];
  for (const path of [...paths]) {
    if (!from.entries.has(path)) continue;
    // Those on the way to one that is there, or comes anyway, are or do so too.
    for (let folder = parentOf(path); folder !== ""; folder = parentOf(folder)) {
      if (to.entries.has(folder) || paths.has(folder)) break;
      if (from.entries.get(folder)?.kind !== "directory") break;
      paths.add(folder);
      brought.push(folder);
    }
  }
  return brought;
}

/** A folder is removed only when nothing in it stays: what is not mirrored, new, or in conflict keeps it. */
function keepFullFolders(paths: Set<string>, from: View, to: View): void {
  const isGone = (path: string) => paths.has(path) && !from.entries.has(path);
  if (![...paths].some((path) => isGone(path) && to.entries.get(path)?.kind === "directory")) return;
  const staying = new Set(to.all.filter(({ path }) => !isGone(path)).flatMap(({ path }) => foldersOn(path)));
  for (const path of paths) if (isGone(path) && staying.has(path)) paths.delete(path);
}
