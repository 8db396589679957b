/** `N|line` for each line of a text, within a budget. */
import { limits } from "../src/limits.ts";

export interface NumberedLines {
  readonly text: string;
  /** Lines in `text`. */
  readonly count: number;
  /** Numbers of the lines that were shortened. */
  readonly cutLines: readonly number[];
}

export interface NumberOptions {
  /** Bytes of UTF-8, numbers included. */
  readonly maxBytes: number;
  /** Whether the text's last line goes on in the file. */
  readonly lastIsCut: boolean;
}

/** Shows at least one line, however long; `\r` at a line's end is not shown. */
export function numberLines(text: string, firstLine: number, options: NumberOptions): NumberedLines {
  const lines = text.split("\n");
  const ended = lines.at(-1) === "";
  if (ended) lines.pop();
  const shown: string[] = [];
  const cutLines: number[] = [];
  let bytes = 0;
  for (const [index, line] of lines.entries()) {
    const plain = line.replace(/\r$/, "");
    const goesOn = options.lastIsCut && !ended && index === lines.length - 1;
    const cut = plain.length > limits.lineMaxChars || goesOn;
    const numbered = `${firstLine + index}|${cut ? shorten(plain, goesOn) : plain}`;
    bytes += Buffer.byteLength(numbered) + 1;
    if (bytes > options.maxBytes && index > 0) break;
    shown.push(numbered);
    if (cut) cutLines.push(firstLine + index);
  }
  return { text: shown.join("\n"), count: shown.length, cutLines };
}

function shorten(line: string, goesOn: boolean): string {
  // Half of a surrogate pair must not stand at the cut.
  const kept = line.slice(0, limits.lineMaxChars).replace(/[\ud800-\udbff]$/, "");
  const left = line.length - kept.length;
  return `${kept}… (line cut, ${goesOn ? "over " : ""}${left} more characters)`;
}
