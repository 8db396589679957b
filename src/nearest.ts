/** Finds the valid word that a misspelt one most likely meant. */

/** Longer words are compared by their beginning, so that hostile input costs nothing. */
const MAX_COMPARED = 64;

/**
 * The candidate that `word` most likely meant, or null when none is close.
 *
 * Case, `-` and `_` count for nothing; a swap of neighbours counts as one slip. A word whose letters all stand in a
 * candidate in order (`cmd` in `command`) is close too.
 */
export function nearest(word: string, candidates: Iterable<string>): string | null {
  const wanted = fold(word);
  let best: string | null = null;
  let bestDistance = Number.POSITIVE_INFINITY;
  for (const candidate of candidates) {
    const folded = fold(candidate);
    const distance = editDistance(wanted, folded);
    const bound = Math.max(1, Math.ceil(Math.max(wanted.length, folded.length) / 3));
    const close = distance <= bound || (wanted.length >= 3 && isSubsequence(wanted, folded));
    if (close && distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** `; did you mean "x"?` for the end of a message, or nothing when no candidate is close. */
export function didYouMean(word: string, candidates: Iterable<string>): string {
  const found = nearest(word, candidates);
  return found === null ? "" : `; did you mean "${found}"?`;
}

/** Insertions, deletions, replacements and swaps of neighbours that make `a` into `b` (optimal string alignment). */
export function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= b.length; column += 1) {
      const replaced = (last[column - 1] ?? 0) + (a[row - 1] === b[column - 1] ? 0 : 1);
      let cost = Math.min(replaced, (last[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1);
      const swapped = row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      if (swapped) cost = Math.min(cost, (beforeLast[column - 2] ?? 0) + 1);
      current.push(cost);
    }
    beforeLast = last;
    last = current;
  }
  return last[b.length] ?? 0;
}

function fold(word: string): string {
  return word.slice(0, MAX_COMPARED).toLowerCase().replaceAll(/[-_]/g, "");
}

function isSubsequence(short: string, long: string): boolean {
  let at = 0;
  for (const character of long) if (character === short[at]) at += 1;
  return at === short.length;
}
