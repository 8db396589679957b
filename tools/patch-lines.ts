/** A text as lines that remember their own endings, and edits that leave every other line's bytes alone. */

export interface Line {
  readonly text: string;
  /** `\n`, `\r\n`, or empty for a last line without one. */
  readonly ending: string;
}

/** One line of a change: kept, removed or added. */
export interface LineEdit {
  readonly kind: "keep" | "remove" | "add";
  readonly text: string;
}

export function splitLines(text: string): readonly Line[] {
  const lines: Line[] = [];
  for (let at = 0; at < text.length; ) {
    const end = text.indexOf("\n", at);
    if (end < 0) {
      lines.push({ text: text.slice(at), ending: "" });
      break;
    }
    const carriage = end > at && text[end - 1] === "\r";
    lines.push({ text: text.slice(at, carriage ? end - 1 : end), ending: carriage ? "\r\n" : "\n" });
    at = end + 1;
  }
  return lines;
}

export function joinLines(lines: readonly Line[]): string {
  return lines.map(({ text, ending }) => text + ending).join("");
}

/**
 * Replaces the lines that `edits` keeps or removes, from `start` on. Kept lines are the file's own, whatever the
 * edit says; added lines take the ending of the line they follow. A missing final newline stays missing.
 */
export function editLines(
  lines: readonly Line[],
  start: number,
  edits: readonly LineEdit[],
): readonly Line[] {
  const result: Line[] = lines.slice(0, start);
  let at = start;
  for (const { kind, text } of edits) {
    if (kind === "add") {
      result.push({ text, ending: endingAt(lines, at) });
      continue;
    }
    const line = lines[at++];
    if (line && kind === "keep") result.push(line);
  }
  result.push(...lines.slice(at));
  return settleEndings(result, lines);
}

/** The ending that fits at index `at`: of the line before, else of the lines from there on, else `\n`. */
export function endingAt(lines: readonly Line[], at: number): string {
  const before = lines[at - 1]?.ending;
  if (before) return before;
  return (
    lines.slice(at).find(({ ending }) => ending !== "")?.ending ??
    lines.find(({ ending }) => ending !== "")?.ending ??
    "\n"
  );
}

function settleEndings(result: Line[], original: readonly Line[]): readonly Line[] {
  const hadFinal = original.at(-1)?.ending !== "";
  return result.map((line, index) => {
    const last = index === result.length - 1;
    if (last && !hadFinal) return { text: line.text, ending: "" };
    if (line.ending !== "") return line;
    return { text: line.text, ending: endingAt(original, original.length - 1) };
  });
}
