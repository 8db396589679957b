/** Patterns of ssh: `*` and `?`, lists in which a negated match decides against all others. Case does not count. */

function toExpression(pattern: string): RegExp {
  const source = pattern.replace(/[\\^$+.()|[\]{}*?]/g, (character) =>
    character === "*" ? ".*" : character === "?" ? "." : `\\${character}`,
  );
  return new RegExp(`^${source}$`, "is");
}

/** Whether a pattern of the list matches and no negated one does. */
export function matchesList(text: string, patterns: readonly string[]): boolean {
  let matched = false;
  for (const pattern of patterns) {
    const negated = pattern.startsWith("!");
    if (!toExpression(negated ? pattern.slice(1) : pattern).test(text)) continue;
    if (negated) return false;
    matched = true;
  }
  return matched;
}
