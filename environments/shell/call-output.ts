/** What one call writes, by the name under which its result has it. */
import { limits } from "../../src/limits.ts";
import type { ExecOptions, ExecResult, OutputStream, Truncation } from "../base.ts";
import { Capture } from "./capture.ts";
import type { OutputStore, Spill } from "./outputs.ts";

export class CallOutput {
  readonly #captures: Partial<Record<OutputStream, Capture>>;
  readonly #separate: boolean;
  #spill: Spill | null = null;
  readonly #outputs: OutputStore;
  #closed = false;
  readonly #onOutput: ExecOptions["onOutput"];
  /** Chunks that the listener has not done with. */
  readonly #listening = new Set<Promise<void>>();
  #listenerError: unknown = null;

  constructor(options: ExecOptions, outputs: OutputStore) {
    this.#onOutput = options.onOutput;
    this.#separate = options.output === "separate";
    this.#outputs = outputs;
    const captureBytes = options.captureBytes ?? limits.captureHeadBytes + limits.captureTailBytes;
    const make = () => new Capture({ captureBytes, spill: () => this.#makeSpill() });
    this.#captures = this.#separate ? { stdout: make(), stderr: make() } : { output: make() };
  }

  /** Keeps a chunk, and hands it to the caller's listener. @returns a promise that holds the source back */
  push(stream: "stdout" | "stderr", chunk: Buffer): void | Promise<void> {
    const name = this.#separate ? stream : "output";
    const held = this.#captures[name]?.push(chunk);
    const answer = this.#tell(name, chunk);
    // Only a listener that takes its time holds the source back: to stop and start it costs more than a chunk.
    if (!answer) return held;
    const heard = Promise.resolve(answer).catch((error) => this.#fail(error));
    this.#listening.add(heard);
    void heard.then(() => this.#listening.delete(heard));
    return held ? Promise.all([held, heard]).then(() => undefined) : heard;
  }

  /** Resolves when the listener has done with all that came. */
  delivered(): Promise<unknown> {
    return Promise.all(this.#listening);
  }

  /** The first failure of the listener. */
  get listenerError(): unknown {
    return this.#listenerError;
  }

  /** Everything, what came and what comes, goes to the spill too. */
  spillAll(): Spill {
    for (const capture of Object.values(this.#captures)) capture.startSpill();
    return this.#makeSpill();
  }

  async finish(): Promise<void> {
    this.#closed = true;
    await this.#spill?.close();
  }

  read(): Pick<ExecResult, "output" | "stdout" | "stderr" | "truncated" | "outputId"> {
    const texts: Record<OutputStream, string> = { output: "", stdout: "", stderr: "" };
    const truncated: Partial<Record<OutputStream, Truncation>> = {};
    for (const name of ["output", "stdout", "stderr"] as const) {
      const read = this.#captures[name]?.read();
      if (!read) continue;
      texts[name] = read.text;
      if (read.truncated) truncated[name] = read.truncated;
    }
    return { ...texts, truncated, outputId: this.#spill?.id ?? null };
  }

  get spillFailure(): string | null {
    return this.#spill?.failure && this.#closed ? this.#spill.failure.message : null;
  }

  #tell(stream: OutputStream, data: Buffer): void | Promise<void> {
    try {
      return this.#onOutput?.({ stream, data });
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    this.#listenerError ??= error;
  }

  /** Both streams of a separate call share one file, in the order in which they came. */
  #makeSpill(): Spill {
    this.#spill ??= this.#outputs.create();
    return this.#spill;
  }
}
