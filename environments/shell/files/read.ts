/** Reading: whole files, ranges of bytes, ranges of lines. One round trip, and flat memory for files of any size. */
import { createHash } from "node:crypto";
import { isMoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import type { FileContent, FileLines, LinesOptions, ReadOptions } from "../../base.ts";
import { checkWhole } from "../checks.ts";
import type { SystemRunOptions } from "../stream.ts";
import { fileError } from "./path.ts";
import { type FileContext, runFile, takeField } from "./run.ts";
import { needStatus } from "./stat.ts";

/** A file up to this size is fetched whole for a range of lines, because that costs fewer programs, bytes. */
const FETCH_WHOLE_BYTES = 256 * 1024;
/** Output of a run beside the file's own bytes: path, status line, whole blocks around a range. */
const SURROUNDINGS_BYTES = 256 * 1024;

export function contentHash(bytes: Uint8Array): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

interface WholeFile {
  readonly realPath: string;
  readonly bytes: Buffer;
  /** The status line; may be empty when it was not asked for. */
  readonly line: string;
}

/** @throws {MoorageError} FILE_TOO_LARGE beyond `maxBytes` */
async function readWhole(
  context: FileContext,
  path: string,
  maxBytes: number,
  wantsStatus: boolean,
  options: ReadOptions,
): Promise<WholeFile> {
  const output = await runFile(context, {
    verb: "read",
    path,
    cwd: options.cwd,
    command: "__moor_read",
    args: [maxBytes, wantsStatus ? "status" : "-"],
    options: runOptions(maxBytes, options.abortSignal),
  });
  const [realPath, rest] = takeField(output);
  const trailing = rest[0] === "T".charCodeAt(0);
  const split = trailing ? rest.lastIndexOf("|") : rest.indexOf(10);
  const bytes = trailing ? rest.subarray(1, split) : rest.subarray(split + 1);
  const line = trailing ? rest.subarray(split + 1) : rest.subarray(1, split);
  if (bytes.length > maxBytes) {
    throw fileError("FILE_TOO_LARGE", "read", path, `the file has more than ${maxBytes} bytes`);
  }
  return { realPath, bytes, line: line.toString("latin1") };
}

export async function readBytes(
  context: FileContext,
  path: string,
  options: ReadOptions = {},
): Promise<FileContent> {
  const { offset = 0, maxBytes } = options;
  checkInteger("offset", offset);
  if (maxBytes !== undefined) checkCount("maxBytes", maxBytes);
  if (offset === 0 && maxBytes === undefined) {
    const { realPath, bytes, line } = await readWhole(context, path, limits.fileWholeMaxBytes, true, options);
    const { mode } = needStatus(line);
    return { realPath, bytes, size: bytes.length, offset: 0, hash: contentHash(bytes), mode };
  }
  return readRange(context, path, offset, maxBytes, options);
}

async function readRange(
  context: FileContext,
  path: string,
  askedOffset: number,
  maxBytes: number | undefined,
  options: ReadOptions,
): Promise<FileContent> {
  // One byte more than may come tells a range that is too long from one that just fits.
  const max = maxBytes ?? limits.fileWholeMaxBytes + 1;
  const output = await runFile(context, {
    verb: "read",
    path,
    cwd: options.cwd,
    command: "__moor_range",
    args: [askedOffset, max],
    options: runOptions(max, options.abortSignal),
  });
  const [realPath, rest] = takeField(output);
  const end = rest.indexOf(10);
  const line = rest.toString("latin1", 0, end);
  const status = needStatus(line);
  const [offset = 0, start = 0] = line.split(" ").slice(7).map(Number);
  const bytes = rest.subarray(end + 1 + offset - start, end + 1 + offset - start + max);
  if (maxBytes === undefined && bytes.length > limits.fileWholeMaxBytes) {
    const reason = `the range has more than ${limits.fileWholeMaxBytes} bytes`;
    throw fileError("FILE_TOO_LARGE", "read", path, reason);
  }
  const size = Math.max(status.size, offset + bytes.length);
  const whole = offset === 0 && bytes.length === size;
  return { realPath, bytes, size, offset, hash: whole ? contentHash(bytes) : null, mode: status.mode };
}

export async function readLineRange(
  context: FileContext,
  path: string,
  options: LinesOptions = {},
): Promise<FileLines> {
  const { offset = 1, limit = limits.readFileDefaultLines, maxBytes = limits.resultMaxBytes } = options;
  checkInteger("offset", offset);
  checkCount("limit", limit);
  checkCount("maxBytes", maxBytes);
  try {
    const whole = await readWhole(context, path, FETCH_WHOLE_BYTES, false, options);
    return sliceWhole(whole, offset, limit, maxBytes);
  } catch (error) {
    if (!isMoorageError(error, "FILE_TOO_LARGE")) throw error;
  }
  const output = await runFile(context, {
    verb: "read",
    path,
    cwd: options.cwd,
    command: "__moor_lines",
    args: [offset, limit, maxBytes, limits.fileHashMaxBytes],
    options: runOptions(maxBytes, options.abortSignal),
  });
  const [realPath, rest] = takeField(output);
  const end = rest.indexOf(10);
  const line = rest.toString("latin1", 0, end);
  const [total = "0", first = "1", hash = "-"] = line.split(" ").slice(7);
  const cut = cutLines(rest.subarray(end + 1), maxBytes);
  return {
    realPath,
    ...cut,
    firstLine: Number(first),
    totalLines: Number(total),
    size: needStatus(line).size,
    hash: hash === "-" ? null : `sha256:${hash}`,
  };
}

function sliceWhole(whole: WholeFile, offset: number, limit: number, maxBytes: number): FileLines {
  const { bytes, realPath } = whole;
  const starts = lineStarts(bytes);
  const totalLines = starts.length;
  const firstLine = Math.max(1, offset < 0 ? totalLines + offset + 1 : offset);
  const start = starts[firstLine - 1] ?? bytes.length;
  const end = starts[firstLine - 1 + limit] ?? bytes.length;
  const cut = cutLines(bytes.subarray(start, end), maxBytes);
  return { realPath, ...cut, firstLine, totalLines, size: bytes.length, hash: contentHash(bytes) };
}

function cutLines(bytes: Buffer, maxBytes: number): { readonly bytes: Buffer; readonly truncated: boolean } {
  if (bytes.length <= maxBytes) return { bytes, truncated: false };
  const lineEnd = bytes.subarray(0, maxBytes).lastIndexOf(10);
  return { bytes: bytes.subarray(0, lineEnd < 0 ? maxBytes : lineEnd + 1), truncated: true };
}

function lineStarts(bytes: Buffer): readonly number[] {
  const starts: number[] = [];
  for (let at = 0; at < bytes.length; ) {
    starts.push(at);
    const end = bytes.indexOf(10, at);
    if (end < 0) break;
    at = end + 1;
  }
  return starts;
}

function runOptions(maxBytes: number, abortSignal: AbortSignal | undefined): SystemRunOptions {
  return { repeatable: true, maxBytes: maxBytes + SURROUNDINGS_BYTES, ...(abortSignal && { abortSignal }) };
}

function checkInteger(name: string, value: number): void {
  checkWhole(name, value, Number.NEGATIVE_INFINITY);
}

function checkCount(name: string, value: number): void {
  checkWhole(name, value, 0);
}
