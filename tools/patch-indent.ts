/** Old text whose indentation differs from the file's in the same way on every line. */
import type { Line, LineEdit } from "./patch-lines.ts";

const INDENT = /^[ \t]*/;

/**
 * Gives added lines the file's indentation, when what the edits say and what the file has differ by one prefix.
 * Where only kept lines differ, nothing has to be changed.
 *
 * @returns null when no one prefix explains the difference, or it would mix tabs and blanks in an added line
 */
export function fitIndentation(
  lines: readonly Line[],
  start: number,
  edits: readonly LineEdit[],
): readonly LineEdit[] | null {
  const pairs = edits
    .filter(({ kind }) => kind !== "add")
    .map(({ kind, text }, index) => ({ kind, said: text, has: lines[start + index]?.text ?? "" }))
    .filter(({ said }) => said.trim() !== "")
    .map(({ kind, said, has }) => ({ kind, said: indentOf(said), has: indentOf(has) }));
  const removedFit = pairs.every(({ kind, said, has }) => kind === "keep" || said === has);
  const least = pairs.toSorted((a, b) => a.said.length - b.said.length)[0];
  const uniform =
    least !== undefined &&
    pairs.every(
      ({ said, has }) => said.startsWith(least.said) && has === least.has + said.slice(least.said.length),
    );
  if (!uniform) return removedFit ? edits : null;
  if (least.said === least.has) return edits;
  const fitted: LineEdit[] = [];
  for (const edit of edits) {
    const text = edit.kind === "add" ? shift(edit.text, least.said, least.has) : edit.text;
    if (text === null) return null;
    fitted.push({ kind: edit.kind, text });
  }
  return fitted;
}

function shift(text: string, said: string, has: string): string | null {
  if (text.trim() === "") return text;
  if (!text.startsWith(said)) return null;
  const rest = text.slice(said.length);
  const deeper = indentOf(rest);
  const mixes = deeper !== "" && has !== "" && new Set(has + deeper).size > 1;
  return mixes ? null : has + rest;
}

function indentOf(text: string): string {
  return INDENT.exec(text)?.[0] ?? "";
}
