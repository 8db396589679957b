/**
 * A tree in two halves, for two finds that look side by side. Which of them looks at an entry is told by its path alone, so
 * that together they tell everything and nothing twice, whatever the tree has become; how much each has to do is a guess
 * from what it was.
 */
import type { TreeEntry } from "../base.ts";
import { textOf } from "./names.ts";

/** Fewer entries are looked at sooner than a second program starts. */
const MIN_ENTRIES = 1_500;
/** The most that the busier of two may have to look at, in parts of what one would. */
const WORTH = 0.8;
/** A part of the tree that is itself divided, rather than given to one of two. */
const HEAVY = 0.7;
/** Folders on the way to where a tree is divided. */
const DEPTH_MAX = 6;
/** What stands for itself between the brackets of a pattern. */
const PLAIN = /^[A-Za-z0-9_.@+]$/;

/** The entries of one folder whose names begin so, with all that is in them. */
export interface Half {
  /** For `find -path`: those entries, and what is in them. */
  readonly pattern: string;
  /** For `find -path`: the folders on the way to them, outermost first, without the root. */
  readonly way: readonly string[];
}

/** @returns one of two halves that have about as many entries each; null where two programs would not be sooner */
export function divide(entries: readonly TreeEntry[]): Half | null {
  if (entries.length < MIN_ENTRIES) return null;
  const way: string[] = [];
  for (let folder = ""; way.length <= DEPTH_MAX; ) {
    const members = weigh(entries, folder);
    const [heaviest, weight] = heaviestOf(members);
    if (weight <= HEAVY * entries.length) {
      const start = divideNames(members, entries.length);
      const path = start && patternOf(folder + start.prefix);
      return start && path !== null ? { pattern: `${path}[${start.next}]*`, way } : null;
    }
    const inner = patternOf(folder + heaviest);
    if (inner === null) return null;
    way.push(inner);
    folder += `${heaviest}/`;
  }
  return null;
}

/** How many entries each name of a folder stands for: itself, and what is in it. */
function weigh(entries: readonly TreeEntry[], folder: string): ReadonlyMap<string, number> {
  const weights = new Map<string, number>();
  for (const { path } of entries) {
    if (!path.startsWith(folder)) continue;
    const slash = path.indexOf("/", folder.length);
    const name = path.slice(folder.length, slash < 0 ? undefined : slash);
    weights.set(name, (weights.get(name) ?? 0) + 1);
  }
  return weights;
}

function heaviestOf(weights: ReadonlyMap<string, number>): readonly [string, number] {
  let heaviest: readonly [string, number] = ["", 0];
  for (const each of weights) if (each[1] > heaviest[1]) heaviest = each;
  return heaviest;
}

/**
 * @param members of one folder
 * @returns how names begin that stand for about half of `total` entries: the same characters, and then one of some
 */
function divideNames(
  members: ReadonlyMap<string, number>,
  total: number,
): { readonly prefix: string; readonly next: string } | null {
  let prefix = "";
  for (;;) {
    const weights = new Map<string, number>();
    for (const [name, weight] of members) {
      if (name.length <= prefix.length || !name.startsWith(prefix)) continue;
      const next = name.charAt(prefix.length);
      weights.set(next, (weights.get(next) ?? 0) + weight);
    }
    const [heaviest, weight] = heaviestOf(weights);
    if (weight > HEAVY * total) {
      prefix += heaviest;
      continue;
    }
    let ours = 0;
    const chosen: string[] = [];
    for (const [next, more] of [...weights].sort((a, b) => b[1] - a[1])) {
      if (!PLAIN.test(next) || ours + more / 2 > total / 2) continue;
      ours += more;
      chosen.push(next);
    }
    // Both look at the members of the folder itself.
    const busier = Math.max(ours, total - ours) + members.size;
    return busier > WORTH * total ? null : { prefix, next: chosen.sort().join("") };
  }
}

/** Null for what is no text, which a script is. */
function patternOf(path: string): string | null {
  const text = textOf(path);
  return text === null ? null : `./${text.replaceAll(/[\\*?[]/g, "\\$&")}`;
}
