/** What a writer may name, whether what it is about to replace still is what was seen, and what came of its work. */
import { MoorageError } from "../../src/errors.ts";
import type { EnvironmentTree, Owner, TreeChanges, TreeEntry, TreeOutcome, TreeWriter } from "../base.ts";
import { isInside, isOurs, parentOf } from "./names.ts";

export type Staged = Parameters<TreeWriter["stage"]>[0];

/** @throws {MoorageError} PATH_DENIED */
export function requireInside(path: string): void {
  if (isInside(path) && !isOurs(path)) return;
  throw new MoorageError("PATH_DENIED", `Cannot write ${JSON.stringify(path)}: it leads out of the folder`);
}

/** @throws {MoorageError} PATH_DENIED */
export function requireAllInside({ remove = [], folders = [], links = [], modes = [] }: TreeChanges): void {
  remove.forEach(requireInside);
  for (const list of [folders, links, modes]) for (const { path } of list) requireInside(path);
}

/** Paths whose entry is another one than was expected: somebody wrote there meanwhile. */
export async function changedSince(
  scan: EnvironmentTree["scan"],
  root: string,
  expected: NonNullable<TreeChanges["expected"]>,
): Promise<ReadonlySet<string>> {
  const changed = new Set<string>();
  if (expected.size === 0) return changed;
  const found = (await scan(root, { paths: [...expected.keys()] })).entries;
  const now = new Map(found.map((entry) => [entry.path, entry]));
  for (const [path, before] of expected) {
    const after = now.get(path);
    if (before?.kind === "directory" && after?.kind === "directory") continue;
    if (before?.stamp !== after?.stamp) changed.add(path);
  }
  return changed;
}

/** The last second that every file system can tell; some set a later time to the last one that they can. */
const TIME_MAX = 2 ** 31 - 1;

/** What is to be looked at before it is told what came of the changes. */
export function judgedPaths(files: readonly Staged[], changes: TreeChanges): readonly string[] {
  const paths = new Set([...wantedPaths(files, changes), ...(changes.remove ?? [])]);
  for (const path of [...paths])
    for (let folder = parentOf(path); folder !== "" && !paths.has(folder); folder = parentOf(folder))
      paths.add(folder);
  return [...paths];
}

/**
 * Compares what is there with what was asked for.
 *
 * @param found what is at the `judgedPaths`
 * @param reasons why something could not be done, by path
 */
export function judgeOutcome(
  found: readonly TreeEntry[],
  files: readonly Staged[],
  changes: TreeChanges,
  reasons: ReadonlyMap<string, string>,
): TreeOutcome {
  const { remove = [], folders = [], links = [], modes = [] } = changes;
  const entries = new Map(found.map((entry) => [entry.path, entry]));
  const own = new Map([["", true]]);
  // What lies behind a link is not of this folder.
  const isOwn = (folder: string): boolean => {
    let answer = own.get(folder);
    if (answer === undefined) {
      answer = entries.get(folder)?.kind === "directory" && isOwn(parentOf(folder));
      own.set(folder, answer);
    }
    return answer;
  };
  const at = (path: string) => (isOwn(parentOf(path)) ? entries.get(path) : undefined);
  const isOther = (path: string, { stamp }: TreeEntry) => {
    const before = changes.expected?.get(path);
    return before !== undefined && before?.stamp !== stamp;
  };
  const done: string[] = [];
  const failed: { path: string; reason: string }[] = [];
  const judge = (path: string, holds: boolean, otherwise: string) => {
    if (holds) done.push(path);
    else failed.push({ path, reason: reasons.get(path) ?? otherwise });
  };
  // What is removed and then made anew is judged by what it should be.
  const anew = new Set(remove.length === 0 ? [] : wantedPaths(files, changes));
  for (const path of remove) if (!anew.has(path)) judge(path, at(path) === undefined, "it is still there");
  const judgeOwned = (path: string, holds: boolean, otherwise: string, owner: Owner | undefined) => {
    const entry = at(path);
    const isTheirs = !owner || (entry?.uid === owner.uid && entry.gid === owner.gid);
    judge(path, holds && isTheirs, holds ? "its owner could not be set" : otherwise);
  };
  for (const { path, mode, owner } of folders) {
    const entry = at(path);
    const holds = entry?.kind === "directory" && entry.mode === mode;
    judgeOwned(path, holds, "the folder could not be made", owner);
  }
  for (const { path, mode, owner } of modes)
    judgeOwned(path, at(path)?.mode === mode, "its mode could not be set", owner);
  for (const { path, size, mode, modifiedAt } of files) {
    const entry = at(path);
    const holds =
      entry?.kind === "file" &&
      entry.size === size &&
      entry.mode === mode &&
      (entry.modifiedAt === modifiedAt || (modifiedAt > TIME_MAX && isOther(path, entry)));
    judge(path, holds && !reasons.has(path), "the file could not be put in place");
  }
  for (const { path, target, owner } of links) {
    judgeOwned(path, at(path)?.linkTarget === target, "the link could not be put in place", owner);
  }
  return { done, failed };
}

/** The same changes without those of some paths. */
export function without(changes: TreeChanges, paths: ReadonlySet<string>): TreeChanges {
  if (paths.size === 0) return changes;
  const { remove = [], links = [] } = changes;
  return {
    ...changes,
    remove: remove.filter((path) => !paths.has(path)),
    links: links.filter(({ path }) => !paths.has(path)),
  };
}

function wantedPaths(
  files: readonly Staged[],
  { folders = [], links = [], modes = [] }: TreeChanges,
): readonly string[] {
  return [folders, files, links, modes].flatMap((list) => list.map(({ path }) => path));
}
