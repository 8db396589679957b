/** One search pattern in the forms that ripgrep and a POSIX grep take. */

export interface EnginePatterns {
  readonly ripgrep: string;
  /** Extended regular expressions, one a line, any of which may match. */
  readonly grep: string;
  /** Whether grep is to pass over case; ripgrep reads that in the pattern. */
  readonly grepIgnoresCase: boolean;
  /** What grep does not know of the pattern, such as `(?=`; null when it knows it all. */
  readonly beyondGrep: string | null;
}

export type PatternUse = "regex" | "literal" | "both";

export function enginePatterns(pattern: string, use: PatternUse): EnginePatterns {
  const literal = escapeRegex(pattern);
  if (use === "literal") return { ripgrep: literal, grep: literal, grepIgnoresCase: false, beyondGrep: null };
  const grepIgnoresCase = IGNORE_CASE.test(pattern);
  const beyondGrep = findBeyondGrep(pattern);
  const extended = toExtended(pattern);
  if (use === "regex") return { ripgrep: pattern, grep: extended, grepIgnoresCase, beyondGrep };
  return {
    ripgrep: `(?:${pattern})|(?:${literal})`,
    grep: `${extended}\n${literal}`,
    grepIgnoresCase,
    beyondGrep,
  };
}

/** What begins a group that a POSIX grep does not know, such as `(?=` or `(?m)`; null when there is none. */
function findBeyondGrep(pattern: string): string | null {
  const rest = pattern.replace(IGNORE_CASE, "");
  // Escaped characters and bracket expressions are passed over, so that their parentheses do not count.
  for (const [found] of rest.matchAll(/\\.|\[\^?\]?[^\]]*\]|\(\?(?!:)(?:<[=!]|P?<\w*>?|[a-z-]+[:)]?|.)?/gs)) {
    if (found.startsWith("(")) return found;
  }
  return null;
}

const IGNORE_CASE = /^\(\?i\)/;

/** Whether reading `pattern` as text differs from reading it as a regular expression. */
export function hasRegexSyntax(pattern: string): boolean {
  return /[\\.*+?()[\]{}|^$]/.test(pattern);
}

export function escapeRegex(text: string): string {
  return text.replaceAll(/[\\.*+?()[\]{}|^$]/g, (character) => `\\${character}`);
}

/** The classes and groups that programmers write, in POSIX terms. */
function toExtended(pattern: string): string {
  return pattern
    .replace(IGNORE_CASE, "")
    .replaceAll("(?:", "(")
    .replaceAll(/\\([dDsS])/g, (_, letter: string) => POSIX_CLASSES[letter] ?? letter);
}

const POSIX_CLASSES: Readonly<Record<string, string>> = {
  d: "[0-9]",
  D: "[^0-9]",
  s: "[[:space:]]",
  S: "[^[:space:]]",
};
