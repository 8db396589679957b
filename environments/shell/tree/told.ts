/**
 * What the request that puts things in place tells of them, so that nothing has to be looked at a second time. Of a few
 * paths it tells all. Of what is in a folder that was moved as a whole it tells the names, and the rest of some
 * examples: such a folder is what tar has made, and tar ends with an error where it could not.
 */
import type { TreeChanges, TreeOutcome } from "../../base.ts";
import { FIND_NAMED, parseNamed, STAMP } from "../../tree/find.ts";
import { parentOf } from "../../tree/names.ts";
import { judgedPaths, judgeOutcome, type Staged } from "../../tree/outcome.ts";
import { quote } from "../quote.ts";
import { batches, type FolderPlan, here, inBatches, LINE_BYTES } from "./finish.ts";

/** So many paths are asked about in the request that also does all else. */
const FEW_PATHS = 256;

function areFew(paths: readonly string[]): boolean {
  return paths.length <= FEW_PATHS && paths.reduce((sum, { length }) => sum + length, 0) < LINE_BYTES / 2;
}

/**
 * A test that ends the script with `exitCode` when something else stands at the paths than was expected. Where a whole
 * folder is to come, that there is nothing yet says the same of all that is in it. For GNU find.
 */
export function expectationScript(
  expected: NonNullable<TreeChanges["expected"]>,
  { whole }: FolderPlan,
  exitCode: number,
): string {
  const tops = new Map<string, string>();
  const topOf = (folder: string): string => {
    const parent = parentOf(folder);
    const top = tops.get(folder) ?? (whole.has(parent) ? topOf(parent) : folder);
    tops.set(folder, top);
    return top;
  };
  const absent = new Set<string>();
  const asked = new Map<string, string | null>();
  for (const [path, entry] of expected) {
    const folder = parentOf(path);
    if (entry === null && whole.has(folder)) absent.add(topOf(folder));
    else asked.set(path, entry && `${entry.kind === "directory" ? "d" : entry.stamp} ./${path}`);
  }
  const leave = `exit ${exitCode}`;
  return [
    ...batches([...absent].map(here)).map(
      (words) => `for d in ${words}; do if [ -e "$d" ] || [ -L "$d" ]; then ${leave}; fi; done`,
    ),
    ...inBatches([...asked], ([path]) => here(path)).flatMap((batch) => {
      const words = batch.flatMap(([, word]) => word ?? []).join("\n");
      return [
        `now=$(find ${batch.map(([path]) => here(path)).join(" ")} -maxdepth 0 \\( -type d -printf 'd %p\\n' -o -printf '${STAMP} %p\\n' \\) 2>/dev/null)`,
        `[ "$now" = ${quote(words)} ] || ${leave}`,
      ];
    }),
    "",
  ].join("\n");
}

/** How a script tells what came of it. */
export interface Telling {
  /** Lines for its end. */
  readonly script: string;
  /** @returns null when what it told leaves a doubt, and everything has to be looked at */
  readonly read: (stdout: Buffer) => TreeOutcome | null;
}

/** @returns null when that would be too much to ask. */
export function telling(
  files: readonly Staged[],
  changes: TreeChanges,
  { whole, tops }: FolderPlan,
): Telling | null {
  const isInWhole = ({ path }: { readonly path: string }) => whole.has(parentOf(path));
  const { folders = [], links = [] } = changes;
  const examples = new Set([
    ...examplesOf(files.filter(isInWhole)),
    ...examplesOf(folders.filter(isInWhole)),
  ]);
  const isJudged = (each: { readonly path: string }) => !isInWhole(each) || examples.has(each.path);
  const judgedFiles = files.filter(isJudged);
  const judged = { ...changes, folders: folders.filter(isJudged), links: links.filter(isJudged) };
  const paths = judgedPaths(judgedFiles, judged);
  if (!areFew([...paths, ...tops])) return null;
  const kinds = new Map([
    ...files.filter(isInWhole).map(({ path }) => [path, "f"] as const),
    ...folders.filter(isInWhole).map(({ path }) => [path, "d"] as const),
    ...links.filter(isInWhole).map(({ path }) => [path, "l"] as const),
  ]);
  const words = (list: readonly string[]) => list.map(here).join(" ");
  return {
    // Where a folder was there already, names would tell nothing of what is called so: nothing is told then.
    script: [
      ...(tops.length === 0
        ? []
        : [`if [ -z "$left" ]; then`, `find ${words(tops)} -printf '%y%p\\0' 2>/dev/null`]),
      "printf '\\000'",
      ...(paths.length === 0 ? [] : [`find ${words(paths)} -maxdepth 0 -printf '${FIND_NAMED}' 2>/dev/null`]),
      ...(tops.length === 0 ? [] : ["fi"]),
      "",
    ].join("\n"),
    read: (stdout) => {
      const end = tops.length === 0 ? 0 : stdout.indexOf("\0\0") + 1;
      const missing = new Map(kinds);
      for (const word of stdout.toString("latin1", 0, end).split("\0"))
        if (missing.get(word.slice(3)) === word[0]) missing.delete(word.slice(3));
      if (missing.size > 0 || stdout[end] !== 0) return null;
      const found = parseNamed(stdout, end + 1, { takenAt: 0, fineSeconds: 0 });
      const outcome = judgeOutcome(found, judgedFiles, judged, new Map());
      if (outcome.failed.some(isInWhole)) return null;
      return {
        ...outcome,
        done: [...outcome.done, ...[...kinds.keys()].filter((path) => !examples.has(path))],
      };
    },
  };
}

/** One of each mode, and those of the first and the last time. */
function examplesOf(
  entries: readonly { readonly path: string; readonly mode: number; readonly modifiedAt?: number }[],
): readonly string[] {
  const byMode = new Map<number, string>();
  let [first, last] = [entries[0], entries[0]];
  for (const entry of entries) {
    byMode.set(entry.mode, entry.path);
    if ((entry.modifiedAt ?? 0) < (first?.modifiedAt ?? 0)) first = entry;
    if ((entry.modifiedAt ?? 0) > (last?.modifiedAt ?? 0)) last = entry;
  }
  return [...byMode.values(), ...[first, last].flatMap((entry) => entry?.path ?? [])];
}
