/** The difference between two contents, bounded, for a model to check its change by. */
import { createTwoFilesPatch } from "diff";
import { decodeFile, displayText } from "./text-encoding.ts";

/** Contents larger than this are not compared, bytes. */
export const DIFF_INPUT_MAX_BYTES = 512 * 1024;
const DIFF_MAX_CHARS = 12_000;
const DIFF_MAX_LINES = 300;
/** Comparing gives up after this, milliseconds. */
const DIFF_TIMEOUT_MS = 300;

/**
 * @param before null when there was no file
 * @param after null when there is none any more
 * @returns null when a side is binary or too large, or comparing takes too long
 */
export function unifiedDiff(path: string, before: Buffer | null, after: Buffer | null): string | null {
  const sides = [before, after];
  if (sides.some((side) => side && (side.length > DIFF_INPUT_MAX_BYTES || !decodeFile(side)))) return null;
  const [old, now] = sides.map((side) => (side ? displayText(side) : ""));
  const patch = createTwoFilesPatch(
    before ? `a/${strip(path)}` : "/dev/null",
    after ? `b/${strip(path)}` : "/dev/null",
    old ?? "",
    now ?? "",
    undefined,
    undefined,
    { context: 3, timeout: DIFF_TIMEOUT_MS },
  );
  if (patch === undefined) return null;
  return boundDiff(patch.replace(/^=+\n/, ""));
}

function strip(path: string): string {
  return path.replace(/^\/+/, "").replaceAll("\n", "\\n");
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
