/** The `read_file` tool: numbered lines of a text file. */
import { z } from "zod";
import type { FileLines } from "../environments/base.ts";
import { isMoorageError, MoorageError } from "../src/errors.ts";
import { limits } from "../src/limits.ts";
import { registerTool, type ToolContext, type ToolOutput } from "../src/registry.ts";
import { numberLines } from "./number-lines.ts";
import { decodeFile, type Encoding, sniffEncoding } from "./text-encoding.ts";

const parameters = z.object({
  path: z.string().min(1).describe("File; absolute, or relative to the working directory"),
  offset: z.int().default(1).describe("First line, from 1; negative counts from the end"),
  limit: z
    .int()
    .min(1)
    .max(limits.readFileDefaultLines)
    .default(limits.readFileDefaultLines)
    .describe("Number of lines"),
});
type Arguments = z.output<typeof parameters>;

/** Bytes of text that are fetched; what a line number and JSON add must still fit the result. */
const TEXT_MAX_BYTES = Math.floor(limits.resultMaxBytes * 0.8);

export const tool = registerTool({
  name: "read_file",
  toolset: "files",
  title: "Read a file",
  description: [
    "Shows lines of a text file as `N|line`, with the number of lines and a hash for write_file's expected_hash.",
    `At most ${limits.readFileDefaultLines} lines and ${Math.floor(TEXT_MAX_BYTES / 1000)} kB at a time, from offset on; files of any size can be read so.`,
    `A line is cut after ${limits.lineMaxChars} characters. The numbers are not part of the file.`,
    "UTF-16 is decoded. Binary files, folders, pipes and devices are refused; list and search with search_files.",
  ].join(" "),
  parameters,
  output: z.object({
    content: z.string(),
    total_lines: z.number(),
    hash: z.string().nullable(),
    truncated: z.boolean(),
    next_offset: z.number().optional(),
    encoding: z.string().optional(),
    note: z.string().optional(),
  }),
  handler: readFile,
  permissions: ["file:read"],
  access: "read",
  mutates: false,
  idempotent: true,
  parallel: "paths",
  paths: ({ path }) => ({ reads: [path], writes: [] }),
});

async function readFile(args: Arguments, context: ToolContext): Promise<ToolOutput> {
  const { path, limit } = args;
  const offset = args.offset === 0 ? 1 : args.offset;
  const { files } = context.environment;
  const where = { cwd: context.cwd(), abortSignal: context.abortSignal };
  const lines = await files
    .readLines(path, { ...where, offset, limit, maxBytes: TEXT_MAX_BYTES })
    .catch((error: unknown) => {
      throw explained(error, path);
    });
  const wide = await wideEncoding(path, lines, context);
  if (wide) {
    const whole = await files.readFile(path, where);
    return readWide(path, whole.bytes, offset, limit, whole.hash);
  }
  const encoding = sniffEncoding(completeText(lines.bytes));
  if (encoding === null) {
    throw new MoorageError(
      "FILE_BINARY",
      `Cannot read ${JSON.stringify(path)}: the file is binary (${lines.size} bytes)`,
    );
  }
  const text = fromBytes(lines, encoding);
  return present(path, {
    text,
    firstLine: lines.firstLine,
    totalLines: lines.totalLines,
    limit,
    hash: lines.hash,
    bytesCut: lines.truncated,
    size: lines.size,
    encoding: encoding === "bytes" ? "unknown" : encoding,
  });
}

/** An output that was kept whole, or a background process: what results name by an id is no file. */
const ID = /^(?:out|proc)_[0-9a-f]+$/;

function explained(error: unknown, path: string): unknown {
  if (!isMoorageError(error, "FILE_MISSING") || !ID.test(path)) return error;
  return new MoorageError(error.code, error.message, {
    cause: error,
    suggestion: `It is an id and no file: call process with action "log" and session_id "${path}".`,
  });
}

/** UTF-16 by its mark, which only the file's first bytes have. */
async function wideEncoding(path: string, lines: FileLines, context: ToolContext): Promise<boolean> {
  let start = lines.bytes;
  if (lines.firstLine > 1) {
    if (!start.includes(0)) return false;
    const where = { cwd: context.cwd(), abortSignal: context.abortSignal };
    start = (await context.environment.files.readFile(path, { ...where, offset: 0, maxBytes: 4 })).bytes;
  }
  const encoding = sniffEncoding(start);
  return encoding === "utf-16le" || encoding === "utf-16be";
}

function readWide(
  path: string,
  bytes: Buffer,
  offset: number,
  limit: number,
  hash: string | null,
): ToolOutput {
  const file = decodeFile(bytes);
  if (!file) throw new MoorageError("FILE_BINARY", `Cannot read ${JSON.stringify(path)}: the file is binary`);
  const all = file.text.split("\n");
  if (all.at(-1) === "") all.pop();
  const firstLine = Math.max(1, offset < 0 ? all.length + offset + 1 : offset);
  const text = all.slice(firstLine - 1, firstLine - 1 + limit).join("\n");
  return present(path, {
    text,
    firstLine,
    totalLines: all.length,
    limit,
    hash,
    bytesCut: false,
    size: bytes.length,
    encoding: file.encoding,
  });
}

interface Shown {
  readonly text: string;
  readonly firstLine: number;
  readonly totalLines: number;
  readonly limit: number;
  readonly hash: string | null;
  /** Whether fewer bytes were fetched than the range has. */
  readonly bytesCut: boolean;
  readonly size: number;
  readonly encoding: string;
}

function present(path: string, shown: Shown): ToolOutput {
  const { firstLine, totalLines, hash, encoding } = shown;
  const notes: string[] = [];
  const numbered = numberLines(shown.text, firstLine, {
    maxBytes: TEXT_MAX_BYTES,
    lastIsCut: shown.bytesCut,
  });
  const shownTo = firstLine + numbered.count - 1;
  const truncated = shownTo < totalLines || numbered.cutLines.length > 0;
  if (shown.size === 0) {
    return { content: "(empty)", total_lines: 0, hash, truncated: false };
  }
  if (firstLine > totalLines) {
    notes.push(`The file has ${totalLines} lines; there is none at ${firstLine}`);
  } else if (shownTo < totalLines) {
    notes.push(`Lines ${firstLine} to ${shownTo} of ${totalLines}; go on with offset ${shownTo + 1}`);
  }
  if (numbered.cutLines.length > 0) notes.push(cutNote(path, numbered.cutLines));
  if (encoding !== "utf-8") {
    notes.push(
      encoding === "unknown"
        ? "The file is not valid UTF-8; its odd bytes are shown as U+FFFD, and patch leaves them as they are"
        : `Decoded from ${encoding.toUpperCase()}; patch keeps that encoding, write_file does not`,
    );
  }
  return {
    content: numbered.text,
    total_lines: totalLines,
    hash,
    truncated,
    ...(shownTo < totalLines && firstLine <= totalLines && { next_offset: shownTo + 1 }),
    ...(encoding !== "utf-8" && { encoding }),
    ...(notes.length > 0 && { note: notes.join(". ") }),
  };
}

function cutNote(path: string, cutLines: readonly number[]): string {
  const which =
    cutLines.length === 1 ? `Line ${cutLines[0]} is` : `Lines ${cutLines.slice(0, 10).join(", ")} are`;
  const from = limits.lineMaxChars + 1;
  const name = `'${path.replaceAll("'", "'\\''")}'`;
  return `${which} cut after ${limits.lineMaxChars} characters; see more with the terminal: sed -n '${cutLines[0]}p' ${name} | cut -c ${from}-${from + limits.lineMaxChars - 1}`;
}

function fromBytes(lines: FileLines, encoding: Encoding): string {
  const bytes = completeText(lines.bytes);
  const text = encoding === "bytes" ? bytes.toString() : bytes.toString("utf8");
  return lines.firstLine === 1 ? text.replace(/^\ufeff/, "") : text;
}

/** Without a UTF-8 character that the fetched range cuts in two. */
function completeText(bytes: Buffer): Buffer {
  let start = bytes.length;
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte < 0x80) break;
    if (byte < 0xc0) continue;
    const wanted = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    if (wanted > back) start = bytes.length - back;
    break;
  }
  return bytes.subarray(0, start);
}
