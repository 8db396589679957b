/** What is said in a sandbox to this process, which commands that trace its supervisor can say as well. */
import type { Readable } from "node:stream";

/** Longer than any line of the supervisor's, bytes. */
export const LINE_MAX = 1024;
/** All variables of a login shell, bytes; the kernel gives a program no more. */
export const LOGIN_MAX = 8 * 1024 * 1024;

/** Tells each line, one byte a character. One without end is dropped, whatever its length. */
export function onLines(input: Readable, tell: (line: string) => void): void {
  let rest = "";
  input.on("data", (chunk: Buffer) => {
    const lines = (rest + chunk.toString("latin1")).split("\n");
    rest = (lines.pop() ?? "").slice(0, LINE_MAX);
    for (const line of lines) tell(line);
  });
}
