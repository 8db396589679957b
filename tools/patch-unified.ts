/** A unified diff, as git and diff write it, as the same operations that V4A text gives. */
import { parsePatch, type StructuredPatch, type StructuredPatchHunk } from "diff";
import { MoorageError } from "../src/errors.ts";
import type { LineEdit } from "./patch-lines.ts";
import type { PatchChunk, PatchOperation } from "./patch-v4a.ts";

export function isUnifiedDiff(text: string): boolean {
  return /^--- .*\r?\n\+\+\+ /m.test(text) || /^diff --git /m.test(text);
}

/** @throws {MoorageError} PATCH_INVALID */
export function parseUnifiedDiff(text: string): readonly PatchOperation[] {
  const plain = text.replaceAll("\r\n", "\n");
  let files: readonly StructuredPatch[];
  try {
    files = parsePatch(correctCounts(plain));
  } catch (error) {
    const words = error instanceof Error ? error.message : String(error);
    throw new MoorageError("PATCH_INVALID", `Cannot read the patch as a unified diff: ${words}`, {
      cause: error,
    });
  }
  const operations = files.map(toOperation);
  if (operations.length === 0)
    throw new MoorageError("PATCH_INVALID", "Cannot read the patch: it changes no file");
  return operations;
}

function toOperation(file: StructuredPatch): PatchOperation {
  const old = fileName(file.oldFileName, "a/");
  const now = fileName(file.newFileName, "b/");
  if (old === null && now === null)
    throw new MoorageError("PATCH_INVALID", "Cannot read the patch: a file has no name");
  const chunks = file.hunks.map(toChunk);
  if (old === null && now !== null) {
    const added = chunks.flatMap(({ edits }) => edits.map(({ text }) => text));
    const final = file.hunks.at(-1)?.lines.at(-1)?.startsWith("\\") ? "" : "\n";
    return { kind: "add", path: now, content: added.length === 0 ? "" : added.join("\n") + final };
  }
  const path = old ?? "";
  if (now === null) return { kind: "delete", path, chunks };
  if (chunks.length === 0 && now === path) {
    throw new MoorageError("PATCH_INVALID", `Cannot read the patch: ${JSON.stringify(path)} has no hunk`);
  }
  return { kind: "update", path, chunks, unique: true, ...(now !== path && { moveTo: now }) };
}

function fileName(name: string | undefined, prefix: string): string | null {
  const plain = name?.trim() ?? "";
  if (plain === "" || plain === "/dev/null") return null;
  return plain.startsWith(prefix) ? plain.slice(prefix.length) : plain;
}

function toChunk(hunk: StructuredPatchHunk): PatchChunk {
  const edits = hunk.lines
    .filter((line) => !line.startsWith("\\"))
    .map((line): LineEdit => ({ kind: kindOf(line), text: line.slice(1) }));
  return { contexts: [], edits, endOfFile: false, statedLine: hunk.oldStart };
}

function kindOf(line: string): LineEdit["kind"] {
  if (line.startsWith("+")) return "add";
  return line.startsWith("-") ? "remove" : "keep";
}

/** Rewrites the line counts of hunk headers to what follows, since models miscount. */
function correctCounts(text: string): string {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  const result: string[] = [];
  let header = -1;
  let start: readonly [string, string] = ["", ""];
  let counts = [0, 0];
  const close = (): void => {
    if (header >= 0) result[header] = `@@ -${start[0]},${counts[0]} +${start[1]},${counts[1]} @@`;
    header = -1;
  };
  lines.forEach((line, index) => {
    const match = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
    const nextFile =
      /^(diff --git |Index: )/.test(line) || (/^--- /.test(line) && /^\+\+\+ /.test(lines[index + 1] ?? ""));
    if (match || nextFile) close();
    if (match) {
      header = result.length;
      start = [match[1] ?? "1", match[2] ?? "1"];
      counts = [0, 0];
    }
    const inHunk = header >= 0 && !match;
    if (inHunk && !line.startsWith("\\")) {
      if (!line.startsWith("+")) counts[0] = (counts[0] ?? 0) + 1;
      if (!line.startsWith("-")) counts[1] = (counts[1] ?? 0) + 1;
    }
    result.push(inHunk && line === "" ? " " : line);
  });
  close();
  return `${result.join("\n")}\n`;
}
