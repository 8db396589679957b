/** What a command reads: our stdin, a file, JSON. */
import { MoorageError } from "../errors.ts";
import { readTextFile } from "../read-text.ts";
import { badUsage } from "./failure.ts";

/** Reads our stdin to its end. @throws {MoorageError} INVALID_ARGUMENTS beyond `maxBytes`, ABORTED */
export async function readStdin(maxBytes: number, abortSignal?: AbortSignal): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  const stop = (): void => void process.stdin.destroy();
  abortSignal?.addEventListener("abort", stop, { once: true });
  try {
    for await (const chunk of process.stdin) {
      const bytes = Buffer.from(chunk);
      size += bytes.length;
      if (size > maxBytes) {
        throw badUsage(
          `Cannot pass stdin: it holds more than ${maxBytes} bytes`,
          "Write it to a file of the environment instead.",
        );
      }
      chunks.push(bytes);
    }
  } catch (error) {
    if (!abortSignal?.aborted) throw error;
  } finally {
    abortSignal?.removeEventListener("abort", stop);
  }
  if (abortSignal?.aborted) throw new MoorageError("ABORTED", "Cannot read stdin: the command was ended");
  return Buffer.concat(chunks);
}

/** Text of a file, or of our stdin for `-`, without a byte order mark. @throws {MoorageError} INVALID_ARGUMENTS */
export async function readText(file: string, maxBytes: number, abortSignal?: AbortSignal): Promise<string> {
  if (file === "-") return withoutMark((await readStdin(maxBytes, abortSignal)).toString("utf8"));
  try {
    return withoutMark(await readTextFile(file, maxBytes));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw badUsage(`Cannot read "${file}": ${reason}`, "Name a file that can be read, or - for stdin.");
  }
}

function withoutMark(text: string): string {
  return text.startsWith("\ufeff") ? text.slice(1) : text;
}
