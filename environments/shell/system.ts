/** Our own scripts inside the environment, on workers that no user command ever ran on. */

import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { WorkerFacts } from "./greeting.ts";
import { quote } from "./quote.ts";
import { emptyState } from "./state.ts";
import type { SystemRunOptions, SystemRunResult, SystemShell } from "./stream.ts";
import type { CallWorker } from "./worker.ts";

const STDERR_MAX_BYTES = 64 * 1024;
const STATE = emptyState("/");
const STDOUT_MAX_BYTES = 64 * 1024 * 1024;

/** A shell that is lost again and again is not the script's bad luck. */
const MAX_REPEATS = 2;

/** A script whose end is not known. */
interface Lost {
  readonly loss: MoorageError;
  /** False when the shell that waited for it was ended before, while the place is well. */
  readonly mayHaveRun: boolean;
  /** Whether some of its output was handed on. */
  readonly isHeard: boolean;
}

export interface SystemHost {
  /** Brings the environment up and gives a worker; told when the place had to be made again. */
  acquire(wanted: { readonly anyShell: boolean }): Promise<CallWorker>;
  release(worker: CallWorker): void;
  discard(worker: CallWorker): Promise<void>;
  /** Ends the processes of a worker's call. */
  endCall(worker: CallWorker): Promise<void>;
  readonly facts: () => WorkerFacts;
  readonly environmentId: string;
  /** See `SystemShell`. @default false */
  readonly hasTwoStreams?: boolean;
}

export class ResidentSystemShell implements SystemShell {
  readonly #host: SystemHost;
  #privateDir: Promise<string> | null = null;

  constructor(host: SystemHost) {
    this.#host = host;
  }

  get home(): string {
    return this.#host.facts().home;
  }

  get shell(): "bash" | "sh" {
    return this.#host.facts().shell;
  }

  get hasTwoStreams(): boolean {
    return this.#host.hasTwoStreams ?? false;
  }

  async run(script: string, options: SystemRunOptions = {}): Promise<SystemRunResult> {
    for (let losses = 0; ; losses += 1) {
      const outcome = await this.#runOnce(script, options);
      if (!("loss" in outcome)) return outcome;
      const isSafe = !outcome.mayHaveRun || (options.repeatable && !outcome.isHeard);
      if (!isSafe || losses === MAX_REPEATS) throw outcome.loss;
    }
  }

  /** @throws {MoorageError} what is known of a script that did not run, or did not run to its end */
  async #runOnce(script: string, options: SystemRunOptions): Promise<SystemRunResult | Lost> {
    const { timeoutMs = limits.fileOpTimeoutMs, maxBytes = STDOUT_MAX_BYTES, abortSignal } = options;
    const aborted = () => new MoorageError("ABORTED", "Cannot finish: the caller cancelled");
    if (abortSignal?.aborted) throw aborted();
    const worker = await this.#host.acquire({ anyShell: options.plain ?? false });
    if (abortSignal?.aborted) {
      this.#host.release(worker);
      throw aborted();
    }
    const stdout: Buffer[] = [];
    let stdoutBytes = 0;
    const stderr: Buffer[] = [];
    let stderrBytes = 0;
    let failure: unknown = null;
    let isHeard = false;
    let stop: (why: MoorageError) => void = () => {};
    const stopped = new Promise<MoorageError>((resolve) => {
      stop = resolve;
    });
    const timer = setTimeout(
      () => stop(new MoorageError("TOOL_TIMEOUT", `Cannot finish: no answer within ${timeoutMs} ms`)),
      timeoutMs,
    );
    const onAbort = () => stop(aborted());
    abortSignal?.addEventListener("abort", onAbort, { once: true });
    const running = worker.run({
      command: Buffer.from(script, "utf8").toString("latin1"),
      sound: true,
      cwd: "/",
      cwdRequired: false,
      state: STATE,
      env: new Map(),
      stdin: options.stdin ?? null,
      live: options.live ?? false,
      plain: options.plain ?? false,
      separate: true,
      dump: false,
      onData: (stream, chunk) => {
        const take = stream === "stderr" ? options.onStderr : options.onStdout;
        if (take) {
          isHeard = true;
          const fail = (error: unknown) => {
            failure ??= error;
            stop(new MoorageError("INTERNAL", "Cannot finish: the reader of a script's output failed"));
          };
          try {
            return take(chunk)?.catch(fail);
          } catch (error) {
            fail(error);
            return undefined;
          }
        }
        if (stream === "stderr") {
          if (stderrBytes < STDERR_MAX_BYTES) stderr.push(chunk);
          stderrBytes += chunk.length;
          return undefined;
        }
        stdoutBytes += chunk.length;
        if (stdoutBytes <= maxBytes) stdout.push(chunk);
        else stop(new MoorageError("INTERNAL", `Cannot finish: a script wrote more than ${maxBytes} bytes`));
        return undefined;
      },
    });
    try {
      const end = await Promise.race([running, stopped]);
      if (end instanceof MoorageError) {
        await this.#host
          .endCall(worker)
          .catch((error: unknown) => {
            if (!(error instanceof MoorageError)) throw error;
            const text = `Cannot tell what happened: ${end.message}, and it could not be ended: ${error.message}`;
            throw new MoorageError("EXECUTION_UNKNOWN", text, { cause: error });
          })
          .finally(() => this.#host.discard(worker));
        throw failure ?? end;
      }
      if (end.kind !== "ended") await this.#host.discard(worker);
      if (end.kind === "lost" && !end.begun) {
        if (end.lost?.details.phase === "ready") return { loss: end.lost, mayHaveRun: false, isHeard };
        throw end.lost ?? new MoorageError("ENVIRONMENT_UNAVAILABLE", "Cannot run: the connection broke");
      }
      if (end.kind !== "ended") {
        const why =
          end.kind === "lost"
            ? "the connection broke during a request"
            : `a shell ended with code ${end.exitCode}`;
        const text = `Cannot tell what happened: ${why}`;
        const cause = end.lost ?? undefined;
        return { loss: new MoorageError("EXECUTION_UNKNOWN", text, { cause }), mayHaveRun: true, isHeard };
      }
      this.#host.release(worker);
      return {
        exitCode: end.exitCode ?? -1,
        stdout: Buffer.concat(stdout),
        stderr: Buffer.concat(stderr).toString("utf8"),
      };
    } finally {
      clearTimeout(timer);
      abortSignal?.removeEventListener("abort", onAbort);
    }
  }

  privateDir(): Promise<string> {
    this.#privateDir ??= this.#makePrivateDir().catch((error) => {
      this.#privateDir = null;
      throw error;
    });
    return this.#privateDir;
  }

  /** Forgets the folder, since the place is a new one. */
  reset(): void {
    this.#privateDir = null;
  }

  /** Removes the private folder if it was made. */
  async removePrivateDir(): Promise<void> {
    if (!this.#privateDir) return;
    const folder = await this.#privateDir;
    this.#privateDir = null;
    await this.run(
      `rm -rf -- ${quote(folder)}; rmdir -- ${quote(folder.slice(0, folder.lastIndexOf("/")))} 2>/dev/null; :`,
      { repeatable: true },
    );
  }

  async #makePrivateDir(): Promise<string> {
    const name = quote(this.#host.environmentId);
    // Somebody else may have made the folder first: it must be a real folder, ours, and closed to others.
    const script = `u=$(id -u) || exit 3
for t in "\${TMPDIR:-/tmp}" /tmp /var/tmp /dev/shm "$HOME"; do
  [ -d "$t" ] && [ -w "$t" ] || continue
  d=$t/.moorage-$u
  umask 077
  mkdir "$d" 2>/dev/null
  [ -d "$d" ] && [ ! -L "$d" ] && [ -O "$d" ] || continue
  chmod 700 "$d" && mkdir -p "$d"/${name} && chmod 700 "$d"/${name} || continue
  printf %s "$d"/${name}
  exit 0
done
exit 4`;
    const result = await this.run(script, { repeatable: true });
    if (result.exitCode !== 0) {
      throw new MoorageError(
        "ENVIRONMENT_UNAVAILABLE",
        `Cannot make a private folder in /tmp, /var/tmp, /dev/shm or the home folder: ${result.stderr.trim() || "none is writable"}`,
      );
    }
    return result.stdout.toString("utf8");
  }
}
