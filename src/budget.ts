/**
 * How much of a result a model gets: the first and the last part, with a marker between them that counts what is
 * missing. Cuts fall at line ends, and inside a line only where no code point and no escape sequence is torn.
 */
import { limits } from "./limits.ts";
import type { ToolOutput } from "./registry.ts";

export interface TextBudget {
  /** UTF-8 bytes to keep, marker included. @default limits.resultMaxBytes */
  readonly maxBytes?: number;
  /** Lines to keep, marker included. @default limits.resultMaxLines */
  readonly maxLines?: number;
}

export interface FittedText {
  readonly text: string;
  readonly truncated: boolean;
  readonly totalBytes: number;
  readonly totalLines: number;
  readonly omittedBytes: number;
}

/** Errors come last, so the tail gets the larger part. */
const HEAD_SHARE = 0.4;
/** Longest marker: its words and four numbers of 16 digits with separators. */
const MARKER_MAX_BYTES = 192;
/** An escape sequence longer than this is taken for text. */
const ESCAPE_MAX_CHARS = 256;
/** Fitting a whole result is a search; each step comes nearer, and what is left then is cut hard. */
const MAX_ATTEMPTS = 24;
/** A CSI sequence, an OSC, DCS, APC, PM or SOS string with its end, or a two-character escape. */
const ESCAPE = /\u001b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)|[ -/]*[0-OQ-WYZ\\`-~])/y;

/**
 * Keeps the first and last part of `text` so that it fits the budget.
 *
 * Cuts at line ends; a line longer than its share is cut inside, never within a code point or an escape sequence.
 *
 * @throws {RangeError} when the budget cannot hold the marker
 */
export function fitText(text: string, budget: TextBudget = {}): FittedText {
  const maxBytes = budget.maxBytes ?? limits.resultMaxBytes;
  const maxLines = budget.maxLines ?? limits.resultMaxLines;
  if (maxBytes <= MARKER_MAX_BYTES || maxLines < 3) {
    throw new RangeError(`A budget of ${maxBytes} bytes and ${maxLines} lines cannot hold the marker`);
  }
  const totalBytes = Buffer.byteLength(text);
  const totalLines = countLines(text);
  if (totalBytes <= maxBytes && totalLines <= maxLines) {
    return { text, truncated: false, totalBytes, totalLines, omittedBytes: 0 };
  }
  const room = maxBytes - MARKER_MAX_BYTES;
  const lines = maxLines - 1;
  const headBytes = Math.floor(room * HEAD_SHARE);
  const headLines = Math.max(1, Math.floor(lines * HEAD_SHARE));
  const headEnd = cutHead(text, headBytes, headLines);
  const tailStart = Math.max(headEnd, cutTail(text, room - headBytes, lines - headLines));
  const omitted = text.slice(headEnd, tailStart);
  const omittedBytes = Buffer.byteLength(omitted);
  const head = text.slice(0, headEnd);
  const between = head === "" || head.endsWith("\n") ? "" : "\n";
  const marker =
    `[${grouped(omittedBytes)} of ${grouped(totalBytes)} bytes left out, ` +
    `${grouped(countLines(omitted))} of ${grouped(totalLines)} lines]\n`;
  return {
    text: head + between + marker + text.slice(tailStart),
    truncated: true,
    totalBytes,
    totalLines,
    omittedBytes,
  };
}

/**
 * Makes a result small enough for a model: its JSON text takes at most `maxBytes`, no string in it has more than
 * `maxLines` lines. The longest strings are cut first, then the longest lists; `left_out` then says what is missing.
 *
 * @returns the result itself when it fits
 */
export function fitOutput(output: ToolOutput, budget: TextBudget = {}): { output: ToolOutput; text: string } {
  const maxBytes = budget.maxBytes ?? limits.resultMaxBytes;
  const maxLines = budget.maxLines ?? limits.resultMaxLines;
  const text = JSON.stringify(output);
  const sizes: number[] = [];
  const long = collectStrings(output, maxLines, sizes);
  if (!long && Buffer.byteLength(text) <= maxBytes) return { output, text };

  let share = maxBytes;
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
    const fitted = mapStrings(output, { maxBytes: Math.max(share, MARKER_MAX_BYTES * 2), maxLines });
    const fittedText = JSON.stringify(fitted);
    const over = Buffer.byteLength(fittedText) - maxBytes;
    if (over <= 0) return { output: fitted, text: fittedText };
    if (share <= MARKER_MAX_BYTES * 2) break;
    share = Math.min(Math.floor(share * 0.97), nextShare(sizes, share, over, maxBytes));
  }
  return fitLists(mapStrings(output, { maxBytes: MARKER_MAX_BYTES * 2, maxLines }), maxBytes);
}

/** Cuts every list to the same growing share of its length until the whole fits. */
function fitLists(output: ToolOutput, maxBytes: number): { output: ToolOutput; text: string } {
  let keep = 1 << 20;
  for (;;) {
    const leftOut: string[] = [];
    const cut = mapLists(output, keep, "", leftOut);
    const noted = leftOut.length === 0 ? cut : { ...cut, left_out: leftOut.slice(0, 8) };
    const text = JSON.stringify(noted);
    if (Buffer.byteLength(text) <= maxBytes) return { output: noted, text };
    if (keep === 0) break;
    keep >>= 1;
  }
  const shell = { left_out: ["The result has too many parts to show"] };
  return { output: shell, text: JSON.stringify(shell) };
}

/** Index after the last character of a head within `maxBytes` and `maxLines`. */
function cutHead(text: string, maxBytes: number, maxLines: number): number {
  let bytes = 0;
  let lines = 0;
  let at = 0;
  let lineEnd = 0;
  while (at < text.length && lines < maxLines) {
    const next = at + unitLength(text, at);
    bytes += next - at > 2 ? Buffer.byteLength(text.slice(at, next)) : utf8Length(text, at);
    if (bytes > maxBytes) break;
    at = next;
    if (text[at - 1] === "\n") {
      lines += 1;
      lineEnd = at;
    }
  }
  // A cut inside a line is worth it only when the line fills a good part of the head.
  return lineEnd > 0 && at - lineEnd < at / 2 ? lineEnd : at;
}

/** Index of the first character of a tail within `maxBytes` and `maxLines`. */
function cutTail(text: string, maxBytes: number, maxLines: number): number {
  // A character takes at least one byte, so the tail begins in the last `maxBytes` characters.
  let at = Math.max(0, text.length - maxBytes);
  let lines = countLines(text.slice(at));
  if (lines > maxLines) {
    for (; lines > maxLines; lines -= 1) at = text.indexOf("\n", at) + 1;
  }
  const over = Buffer.byteLength(text.slice(at)) - maxBytes;
  if (over > 0) at = skipBytes(text, at, over);
  at = boundaryAtOrAfter(text, at);
  const lineStart = at === 0 || text[at - 1] === "\n" ? at : text.indexOf("\n", at) + 1;
  return lineStart > 0 && lineStart < text.length && lineStart - at < (text.length - at) / 2 ? lineStart : at;
}

/** First index at or after `at + n` bytes that begins a code point. */
function skipBytes(text: string, at: number, bytes: number): number {
  let index = isLowSurrogate(text, at) ? at + 1 : at;
  let skipped = 0;
  while (index < text.length && skipped < bytes) {
    skipped += utf8Length(text, index);
    index += codePointLength(text, index);
  }
  return index;
}

/** `at`, or the end of the code point or escape sequence that it falls into. */
function boundaryAtOrAfter(text: string, at: number): number {
  const start = isLowSurrogate(text, at) ? at + 1 : at;
  for (let from = text.lastIndexOf("\u001b", start - 1); from >= 0; from = text.lastIndexOf("\u001b", from - 1)) {
    if (start - from > ESCAPE_MAX_CHARS) break;
    const end = from + unitLength(text, from);
    if (end > start) return end;
    if (from === 0) break;
  }
  return start;
}

/** UTF-16 length of what must stay together at `at`: an escape sequence or a code point. */
function unitLength(text: string, at: number): number {
  if (text[at] !== "\u001b") return codePointLength(text, at);
  ESCAPE.lastIndex = at;
  const length = ESCAPE.exec(text)?.[0].length ?? 1;
  return length > ESCAPE_MAX_CHARS ? 1 : length;
}

function codePointLength(text: string, at: number): number {
  return (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
}

/** Bytes of the code point at `at`; a lone surrogate is written as U+FFFD. */
function utf8Length(text: string, at: number): number {
  const code = text.codePointAt(at) ?? 0;
  if (code < 0x80) return 1;
  if (code < 0x800) return 2;
  return code < 0x10000 ? 3 : 4;
}

function isLowSurrogate(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff;
}

/** Lines of a text; a missing final newline still ends one. */
function countLines(text: string): number {
  let lines = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines += 1;
  return text === "" || text.endsWith("\n") ? lines : lines + 1;
}

/** Notes the JSON size of every string. @returns whether one has more than `maxLines` lines */
function collectStrings(value: unknown, maxLines: number, sizes: number[]): boolean {
  if (typeof value === "string") {
    sizes.push(Buffer.byteLength(value));
    return value.length > maxLines && countLines(value) > maxLines;
  }
  let long = false;
  if (typeof value === "object" && value !== null) {
    for (const part of Object.values(value)) if (collectStrings(part, maxLines, sizes)) long = true;
  }
  return long;
}

/**
 * A lower level for the strings, so that `over` bytes go away. Taking them from the strings that are cut would do if
 * JSON wrote every byte as one; where it writes more, the ratio is the better guess.
 */
function nextShare(sizes: readonly number[], share: number, over: number, maxBytes: number): number {
  const cut = sizes.filter((size) => size >= share);
  return Math.floor(Math.max(share - over / Math.max(1, cut.length), share * (maxBytes / (maxBytes + over))));
}

function mapStrings(output: ToolOutput, budget: TextBudget): ToolOutput {
  const map = (value: unknown): unknown => {
    if (typeof value === "string") return fitText(value, budget).text;
    if (Array.isArray(value)) return value.map(map);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, map(part)]));
  };
  return Object.fromEntries(Object.entries(output).map(([key, part]) => [key, map(part)]));
}

function mapLists(output: ToolOutput, keep: number, path: string, leftOut: string[]): ToolOutput {
  const map = (value: unknown, at: string): unknown => {
    if (Array.isArray(value)) {
      if (value.length > keep) leftOut.push(`${at}: ${value.length - keep} of ${value.length} items`);
      return value.slice(0, keep).map((item, index) => map(item, `${at}[${index}]`));
    }
    if (typeof value !== "object" || value === null) return value;
    return mapLists(Object.fromEntries(Object.entries(value)), keep, at, leftOut);
  };
  return Object.fromEntries(
    Object.entries(output).map(([key, part]) => [key, map(part, path === "" ? key : `${path}.${key}`)]),
  );
}

function grouped(count: number): string {
  return count.toLocaleString("en-US");
}
