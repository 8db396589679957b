/**
 * stdout and stderr of this process. A reader that goes away (`moor … | head -1`) is no fault: it fires
 * `outputClosed`, upon which commands end. So does a full disk, which is one.
 */
const closed = new AbortController();
/** A pipe without a reader, a terminal that is gone. */
const NO_READER: ReadonlySet<string> = new Set(["EPIPE", "EIO", "ECONNRESET", "ERR_STREAM_DESTROYED"]);

/** Fires when nothing can be written to our stdout any more; its reason is the system's error. */
export const outputClosed: AbortSignal = closed.signal;

/** Keeps a broken pipe or a lost terminal from being an unhandled error. Call once, first. */
export function guardOutput(): void {
  process.stdout.on("error", (error) => {
    closed.abort(error);
    if (isOutputLost()) printLine(`moor: Cannot write our output: ${error.message}`);
  });
  // Nobody is left to tell.
  process.stderr.on("error", () => {});
}

/** Whether something that was asked for could not be written, though somebody wants it. */
export function isOutputLost(): boolean {
  const reason: unknown = outputClosed.reason;
  return reason instanceof Error && "code" in reason && !NO_READER.has(String(reason.code));
}

/** One line for people, to stderr. */
export function printLine(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** One line of JSON, to stdout. */
export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** A command of somebody's as one line of a list: what would move a terminal's cursor is escaped. */
export function visible(text: string): string {
  return text.replaceAll(
    /[\p{Cc}\u2028\u2029]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Of many words in a line for people these are named. */
const LISTED = 5;

/** `a, b and 3 more`. */
export function listed(words: readonly string[]): string {
  const more = words.length > LISTED ? ` and ${words.length - LISTED} more` : "";
  return `${words.slice(0, LISTED).join(", ")}${more}`;
}

/** Text that was asked for, to stdout. */
export function printText(text: string): void {
  process.stdout.write(text.endsWith("\n") ? text : `${text}\n`);
}

/** Writes bytes; the promise resolves when the reader can take more, or is gone. */
export function writeBytes(stream: NodeJS.WriteStream, data: Uint8Array): Promise<void> | undefined {
  if (stream.destroyed || stream.write(data)) return undefined;
  return new Promise((resolve) => {
    const done = (): void => {
      stream.off("drain", done);
      stream.off("close", done);
      resolve();
    };
    stream.on("drain", done);
    stream.on("close", done);
  });
}

/** Resolves when everything written has left this process, or nobody reads it. */
export async function flushOutput(): Promise<void> {
  await Promise.all(
    [process.stdout, process.stderr].map(
      (stream) =>
        new Promise<void>((resolve) => {
          if (stream.destroyed || stream.writableLength === 0) resolve();
          else stream.write("", () => resolve());
        }),
    ),
  );
}
