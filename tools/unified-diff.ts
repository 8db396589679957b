/** The difference between two contents, bounded, for a model to check its change by. */
import { createTwoFilesPatch } from "diff";
import { decodeFile, displayText } from "./text-encoding.ts";

/** Contents larger than this are not compared, bytes. */
export const DIFF_INPUT_MAX_BYTES = 512 * 1024;
const DIFF_MAX_CHARS = 12_000;
const DIFF_MAX_LINES = 300;
/** After this the smallest difference is no longer looked for, milliseconds; nothing else runs meanwhile. */
const DIFF_TIMEOUT_MS = 150;

/**
 * @param before null when there was no file
 * @param after null when there is none any more
 * @returns null when a side is binary or too large
 */
export function unifiedDiff(path: string, before: Buffer | null, after: Buffer | null): string | null {
  const sides = [before, after];
  if (sides.some((side) => side && (side.length > DIFF_INPUT_MAX_BYTES || !decodeFile(side)))) return null;
  const [old, now] = sides.map((side) => (side ? displayText(side) : ""));
  const oldName = before ? `a/${strip(path)}` : "/dev/null";
  const newName = after ? `b/${strip(path)}` : "/dev/null";
  const options = { context: 3, timeout: DIFF_TIMEOUT_MS };
  const patch =
    createTwoFilesPatch(oldName, newName, old ?? "", now ?? "", undefined, undefined, options) ??
    `--- ${quote(oldName)}\n+++ ${quote(newName)}\n${coarseHunk(old ?? "", now ?? "")}`;
  return boundDiff(patch.replace(/^=+\n/, ""));
}

/** One hunk from the first to the last line that differs. */
function coarseHunk(before: string, after: string): string {
  const old = before.split("\n");
  const now = after.split("\n");
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  const most = Math.min(old.length, now.length) - start;
  while (end < most && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  const removed = old.slice(start, old.length - end);
  const added = now.slice(start, now.length - end);
  const header = `@@ -${start + 1},${removed.length} +${start + 1},${added.length} @@`;
  return [header, ...removed.map((line) => `-${line}`), ...added.map((line) => `+${line}`), ""].join("\n");
}

function strip(path: string): string {
  return path.replace(/^\/+/, "");
}

/** A name that would break its line, in quotes, as the library writes it. */
function quote(name: string): string {
  return /[\u0000-\u001f"\\]/.test(name) ? JSON.stringify(name) : name;
}

function boundDiff(patch: string): string {
  const lines = patch.split("\n");
  const kept: string[] = [];
  let chars = 0;
  for (const line of lines) {
    const shown = line.length > 500 ? `${line.slice(0, 500)}… (${line.length - 500} more characters)` : line;
    if (kept.length >= DIFF_MAX_LINES || chars + shown.length > DIFF_MAX_CHARS) {
      return `${kept.join("\n")}\n… ${lines.length - kept.length} more lines of difference\n`;
    }
    kept.push(shown);
    chars += shown.length + 1;
  }
  return kept.join("\n");
}
