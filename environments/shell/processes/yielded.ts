/** Commands that outlasted their call and go on as background processes on the stream where they began. */
import { randomBytes } from "node:crypto";
import { MoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import type {
  EnvironmentProcess,
  LeftProcess,
  LogSlice,
  ProcessInfo,
  ProcessStatus,
  WaitCondition,
  WaitOutcome,
} from "../../base.ts";
import { checkCondition, checkSlice } from "../checks.ts";
import type { OutputStore } from "../outputs.ts";
import type { YieldedCommand } from "../runner.ts";
import { signalExitCode, signalName } from "../signals.ts";
import type { CallEnd, CallWorker } from "../worker.ts";

export interface YieldedHost {
  readonly outputs: OutputStore;
  endTree(worker: CallWorker): Promise<readonly LeftProcess[]>;
  /** Sends a signal, named without its `SIG`, to the command's processes. */
  signalTree(worker: CallWorker, signal: string): Promise<void>;
  /** Whether something inside the environment listens on the port. */
  listening(port: number): Promise<boolean>;
}

const MATCH_WINDOW_BYTES = 256 * 1024;
const POLL_MS = 100;

export class YieldedProcess implements EnvironmentProcess {
  readonly id = `proc_${randomBytes(6).toString("hex")}`;
  readonly #command: YieldedCommand;
  readonly #host: YieldedHost;
  readonly #startedAt = new Date();
  /** On a clock that nobody sets. */
  readonly #begunMs = performance.now();
  #end: CallEnd | null = null;
  #endedMs: number | null = null;
  #killed = false;

  constructor(command: YieldedCommand, host: YieldedHost) {
    this.#command = command;
    this.#host = host;
    void command.end.then((end) => {
      this.#end = end;
      this.#endedMs = performance.now();
    });
  }

  /** Whether it has ended so long ago that its record may be forgotten. */
  get isExpired(): boolean {
    return this.#endedMs !== null && performance.now() - this.#endedMs > limits.processRetentionMs;
  }

  async info(): Promise<ProcessInfo> {
    const end = this.#end;
    const status: ProcessStatus = !end
      ? "running"
      : end.kind === "lost"
        ? "lost"
        : this.#killed
          ? "killed"
          : "exited";
    return {
      id: this.id,
      command: this.#command.command,
      cwd: this.#command.cwd,
      pid: this.#command.worker.shellPid,
      status,
      exitCode:
        end && end.kind !== "lost"
          ? (end.exitCode ?? (end.signal ? signalExitCode(end.signal) : null))
          : null,
      startedAt: this.#startedAt.toISOString(),
      endedAt:
        this.#endedMs === null
          ? null
          : new Date(this.#startedAt.getTime() + this.#endedMs - this.#begunMs).toISOString(),
      pty: false,
      stdinOpen: false,
      logBytes: this.#command.spill.bytes,
      logTruncated: this.#command.spill.truncated,
    };
  }

  async log(options: { readonly offset?: number; readonly maxBytes?: number } = {}): Promise<LogSlice> {
    checkSlice(options);
    return this.#host.outputs.read(this.#command.spill.id, options);
  }

  async write(): Promise<void> {
    this.#requireRunning();
    throw new MoorageError(
      "PROCESS_NO_STDIN",
      `Cannot write to ${this.id}: it began as a foreground command, whose input is empty`,
    );
  }

  async closeStdin(): Promise<void> {}

  async signal(signal: string): Promise<void> {
    const name = signalName(signal);
    this.#requireRunning();
    await this.#command.withWorker((worker) => this.#host.signalTree(worker, name));
  }

  /** @param waitMs for its end, when nothing of it is left. @default limits.openTimeoutMs */
  async kill(
    waitMs: number = limits.openTimeoutMs,
  ): Promise<{ readonly info: ProcessInfo; readonly survivors: readonly LeftProcess[] }> {
    if (this.#end) return { info: await this.info(), survivors: [] };
    this.#killed = true;
    const survivors = (await this.#command.withWorker((worker) => this.#host.endTree(worker))) ?? [];
    // With nothing left of it, its end is on the way, however slow the way is.
    const patienceMs = survivors.length === 0 ? waitMs : limits.killGraceMs;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, patienceMs);
    });
    await Promise.race([this.#command.end, late]);
    clearTimeout(timer);
    return { info: await this.info(), survivors };
  }

  async wait(condition: WaitCondition = {}): Promise<WaitOutcome> {
    checkCondition(condition);
    const deadline =
      condition.timeoutMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + condition.timeoutMs;
    const outcome = async (
      reason: WaitOutcome["reason"],
      match: string | null = null,
    ): Promise<WaitOutcome> => ({
      reason,
      info: await this.info(),
      match,
    });
    const search = this.#searcher(condition.logPattern);
    for (;;) {
      if (condition.abortSignal?.aborted) return outcome("aborted");
      const over = this.#end !== null;
      const match = await search();
      if (match !== null) return outcome("log", match);
      if (condition.port !== undefined && (await this.#host.listening(condition.port)))
        return outcome("port");
      if (over) return outcome("exit");
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) return outcome("timeout");
      let timer: NodeJS.Timeout | undefined;
      let wake: (() => void) | undefined;
      await Promise.race([
        this.#command.end,
        new Promise<void>((resolve) => {
          wake = resolve;
          timer = setTimeout(resolve, Math.min(POLL_MS, leftMs));
          condition.abortSignal?.addEventListener("abort", resolve as () => void, { once: true });
        }),
      ]);
      clearTimeout(timer);
      if (wake) condition.abortSignal?.removeEventListener("abort", wake);
    }
  }

  /** Looks through what the log gained since the last look, with enough of what was there for a match across. */
  #searcher(pattern: RegExp | string | undefined): () => Promise<string | null> {
    if (pattern === undefined) return async () => null;
    // A sticky or global pattern would remember where it last matched.
    const wanted =
      typeof pattern === "string" ? pattern : new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, ""));
    let offset = 0;
    let window = "";
    return async () => {
      for (;;) {
        const slice = await this.log({ offset, maxBytes: MATCH_WINDOW_BYTES });
        if (slice.text === "") return null;
        offset = slice.nextOffset;
        window = (window + slice.text).slice(-2 * MATCH_WINDOW_BYTES);
        const found =
          typeof wanted === "string"
            ? window.includes(wanted)
              ? wanted
              : null
            : (window.match(wanted)?.[0] ?? null);
        if (found !== null) return found;
      }
    };
  }

  #requireRunning(): void {
    if (this.#end) throw new MoorageError("PROCESS_NOT_RUNNING", `Cannot reach ${this.id}: it has ended`);
  }
}
