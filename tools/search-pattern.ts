/** One search pattern in the forms that ripgrep and a POSIX grep take. */

export interface EnginePatterns {
  readonly ripgrep: string;
  /** Extended regular expressions, one a line, any of which may match. */
  readonly grep: string;
}

export type PatternUse = "regex" | "literal" | "both";

export function enginePatterns(pattern: string, use: PatternUse): EnginePatterns {
  const literal = escapeRegex(pattern);
  if (use === "literal") return { ripgrep: literal, grep: literal };
  const extended = toExtended(pattern);
  if (use === "regex") return { ripgrep: pattern, grep: extended };
  return { ripgrep: `(?:${pattern})|(?:${literal})`, grep: `${extended}\n${literal}` };
}

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
    .replace(/^\(\?[a-z]+\)/, "")
    .replaceAll("(?:", "(")
    .replaceAll(/\\([dDsS])/g, (_, letter: string) => POSIX_CLASSES[letter] ?? letter);
}

const POSIX_CLASSES: Readonly<Record<string, string>> = {
  d: "[0-9]",
  D: "[^0-9]",
  s: "[[:space:]]",
  S: "[^[:space:]]",
};
