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
  /** `json` counts what the text takes inside a JSON string, escapes and all. @default "plain" */
  readonly measure?: "plain" | "json";
  /** Bytes of a longer text, of which `text` has only the head and the tail. @default the bytes of `text` */
  readonly totalBytes?: number;
}

export interface FittedText {
  readonly text: string;
  readonly truncated: boolean;
  readonly totalBytes: number;
  readonly omittedBytes: number;
}

/** As a capture divides: errors come last, so the tail gets the larger part. */
const HEAD_SHARE = limits.captureHeadBytes / (limits.captureHeadBytes + limits.captureTailBytes);
/** Longest marker: its words and four numbers of 16 digits with separators. */
const MARKER_MAX_BYTES = 192;
/** A string is never cut below this: a head, a marker and a tail. */
const CUT_MIN_BYTES = 2 * MARKER_MAX_BYTES;
/** An escape sequence longer than this is taken for text. */
const ESCAPE_MAX_CHARS = 256;
/** A CSI sequence; an OSC, DCS, APC, PM or SOS string with its end; or a two-character escape. */
const ESCAPE =
  /\u001b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)|[ -/]*[0-OQ-WYZ\\`-~])/y;

/** Bytes of a piece of text, by one of two measures. */
type Measure = (text: string) => number;

/**
 * Keeps the first and last part of `text` so that it fits the budget.
 *
 * Cuts at line ends; a line longer than its share is cut inside, never within a code point or an escape sequence.
 *
 * @throws {RangeError} when the budget cannot hold the marker
 */
export function fitText(text: string, budget: TextBudget = {}): FittedText {
  const { maxBytes = limits.resultMaxBytes, maxLines = limits.resultMaxLines } = budget;
  if (maxBytes < CUT_MIN_BYTES || maxLines < 3) {
    throw new RangeError(`A budget of ${maxBytes} bytes and ${maxLines} lines cannot hold the marker`);
  }
  const measure = budget.measure === "json" ? jsonBytes : Buffer.byteLength;
  const ownBytes = Buffer.byteLength(text);
  const totalBytes = budget.totalBytes ?? ownBytes;
  const totalLines = countLines(text);
  if (totalLines <= maxLines && measure(text) <= maxBytes) {
    return { text, truncated: false, totalBytes, omittedBytes: totalBytes - ownBytes };
  }
  const room = maxBytes - MARKER_MAX_BYTES;
  const lines = maxLines - 1;
  const headBytes = Math.floor(room * HEAD_SHARE);
  const headLines = Math.max(1, Math.floor(lines * HEAD_SHARE));
  const headEnd = cutHead(text, headBytes, headLines, measure);
  const tailStart = Math.max(headEnd, cutTail(text, room - headBytes, lines - headLines, measure));
  const head = text.slice(0, headEnd);
  const tail = text.slice(tailStart);
  const omittedBytes = totalBytes - Buffer.byteLength(head) - Buffer.byteLength(tail);
  const omittedLines = countLines(text.slice(headEnd, tailStart));
  // Lines of a text that is not all here cannot be counted.
  const inLines = totalBytes === ownBytes ? `, ${grouped(omittedLines)} of ${grouped(totalLines)} lines` : "";
  const marker = `[${grouped(omittedBytes)} of ${grouped(totalBytes)} bytes left out${inLines}]\n`;
  const between = head === "" || head.endsWith("\n") ? "" : "\n";
  return { text: head + between + marker + tail, truncated: true, totalBytes, omittedBytes };
}

/**
 * Makes a result small enough for a model: its JSON text takes at most `maxBytes`, no string in it has more than
 * `maxLines` lines. The longest strings are cut first, then the longest lists; `left_out` then says what is missing.
 *
 * @returns the result itself when it fits
 * @throws {TypeError} when the result cannot be written as JSON
 */
export function fitOutput(output: ToolOutput, budget: TextBudget = {}): { output: ToolOutput; text: string } {
  const { maxBytes = limits.resultMaxBytes, maxLines = limits.resultMaxLines } = budget;
  const text = JSON.stringify(output);
  const bytes = Buffer.byteLength(text);
  const strings: string[] = [];
  collectStrings(output, strings);
  const isLong = strings.some((string) => string.length > maxLines && countLines(string) > maxLines);
  if (bytes <= maxBytes && !isLong) return { output, text };

  const sizes = strings.map(jsonBytes);
  const others = bytes - sizes.reduce((sum, size) => sum + size, 0);
  const level = Math.max(CUT_MIN_BYTES, levelFor(sizes, maxBytes - others));
  const fitted = mapStrings(
    output,
    (string) => fitText(string, { maxBytes: level, maxLines, measure: "json" }).text,
  );
  const fittedText = JSON.stringify(fitted);
  if (Buffer.byteLength(fittedText) <= maxBytes) return { output: fitted, text: fittedText };
  return fitLists(fitted, maxBytes);
}

/** Highest level to which strings may be cut so that together they take `room`. */
function levelFor(sizes: readonly number[], room: number): number {
  const ascending = sizes.toSorted((a, b) => a - b);
  let left = room;
  for (const [index, size] of ascending.entries()) {
    const share = Math.floor(left / (ascending.length - index));
    if (size > share) return share;
    left -= size;
  }
  return room;
}

/** Cuts every list to the same length, halved until the whole fits. */
function fitLists(output: ToolOutput, maxBytes: number): { output: ToolOutput; text: string } {
  for (let keep = longestList(output); keep > 0; keep >>= 1) {
    const leftOut: string[] = [];
    const cut = mapLists(output, keep, "", leftOut);
    const noted = leftOut.length === 0 ? cut : { ...cut, left_out: leftOut.slice(0, 8) };
    const text = JSON.stringify(noted);
    if (Buffer.byteLength(text) <= maxBytes) return { output: noted, text };
  }
  const shell = { left_out: ["everything: the result has too many parts to show"] };
  return { output: shell, text: JSON.stringify(shell) };
}

/** Index after the last character of a head within `maxBytes` and `maxLines`. */
function cutHead(text: string, maxBytes: number, maxLines: number, measure: Measure): number {
  let bytes = 0;
  let lines = 0;
  let at = 0;
  let lineEnd = 0;
  while (at < text.length && lines < maxLines) {
    const next = at + unitLength(text, at);
    bytes += measure(text.slice(at, next));
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
function cutTail(text: string, maxBytes: number, maxLines: number, measure: Measure): number {
  // A character takes at least one byte, so the tail begins in the last `maxBytes` characters.
  let at = Math.max(0, text.length - maxBytes);
  for (let lines = countLines(text.slice(at)); lines > maxLines; lines -= 1) at = text.indexOf("\n", at) + 1;
  if (isLowSurrogate(text, at)) at += 1;
  for (let over = measure(text.slice(at)) - maxBytes; over > 0; ) {
    const length = codePointLength(text, at);
    over -= measure(text.slice(at, at + length));
    at += length;
  }
  at = boundaryAtOrAfter(text, at);
  if (at === 0 || text[at - 1] === "\n") return at;
  const lineStart = text.indexOf("\n", at) + 1;
  return lineStart > 0 && lineStart < text.length && lineStart - at < (text.length - at) / 2 ? lineStart : at;
}

/** `at`, or the end of the escape sequence that it falls into. */
function boundaryAtOrAfter(text: string, at: number): number {
  const earliest = Math.max(0, at - ESCAPE_MAX_CHARS);
  for (let from = at - 1; from >= earliest; from -= 1) {
    if (text[from] === "\u001b" && from + unitLength(text, from) > at) return from + unitLength(text, from);
  }
  return at;
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

function isLowSurrogate(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff;
}

/** Bytes that the text takes inside a JSON string, without the quotes. */
function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text)) - 2;
}

/** Lines of a text; a missing final newline still ends one. */
function countLines(text: string): number {
  let lines = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines += 1;
  return text === "" || text.endsWith("\n") ? lines : lines + 1;
}

function collectStrings(value: unknown, strings: string[]): void {
  if (typeof value === "string") strings.push(value);
  else if (typeof value === "object" && value !== null) {
    for (const part of Object.values(value)) collectStrings(part, strings);
  }
}

function longestList(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  const own = Array.isArray(value) ? value.length : 0;
  return Object.values(value).reduce<number>((longest, part) => Math.max(longest, longestList(part)), own);
}

function mapStrings(output: ToolOutput, change: (text: string) => string): ToolOutput {
  const map = (value: unknown): unknown => {
    if (typeof value === "string") return change(value);
    if (Array.isArray(value)) return value.map(map);
    return typeof value === "object" && value !== null
      ? mapStrings(Object.fromEntries(Object.entries(value)), change)
      : value;
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
