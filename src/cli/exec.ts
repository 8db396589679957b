/** `moor exec`: one command, as if it ran here. */
import type { ExecResult, OutputChunk } from "../../environments/base.ts";
import { limits } from "../limits.ts";
import { EXIT, signalExit } from "./exit.ts";
import { badUsage } from "./failure.ts";
import { readStdin } from "./input.ts";
import type { EnvironmentOptions } from "./options.ts";
import { listed, printJson, printLine, visible, writeBytes } from "./output.ts";
import { onlyOne, withMoorage } from "./runtime.ts";

export interface ExecOptions extends EnvironmentOptions {
  readonly shell?: string;
  readonly cwd?: string;
  /** Seconds. */
  readonly timeout?: number;
  readonly stdin?: boolean;
}

export async function exec(words: readonly string[], options: ExecOptions): Promise<number> {
  const command = commandOf(words, options);
  return withMoorage(
    onlyOne(options),
    async ({ moorage, lifetime, start }) => {
      const { abortSignal } = lifetime;
      const stdin = options.stdin ? await readStdin(limits.stdinMaxBytes, abortSignal) : undefined;
      const merged = new ArrivalOrder();
      const environment = moorage.environment();
      await start();
      const result = await environment.exec(command, {
        output: "separate",
        abortSignal,
        onOutput: (chunk) => (options.json ? merged.add(chunk) : show(chunk)),
        ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
        ...(options.timeout === undefined ? {} : { timeoutMs: options.timeout * 1_000 }),
        ...(stdin === undefined ? {} : { stdin }),
      });
      if (options.json)
        printJson({ ...result, output: merged.text(), durationMs: Math.round(result.durationMs) });
      else remark(result, words);
      return exitCodeOf(result);
    },
    { hasTools: false },
  );
}

function commandOf(words: readonly string[], { shell }: ExecOptions): string | readonly string[] {
  if (shell === undefined) {
    if (words.length > 0) return words;
    throw badUsage("No command to run is given", "Give it at the end, as in `moor exec -e local -- ls -l`.");
  }
  if (words.length === 0) return shell;
  throw badUsage(
    `Both a shell line and a program are given: "${words.join(" ")}"`,
    "Put all of it into the line of --shell, in quotes.",
  );
}

function show({ stream, data }: OutputChunk): Promise<void> | undefined {
  return writeBytes(stream === "stderr" ? process.stderr : process.stdout, data);
}

function exitCodeOf({ exitCode, signal, timedOut }: ExecResult): number {
  if (timedOut) return EXIT.timeout;
  if (exitCode !== null) return exitCode;
  // The environment names signals as POSIX does.
  return signal === null ? EXIT.ours : signalExit(signal as NodeJS.Signals);
}

/** What the exit status alone does not say. */
function remark(result: ExecResult, words: readonly string[]): void {
  for (const note of result.notes) printLine(`moor: ${note}`);
  if (result.timedOut) {
    printLine(`moor: The command was ended by its timeout, after ${Math.round(result.durationMs)} ms`);
  }
  const left = result.leftRunning.map(({ command }) => visible(command));
  if (left.length > 0) {
    printLine(
      `moor: Left running: ${listed(left)}; it ends with this command, unless its environment is kept (?keep)`,
    );
  }
  for (const { pid, command } of result.survivors) {
    printLine(`moor: Process ${pid} could not be ended: ${visible(command)}`);
  }
  const [program = ""] = words;
  if (result.exitCode === 127 && words.length === 1 && /\s/.test(program)) {
    printLine(`moor: "${program}" is one word, the name of a program; for a shell line use --shell`);
  }
}

/** stdout and stderr as they came, of which a result for programs keeps as much as of the streams themselves. */
class ArrivalOrder {
  readonly #decoders = { output: new TextDecoder(), stdout: new TextDecoder(), stderr: new TextDecoder() };
  #head = "";
  #tail = "";

  add({ stream, data }: OutputChunk): void {
    const text = this.#decoders[stream].decode(data, { stream: true });
    const room = Math.max(0, limits.captureHeadBytes - this.#head.length);
    this.#head += text.slice(0, room);
    this.#tail += text.slice(room);
    if (this.#tail.length > limits.captureTailBytes * 2)
      this.#tail = this.#tail.slice(-limits.captureTailBytes);
  }

  text(): string {
    return this.#head + this.#tail.slice(-limits.captureTailBytes);
  }
}
