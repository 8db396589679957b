/** One command of a served session, from its request to its exit code. */
import { randomBytes } from "node:crypto";
import type { BaseEnvironment, ExecResult } from "../../environments/base.ts";
import { badRequest } from "./api-error.ts";
import { CommandLog } from "./log.ts";

export interface CommandRequest {
  readonly command: string;
  readonly args: readonly string[];
  /** Absolute, or relative to the workspace. */
  readonly cwd?: string | undefined;
  readonly env: Readonly<Record<string, string>>;
  readonly sudo: boolean;
  /** Milliseconds. */
  readonly timeoutMs?: number | undefined;
}

/** Tells the number of the process that becomes the command, on a line before all output. */
const ANNOUNCE = 'printf "%s\\n" "$$"; exec "$@"';
/** An id of 0 may do all; another goes through sudo, which asks no password here or fails. */
const ELEVATE = 'printf "%s\\n" "$$"; if [ "$(id -u)" = 0 ]; then exec "$@"; fi; exec sudo -n -E -- "$@"';
const KILLED_EXIT_CODE = 137;
const SIGKILL = 9;

export class ServedCommand {
  readonly id = `cmd_${randomBytes(12).toString("hex")}`;
  readonly log = new CommandLog();
  readonly startedAt = Date.now();
  exitCode: number | null = null;
  durationMs: number | null = null;
  /** Resolves once the command runs or has ended. @throws what kept it from running */
  readonly started: Promise<void>;
  /** Resolves at its end. @throws {MoorageError} when the end cannot be told */
  readonly ended: Promise<void>;
  readonly #environment: BaseEnvironment;
  readonly #request: CommandRequest;
  readonly #announced = Promise.withResolvers<void>();
  #announcement = "";
  #pid: number | null = null;
  readonly #cancelling = new AbortController();
  #isKilled = false;

  constructor(environment: BaseEnvironment, request: CommandRequest) {
    if (request.command === "" || request.command.startsWith("-")) {
      throw badRequest(`"${request.command}" is no program name`);
    }
    this.#environment = environment;
    this.#request = request;
    this.ended = this.#run();
    this.started = Promise.race([this.#announced.promise, this.ended]);
    // Both are told to whoever asks; nobody may.
    this.ended.catch(() => {});
    this.started.catch(() => {});
  }

  get isRunning(): boolean {
    return this.durationMs === null;
  }

  describe(sessionId: string): Readonly<Record<string, unknown>> {
    return {
      id: this.id,
      name: this.#request.command,
      args: this.#request.args,
      cwd: this.#request.cwd ?? this.#environment.workspace,
      sessionId,
      exitCode: this.exitCode,
      ...(this.durationMs !== null && { durationMs: this.durationMs }),
      startedAt: this.startedAt,
    };
  }

  /** Sends a signal to the command's own process; with KILL, what it started ends too. No-op once it has ended. */
  async signal(number: number): Promise<void> {
    await this.started;
    if (!this.isRunning || this.#pid === null) return;
    if (number === SIGKILL) this.#isKilled = true;
    await this.#environment.exec(`kill -${number} ${this.#pid} 2>/dev/null; :`);
    if (number === SIGKILL) await this.ended;
  }

  /** Ends the command with all that it started. */
  async cancel(): Promise<void> {
    this.#cancelling.abort();
    await this.ended;
  }

  async #run(): Promise<void> {
    const { command, args, cwd, env, sudo, timeoutMs } = this.#request;
    const begun = performance.now();
    try {
      const result = await this.#environment.exec(
        ["sh", "-c", sudo ? ELEVATE : ANNOUNCE, "sh", command, ...args],
        {
          ...(cwd !== undefined && { cwd }),
          ...(timeoutMs !== undefined && { timeoutMs }),
          env,
          abortSignal: this.#cancelling.signal,
          output: "separate",
          onOutput: ({ stream, data }) => this.#take(stream === "stderr" ? "stderr" : "stdout", data),
        },
      );
      if (this.#isKilled) await this.#endLeft(result);
      this.exitCode = result.exitCode ?? KILLED_EXIT_CODE;
    } finally {
      this.durationMs = Math.round(performance.now() - begun);
      this.log.close();
    }
  }

  async #endLeft({ leftRunning }: ExecResult): Promise<void> {
    const pids = leftRunning.map(({ pid }) => pid);
    if (pids.length > 0) await this.#environment.exec(`kill -KILL ${pids.join(" ")} 2>/dev/null; :`);
  }

  #take(stream: "stdout" | "stderr", data: Uint8Array): Promise<void> | undefined {
    if (this.#pid !== null || stream === "stderr") return this.log.push(stream, data);
    this.#announcement += Buffer.from(data).toString("latin1");
    const end = this.#announcement.indexOf("\n");
    if (end < 0) return undefined;
    this.#pid = Number(this.#announcement.slice(0, end));
    this.#announced.resolve();
    const rest = Buffer.from(this.#announcement.slice(end + 1), "latin1");
    return rest.length > 0 ? this.log.push("stdout", rest) : undefined;
  }
}
