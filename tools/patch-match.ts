/**
 * Where old text is in a file. Rungs from strict to lenient; each is tried on the whole file before the next, and
 * a lenient one tells its name, so that no edit is made on a guess unseen.
 */
import type { Line } from "./patch-lines.ts";

export type Rung = "exact" | "line-endings" | "trailing-whitespace" | "indentation" | "unicode";

/** How a lenient rung compares two lines. */
export const LINE_KEYS: Readonly<
  Record<"exact" | "trailing-whitespace" | "indentation" | "unicode", (text: string) => string>
> = {
  exact: (text) => text,
  "trailing-whitespace": trimEnd,
  indentation: trimBoth,
  unicode: (text) => trimBoth(plainText(text)),
};

/** Without blanks and tabs at the end; other white space is content. */
export function trimEnd(text: string): string {
  let end = text.length;
  while (end > 0 && isBlank(text, end - 1)) end -= 1;
  return text.slice(0, end);
}

function trimBoth(text: string): string {
  let start = 0;
  while (start < text.length && isBlank(text, start)) start += 1;
  return trimEnd(text.slice(start));
}

function isBlank(text: string, at: number): boolean {
  return text[at] === " " || text[at] === "\t";
}

/** Characters that models write in their plain form. */
const PLAIN: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    [..."\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"].map((c) => [c, "-"]),
  ),
  ...Object.fromEntries([..."\u2018\u2019\u201a\u201b"].map((c) => [c, "'"])),
  ...Object.fromEntries([..."\u201c\u201d\u201e\u201f"].map((c) => [c, '"'])),
  ...Object.fromEntries(
    [
      ..."\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
    ].map((c) => [c, " "]),
  ),
  "\u2026": "...",
};

/** `text` with its dashes, quotes and blanks in plain ASCII. */
export function plainText(text: string): string {
  return text.replaceAll(/[^\0-\x7f]/g, (character) => PLAIN[character] ?? character);
}

/** A text in a simpler form, and for each of its characters the place where that began in the text. */
export interface Mapped {
  readonly text: string;
  /** One entry per character of `text`, and one for its end. */
  readonly starts: readonly number[];
}

/** Drops the `\r` of `\r\n`, and plain-texts each character when `plain`. */
export function mapText(text: string, plain: boolean): Mapped {
  let mapped = "";
  const starts: number[] = [];
  for (let at = 0; at < text.length; at += 1) {
    const character = text.charAt(at);
    if (character === "\r" && text.charAt(at + 1) === "\n") {
      starts.push(at);
      mapped += "\n";
      at += 1;
      continue;
    }
    const simple = plain ? (PLAIN[character] ?? character) : character;
    for (let index = 0; index < simple.length; index += 1) starts.push(at);
    mapped += simple;
  }
  starts.push(text.length);
  return { text: mapped, starts };
}

/** Every place of `needle`, overlapping ones too. */
export function findAll(text: string, needle: string): readonly number[] {
  const places: number[] = [];
  for (let at = text.indexOf(needle); at >= 0; at = text.indexOf(needle, at + 1)) places.push(at);
  return places;
}

/** Those of `places` that do not overlap, from the left. */
export function withoutOverlaps(places: readonly number[], length: number): readonly number[] {
  const kept: number[] = [];
  let free = 0;
  for (const place of places) {
    if (place < free) continue;
    kept.push(place);
    free = place + length;
  }
  return kept;
}

/** Every index from `from` on at which `wanted` follow one another, compared by `key`. */
export function findLines(
  lines: readonly Line[],
  wanted: readonly string[],
  key: (text: string) => string,
  from = 0,
): readonly number[] {
  if (wanted.length === 0) return [];
  const keys = wanted.map(key);
  const have = lines.map(({ text }) => key(text));
  const places: number[] = [];
  for (let at = from; at + keys.length <= have.length; at += 1) {
    if (keys.every((wantedKey, index) => have[at + index] === wantedKey)) places.push(at);
  }
  return places;
}

/** 1-based line number of a place in a text. */
export function lineNumber(text: string, place: number): number {
  let line = 1;
  for (let at = text.indexOf("\n"); at >= 0 && at < place; at = text.indexOf("\n", at + 1)) line += 1;
  return line;
}
