/** Replacing one text by another in a file, byte by byte where it matters. */
import { diffArrays, diffChars } from "diff";
import { type ErrorCode, MoorageError } from "../src/errors.ts";
import { fitIndentation } from "./patch-indent.ts";
import { editLines, endingAt, joinLines, type Line, type LineEdit, splitLines } from "./patch-lines.ts";
import {
  findAll,
  findLines,
  LINE_KEYS,
  lineNumber,
  mapText,
  type Rung,
  trimEnd,
  withoutOverlaps,
} from "./patch-match.ts";

export interface Replacement {
  readonly text: string;
  readonly count: number;
  readonly matched: Rung;
  /** 1-based lines of the places that changed. */
  readonly lines: readonly number[];
}

export interface ReplaceOptions {
  readonly replaceAll: boolean;
  /** Whether the text is real text; the `unicode` rung makes no sense on single bytes. */
  readonly unicode: boolean;
}

/** Places of an old text in a file. `end` is exclusive; `apply` gives what stands there afterwards. */
interface Place {
  readonly start: number;
  readonly end: number;
  readonly apply: () => string | null;
}

/**
 * Replaces `old` by `now`. Line endings of new lines are those of the place; lines and characters in which `old`
 * and `now` agree keep the file's own bytes.
 *
 * @param old not empty, and not only white space
 * @throws {MoorageError} PATCH_MISMATCH, PATCH_AMBIGUOUS
 */
export function replaceText(text: string, old: string, now: string, options: ReplaceOptions): Replacement {
  const rungs: readonly (readonly [Rung, () => readonly Place[]])[] = [
    ["exact", () => exactPlaces(text, old, now)],
    ["line-endings", () => mappedPlaces(text, old, now, false)],
    ["trailing-whitespace", () => linePlaces(text, old, now, "trailing-whitespace")],
    ["indentation", () => (options.replaceAll ? [] : linePlaces(text, old, now, "indentation"))],
    ["unicode", () => (options.replaceAll || !options.unicode ? [] : mappedPlaces(text, old, now, true))],
  ];
  for (const [rung, find] of rungs) {
    const places = find();
    if (places.length === 0) continue;
    return applyPlaces(text, places, rung, options.replaceAll);
  }
  throw mismatch(text, old, now);
}

function applyPlaces(text: string, places: readonly Place[], rung: Rung, replaceAll: boolean): Replacement {
  const lines = places.map(({ start }) => lineNumber(text, start));
  if (places.length > 1 && !replaceAll) throw ambiguous(lines);
  const first = places[0];
  const length = first ? first.end - first.start : 0;
  const starts = new Set(
    rung === "exact"
      ? withoutOverlaps(
          places.map(({ start }) => start),
          length,
        )
      : places.map(({ start }) => start),
  );
  let result = "";
  let at = 0;
  const changed: number[] = [];
  for (const place of places) {
    if (!starts.has(place.start) || place.start < at) continue;
    const replacement = place.apply();
    if (replacement === null) throw unsafe(rung, lineNumber(text, place.start));
    result += text.slice(at, place.start) + replacement;
    at = place.end;
    changed.push(lineNumber(text, place.start));
  }
  return { text: result + text.slice(at), count: changed.length, matched: rung, lines: changed };
}

function exactPlaces(text: string, old: string, now: string): readonly Place[] {
  return findAll(text, old).map((start) => ({
    start,
    end: start + old.length,
    apply: () => withEndings(now, exactEnding(text, old, start)),
  }));
}

/** The ending that bare `\n` of new text gets at an exact match; null leaves them. */
function exactEnding(text: string, old: string, start: number): string | null {
  if (old.includes("\n")) return /(^|[^\r])\n/.test(old) ? null : "\r\n";
  return lineEndingAround(text, start);
}

function lineEndingAround(text: string, start: number): string | null {
  const next = text.indexOf("\n", start);
  const end = next >= 0 ? next : text.lastIndexOf("\n", start);
  if (end < 0) return null;
  return text[end - 1] === "\r" ? "\r\n" : "\n";
}

function withEndings(text: string, ending: string | null): string {
  return ending === "\r\n" ? text.replaceAll(/(?<!\r)\n/g, "\r\n") : text;
}

/** Matches in a simpler form of the text: without `\r` before `\n`, and with plain characters when `plain`. */
function mappedPlaces(text: string, old: string, now: string, plain: boolean): readonly Place[] {
  const have = mapText(text, plain);
  const wanted = mapText(old, plain).text;
  const plainNow = mapText(now, false).text;
  return findAll(have.text, wanted).flatMap((place) => {
    const start = have.starts[place];
    const end = have.starts[place + wanted.length];
    if (start === undefined || end === undefined) return [];
    // A match must not begin or end inside a character that stands for several.
    if (
      have.starts[place - 1] === start ||
      (place + wanted.length > 0 && have.starts[place + wanted.length - 1] === end)
    ) {
      return [];
    }
    return [
      {
        start,
        end,
        apply: () => splice(text, { start, end, old: mapText(old, false).text, now: plainNow, plain }),
      },
    ];
  });
}

/** Rewrites text[start, end), which is `old` in another form, to `now`, keeping what both have in common. */
function splice(
  text: string,
  {
    start,
    end,
    old,
    now,
    plain,
  }: {
    readonly start: number;
    readonly end: number;
    readonly old: string;
    readonly now: string;
    readonly plain: boolean;
  },
): string | null {
  const region = pieces(text.slice(start, end));
  const ending = region.find((piece) => piece.ending !== "")?.ending ?? lineEndingAround(text, start) ?? "\n";
  const edits = lineEdits(old.split("\n"), now.split("\n"));
  const result: Line[] = [];
  let at = 0;
  for (let index = 0; index < edits.length; index += 1) {
    const edit = edits[index];
    if (!edit) continue;
    if (edit.kind === "add") {
      result.push({ text: edit.text, ending });
      continue;
    }
    const piece = region[at++];
    if (!piece) return null;
    if (edit.kind === "keep") {
      result.push(piece);
      continue;
    }
    const next = edits[index + 1];
    if (next?.kind === "add") {
      const line = plain ? spliceCharacters(piece.text, edit.text, next.text) : next.text;
      if (line === null) return null;
      result.push({ text: line, ending: piece.ending });
      index += 1;
    }
  }
  return result
    .map((line, index) => line.text + (index < result.length - 1 ? line.ending || ending : ""))
    .join("");
}

/** Like `splitLines`, with a last piece after the last newline, empty or not. */
function pieces(text: string): readonly Line[] {
  const lines = splitLines(text);
  return lines.at(-1)?.ending === "" ? lines : [...lines, { text: "", ending: "" }];
}

/** Line edits in which each changed line stands next to what it becomes. */
export function lineEdits(old: readonly string[], now: readonly string[]): readonly LineEdit[] {
  const edits: LineEdit[] = [];
  let removed: string[] = [];
  const flush = (added: readonly string[]): void => {
    for (let index = 0; index < Math.max(removed.length, added.length); index += 1) {
      const [before, after] = [removed[index], added[index]];
      if (before !== undefined) edits.push({ kind: "remove", text: before });
      if (after !== undefined) edits.push({ kind: "add", text: after });
    }
    removed = [];
  };
  for (const part of diffArrays([...old], [...now])) {
    if (part.removed) removed = part.value;
    else if (part.added) flush(part.value);
    else {
      flush([]);
      edits.push(...part.value.map((text): LineEdit => ({ kind: "keep", text })));
    }
  }
  flush([]);
  return edits;
}

/** Changes in `line`, whose plain form is that of `old`, only the characters in which `old` and `now` differ. */
function spliceCharacters(line: string, old: string, now: string): string | null {
  const have = mapText(line, true);
  const plainOld = mapText(old, true);
  if (have.text !== plainOld.text) return null;
  /** Place in `line` of a place in `old`; null inside a character that stands for several. */
  const place = (at: number): number | null => {
    const index = plainOld.starts.indexOf(at);
    const start = have.starts[index];
    return start === undefined || (index > 0 && have.starts[index - 1] === start) ? null : start;
  };
  const changes = diffChars(old, now, { timeout: 500 });
  if (!changes) return null;
  let result = "";
  let at = 0;
  for (const { added, removed, value } of changes) {
    if (added) {
      if (place(at) === null) return null;
      result += value;
      continue;
    }
    const start = place(at);
    const end = place(at + value.length);
    if (start === null || end === null) return null;
    if (!removed) result += line.slice(start, end);
    at += value.length;
  }
  return result;
}

/** Matches of whole lines. */
function linePlaces(
  text: string,
  old: string,
  now: string,
  rung: "trailing-whitespace" | "indentation",
): readonly Place[] {
  const lines = splitLines(text);
  const bothEnd = old.endsWith("\n") && (now.endsWith("\n") || now === "");
  const wanted = splitLines(old).map((line) => line.text);
  const wantedNow = splitLines(now).map((line) => line.text);
  if (!bothEnd && (old.endsWith("\n") || now.endsWith("\n"))) {
    if (old.endsWith("\n")) wanted.push("");
    if (now.endsWith("\n")) wantedNow.push("");
  }
  // An empty replacement of text without a final newline leaves an empty line, as it does at an exact match.
  if (now === "" && !bothEnd) wantedNow.push("");
  const edits = lineEdits(wanted, wantedNow);
  const offsets = lineOffsets(lines);
  return findLines(lines, wanted, LINE_KEYS[rung]).map((index) => ({
    start: offsets[index] ?? 0,
    end: offsets[index + wanted.length] ?? text.length,
    apply: () => {
      const fitted = rung === "indentation" ? fitIndentation(lines, index, edits) : edits;
      return fitted && lineReplacement(lines, index, wanted.length, fitted, rung);
    },
  }));
}

function lineReplacement(
  lines: readonly Line[],
  index: number,
  count: number,
  edits: readonly LineEdit[],
  rung: Rung,
): string {
  const kept = rung === "trailing-whitespace" ? keepTrailing(lines, index, edits) : edits;
  const edited = editLines(lines, index, kept);
  const after = lines.length - index - count;
  const changed = edited.slice(index, edited.length - after);
  // Removing the last lines of a file without a final newline takes the newline before them away too; that one
  // lies outside the place, so it is the caller's to keep.
  if (changed.length > 0 && after === 0 && changed.at(-1)?.ending === "" && lines.at(-1)?.ending !== "") {
    return joinLines(changed) + endingAt(lines, lines.length - 1);
  }
  return joinLines(changed);
}

/** A changed line keeps the blanks at its end, which the old text did not name. */
function keepTrailing(
  lines: readonly Line[],
  start: number,
  edits: readonly LineEdit[],
): readonly LineEdit[] {
  let at = start;
  return edits.map((edit, index): LineEdit => {
    if (edit.kind !== "add") {
      at += 1;
      return edit;
    }
    const before = edits[index - 1];
    if (
      before?.kind !== "remove" ||
      edit.text !== trimEnd(edit.text) ||
      before.text !== trimEnd(before.text)
    ) {
      return edit;
    }
    const line = lines[at - 1]?.text ?? "";
    return { kind: "add", text: edit.text + line.slice(trimEnd(line).length) };
  });
}

function lineOffsets(lines: readonly Line[]): readonly number[] {
  const offsets: number[] = [];
  let at = 0;
  for (const { text, ending } of lines) {
    offsets.push(at);
    at += text.length + ending.length;
  }
  return offsets;
}

function ambiguous(lines: readonly number[]): MoorageError {
  const shown = lines.slice(0, 20).map((line) => `L${line}`);
  const more = lines.length > shown.length ? ` and ${lines.length - shown.length} more` : "";
  return reason("PATCH_AMBIGUOUS", `old_string matches ${lines.length} places: ${shown.join(", ")}${more}`);
}

function unsafe(rung: Rung, line: number): MoorageError {
  const what = rung === "indentation" ? "indentation" : "characters";
  return reason(
    "PATCH_MISMATCH",
    `old_string is at L${line} only when ${what} are ignored, and the change cannot be carried over safely`,
  );
}

function mismatch(text: string, old: string, now: string): MoorageError {
  const plain = mapText(now, false).text;
  if (now.trim().length >= 8 && mapText(text, false).text.includes(plain)) {
    return reason(
      "PATCH_MISMATCH",
      "old_string is not in the file but new_string is; the change seems to be made already",
      "Read the file; go on if the change is there.",
    );
  }
  const near = nearLines(text, old);
  return reason("PATCH_MISMATCH", `old_string is not in the file${near}`);
}

/** Points at the lines that hold the first line of the old text. */
function nearLines(text: string, old: string): string {
  const first =
    old
      .split("\n")
      .find((line) => line.trim() !== "")
      ?.trim() ?? "";
  const lines = splitLines(text).flatMap((line, index) =>
    line.text.trim() === first ? [`L${index + 1}`] : [],
  );
  return lines.length === 0
    ? ""
    : `; its first line is at ${lines.slice(0, 5).join(", ")}, what follows differs`;
}

function reason(code: ErrorCode, message: string, suggestion?: string): MoorageError {
  return new MoorageError(code, message, suggestion === undefined ? {} : { suggestion });
}
