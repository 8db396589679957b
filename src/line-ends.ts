/**
 * The line ends of a command, which may come from a file that was edited on Windows. To a shell a carriage return is
 * part of a word, so that such a command finds no program of its name.
 */

/**
 * A command with the line ends that a shell understands. Only where every line ends in a carriage return, the first one
 * outside quotes, where nobody can mean it: bytes of a quoted text, and of a here-document in a command whose own
 * lines end as they should, stay as they are.
 */
export function shellLines(command: string): string {
  if (!command.includes("\r")) return command;
  const lines = command.split("\n");
  const last = lines.pop() ?? "";
  const [first = last] = lines;
  if (!lines.every((line) => line.endsWith("\r")) || !first.endsWith("\r") || !isClosed(first))
    return command;
  return [...lines, last].map((line) => line.replace(/\r$/, "")).join("\n");
}

/** What a line of a shell consists of, as far as quotes go; an unescaped quote that is left over matches nothing. */
const PART =
  /\\[\s\S]|\$'(?:\\[\s\S]|[^\\'])*'|'[^']*'|"(?:\\[\s\S]|[^\\"])*"|(?<![^\s;&|()])#[\s\S]*$|[^\\'"#$]+|#|\$(?!')|\\$/y;

/** Whether no quote that begins in the line is open at its end. */
function isClosed(line: string): boolean {
  PART.lastIndex = 0;
  while (PART.lastIndex < line.length) if (!PART.test(line)) return false;
  return true;
}
