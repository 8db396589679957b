/** Finds lines in a log that is read by bytes, without holding more of it than a result can show. */
import type { LogSlice } from "../environments/base.ts";
import { MoorageError } from "../src/errors.ts";
import { limits } from "../src/limits.ts";

const CHUNK_BYTES = 1024 * 1024;
/** A longer log is not counted through: lines from its end have no number then. */
const COUNTED_BYTES = 32 * CHUNK_BYTES;
/** Characters held of one line, and of all; a result shows less. */
const HELD_CHARS = 2 * limits.resultMaxBytes;

export interface LogLines {
  readonly text: string;
  /** 1-based; null when the log is too long to count. */
  readonly firstLine: number | null;
  /** Null when the log is too long to count, or was not read to its end. */
  readonly totalLines: number | null;
  readonly totalBytes: number;
  /** Offset to continue from, negative where the lines have no number; null at the end. */
  readonly nextOffset: number | null;
  /** Whether something of the asked lines was left out. */
  readonly truncated: boolean;
}

export interface LogLinesRequest {
  /** 1-based first line; negative counts from the last, 0 is taken for 1. */
  readonly offset: number;
  readonly limit: number;
  readonly abortSignal: AbortSignal;
}

/** Reads a part of a log, negative offsets from its end, as `EnvironmentProcess.log` does. */
export type ReadLog = (offset: number, maxBytes: number) => Promise<LogSlice>;

/** @throws {MoorageError} ABORTED, and what `read` throws */
export async function readLogLines(read: ReadLog, request: LogLinesRequest): Promise<LogLines> {
  const isFromEnd = request.offset < 0;
  const { totalBytes } = await read(-1, 1);
  const isCounted = totalBytes <= COUNTED_BYTES;
  const start = isFromEnd && !isCounted ? totalBytes - COUNTED_BYTES : 0;
  const window = isFromEnd
    ? lastLines(-request.offset)
    : linesFrom(Math.max(1, request.offset), request.limit);
  const seen = await feed(read, { start, endBytes: totalBytes, isCounted, window, request });
  const shown = isFromEnd ? window.held.slice(0, request.limit) : window.held;
  const first = isFromEnd ? seen.lines - window.held.length + 1 : Math.max(1, request.offset);
  const rest = isFromEnd ? window.held.length - shown.length : seen.lines - first + 1 - shown.length;
  const firstLine = start === 0 ? first : null;
  return {
    text: shown.join(""),
    firstLine,
    totalLines: start === 0 && seen.isEnd ? seen.lines : null,
    totalBytes,
    nextOffset: rest <= 0 && seen.isEnd ? null : firstLine === null ? -rest : first + shown.length,
    truncated: window.truncated,
  };
}

interface Window {
  held: string[];
  truncated: boolean;
  /** @returns whether nothing more is wanted */
  take(line: string, number: number): boolean;
}

function linesFrom(first: number, limit: number): Window {
  let chars = 0;
  const window: Window = {
    held: [],
    truncated: false,
    take(line, number) {
      if (number < first) return false;
      if (window.held.length > 0 && chars + line.length > HELD_CHARS) window.truncated = true;
      if (window.truncated || window.held.length === limit) return true;
      window.held.push(line);
      chars += line.length;
      return false;
    },
  };
  return window;
}

function lastLines(count: number): Window {
  let chars = 0;
  const window: Window = {
    held: [],
    truncated: false,
    take(line) {
      window.held.push(line);
      chars += line.length;
      while (window.held.length > count || (window.held.length > 1 && chars > HELD_CHARS)) {
        if (window.held.length <= count) window.truncated = true;
        chars -= window.held.shift()?.length ?? 0;
      }
      return false;
    },
  };
  return window;
}

/**
 * Gives a window the log's lines up to `endBytes`, or until nothing more is wanted of a log that is too long to count.
 * What is written meanwhile is left out: a log may grow faster than it can be read.
 */
async function feed(
  read: ReadLog,
  source: {
    readonly start: number;
    readonly endBytes: number;
    readonly isCounted: boolean;
    readonly window: Window;
    readonly request: LogLinesRequest;
  },
): Promise<{ readonly lines: number; readonly isEnd: boolean }> {
  const { endBytes, window, request } = source;
  let lines = 0;
  let open = "";
  const take = (line: string): boolean => {
    lines += 1;
    if (line.length <= HELD_CHARS) return window.take(line, lines);
    const isOver = window.take(`${line.slice(0, HELD_CHARS)}\n`, lines);
    window.truncated = true;
    return isOver;
  };
  for (let at = source.start; at < endBytes; ) {
    if (request.abortSignal.aborted) {
      throw new MoorageError("ABORTED", "Cannot read the log: the caller cancelled");
    }
    const slice = await read(at, Math.min(CHUNK_BYTES, endBytes - at));
    if (slice.nextOffset <= at) break;
    const parts = `${open}${slice.text}`.split("\n");
    open = parts.pop() ?? "";
    // The rest of an endless line is not held.
    if (open.length > HELD_CHARS + 1) open = open.slice(0, HELD_CHARS + 1);
    // The first line of a log that is entered midway is a part of one.
    if (at === source.start && source.start > 0) parts.shift();
    at = slice.nextOffset;
    let isOver = false;
    for (const part of parts) isOver = take(`${part}\n`) || isOver;
    if (isOver && !source.isCounted) return { lines, isEnd: false };
  }
  if (open !== "") take(open);
  return { lines, isEnd: true };
}
