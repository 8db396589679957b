/** Patterns of ssh: `*` and `?`, lists in which a negated match decides against all others. */

export interface MatchOptions {
  /** As for aliases and users; for hosts it does not count. @default false */
  readonly caseCounts?: boolean;
}

function toExpression(pattern: string, caseCounts: boolean): RegExp {
  const source = pattern.replace(/[\\^$+.()|[\]{}*?]/g, (character) =>
    character === "*" ? ".*" : character === "?" ? "." : `\\${character}`,
  );
  return new RegExp(`^${source}$`, caseCounts ? "s" : "is");
}

/** Whether a pattern of the list matches and no negated one does. */
export function matchesList(
  text: string,
  patterns: readonly string[],
  { caseCounts = false }: MatchOptions = {},
): boolean {
  let matched = false;
  for (const pattern of patterns) {
    const negated = pattern.startsWith("!");
    if (!toExpression(negated ? pattern.slice(1) : pattern, caseCounts).test(text)) continue;
    if (negated) return false;
    matched = true;
  }
  return matched;
}
