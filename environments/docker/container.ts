/** One running container: starting programs in it, small commands of our own, and its removal. */
import type Dockerode from "dockerode";
import { isMoorageError, MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { ShellStream, StreamRequest } from "../shell/stream.ts";
import type { DockerClient } from "./client.ts";
import { openExec } from "./stream.ts";
import { WarmStreams } from "./warm-streams.ts";
import { ContainerWatch } from "./watch.ts";

export interface ContainerFacts {
  readonly id: string;
  readonly name: string;
  readonly image: string;
  readonly workspace: string;
  /** Folders of the host that a command in it can change. */
  readonly hostPaths: readonly string[];
  /** The one that its workspace is; null when its workspace is its own. */
  readonly sharedFolder: string | null;
  /** Whether it is ours to remove. */
  readonly owned: boolean;
}

export interface RunResult {
  readonly exitCode: number;
  readonly stdout: string;
}

/** What a container has used up, so that nothing more can be started in it. */
export type Exhausted = "processes" | "memory";

/** A place whose processes die of the limit and are started again is never quite full. */
const FULL_SHARE = 0.8;
/** Output of our own small commands is a line or two. */
const RUN_MAX_BYTES = 64 * 1024;

export class DockerContainer {
  readonly client: DockerClient;
  readonly facts: ContainerFacts;
  readonly watch: ContainerWatch;
  /** Variables of every program in it, beneath those of the request. */
  env: Readonly<Record<string, string>> = {};
  /** What the linter found in one that was joined, and was accepted. */
  warnings: readonly string[] = [];
  /** Who commands run as, when it is not the user of its record. */
  user: string | undefined;
  /** Whether a program in it ever said something; what never worked is not made again. */
  proven = false;
  readonly #warm: WarmStreams;

  constructor(client: DockerClient, facts: ContainerFacts) {
    this.client = client;
    this.facts = facts;
    this.watch = new ContainerWatch(client, facts.id);
    this.#warm = new WarmStreams((request) => this.#open(request));
  }

  /**
   * Starts a program; see `openExec`.
   * @throws {MoorageError} ENVIRONMENT_LOST when our container is gone, CONTAINER_MISSING when someone else's is
   */
  async openStream(request: StreamRequest): Promise<ShellStream> {
    const warm = await this.#warm.take(request);
    return warm ?? (await this.#open(request));
  }

  /** Opens streams ahead, so that the next `openStream` calls answer at once. */
  warmUp(count: number): Promise<void> {
    return this.#warm.fill(count);
  }

  async #open(request: StreamRequest, user = this.user): Promise<ShellStream> {
    const target = {
      client: this.client,
      containerId: this.facts.id,
      name: this.facts.name,
      watch: this.watch,
      onOutput: () => {
        this.proven = true;
      },
    };
    try {
      const env = { ...this.env, ...request.env };
      return await openExec(target, { ...request, env }, user === undefined ? {} : { user });
    } catch (error) {
      if (!isMoorageError(error)) throw error;
      throw this.#explain(error);
    }
  }

  #explain(error: MoorageError): MoorageError {
    const lost = error.code === "CONTAINER_MISSING" && this.facts.owned;
    const code = lost ? "ENVIRONMENT_LOST" : error.code;
    const details = { ...error.details, container: this.facts.id };
    return new MoorageError(code, error.message, { details, cause: error.cause ?? error });
  }

  /**
   * Runs a small command of ours to its end, on a stream of its own.
   * @throws {MoorageError} TOOL_TIMEOUT after `limits.dockerRequestTimeoutMs`, or why there was no exit code
   */
  async run(
    argv: readonly string[],
    options: { readonly user?: string; readonly env?: Readonly<Record<string, string>> } = {},
  ): Promise<RunResult> {
    const stream = await this.#open({ argv, env: options.env ?? {} }, options.user ?? this.user);
    const chunks: Buffer[] = [];
    let size = 0;
    stream.stdout.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size <= RUN_MAX_BYTES) chunks.push(chunk);
    });
    stream.stderr.resume();
    stream.stdin.end();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        const text = `A command of ours did not end in container "${this.facts.name}"`;
        reject(new MoorageError("TOOL_TIMEOUT", text, { details: { container: this.facts.id } }));
      }, limits.dockerRequestTimeoutMs);
    });
    try {
      const { exitCode, lost } = await Promise.race([stream.ended, late]);
      if (lost) throw lost;
      if (exitCode === null)
        throw new MoorageError("EXECUTION_UNKNOWN", "A command of ours gave no exit code");
      return { exitCode, stdout: Buffer.concat(chunks).toString("utf8") };
    } finally {
      clearTimeout(timer);
      await stream.close();
    }
  }

  /** @throws {MoorageError} CONTAINER_MISSING, DOCKER_* */
  inspect(timeoutMs?: number): Promise<Dockerode.ContainerInspectInfo> {
    return inspectContainer(this.client, this.facts.id, timeoutMs);
  }

  /**
   * Which of its limits it has nearly reached; null when none, or when the engine does not tell.
   * @throws {MoorageError} CONTAINER_MISSING, DOCKER_*
   */
  async exhausted(): Promise<Exhausted | null> {
    const stats = await this.client.call(
      `measure container "${this.facts.name}"`,
      // The library's types know no answer without a stream.
      (docker) => docker.getContainer(this.facts.id).stats({ stream: false, "one-shot": true }),
      { timeoutMs: limits.dockerRequestTimeoutMs, container: this.facts.id },
    );
    const { current = 0, limit = 0 } = stats.pids_stats ?? {};
    if (limit > 0 && current >= limit * FULL_SHARE) return "processes";
    const memory = stats.memory_stats ?? {};
    return memory.limit > 0 && heldBytes(memory) >= memory.limit * FULL_SHARE ? "memory" : null;
  }

  /** Lets go of it without touching it. */
  async detach(): Promise<void> {
    await this.#warm.close();
    this.watch.close();
  }

  /** @throws {MoorageError} CLEANUP_FAILED */
  async remove(): Promise<void> {
    await this.detach();
    await removeContainer(this.client, this.facts.id);
  }
}

/** Memory that the kernel cannot take back: all but the cache of files, which files in memory are no part of. */
function heldBytes({ usage = 0, stats = {} }: MemoryStats): number {
  // The second version of cgroups has the plain names; the first counts what lies beneath under the longer ones.
  const active = stats.total_active_file ?? stats.active_file ?? 0;
  const inactive = stats.total_inactive_file ?? stats.inactive_file ?? 0;
  return usage - active - inactive;
}

interface MemoryStats {
  readonly usage?: number;
  readonly stats?: {
    readonly total_active_file?: number;
    readonly total_inactive_file?: number;
    readonly active_file?: number;
    readonly inactive_file?: number;
  };
}

/** @throws {MoorageError} CONTAINER_MISSING, DOCKER_* */
export function inspectContainer(
  client: DockerClient,
  id: string,
  timeoutMs: number = limits.dockerRequestTimeoutMs,
): Promise<Dockerode.ContainerInspectInfo> {
  return client.call(
    `inspect container "${id}"`,
    (docker, abortSignal) => docker.getContainer(id).inspect({ abortSignal }),
    { timeoutMs, container: id },
  );
}

/**
 * Removes a container, running or paused, with its anonymous volumes. One that is gone is fine; one that someone
 * else is removing is waited for.
 *
 * @throws {MoorageError} CLEANUP_FAILED naming what is left
 */
export async function removeContainer(client: DockerClient, id: string): Promise<void> {
  const deadline = performance.now() + limits.dockerRequestTimeoutMs;
  for (let waitMs = 20; ; waitMs = Math.min(500, waitMs * 2)) {
    try {
      await client.call(
        `remove container "${id}"`,
        (docker, abortSignal) => docker.getContainer(id).remove({ force: true, v: true, abortSignal }),
        { container: id },
      );
      return;
    } catch (error) {
      if (isMoorageError(error, "CONTAINER_MISSING") && !/not running/.test(error.message)) return;
      if (performance.now() > deadline || isMoorageError(error, "DOCKER_UNREACHABLE")) {
        throw cleanupFailed(id, error);
      }
      await unpause(client, id);
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }
}

/** Some engines refuse to kill what is paused. */
async function unpause(client: DockerClient, id: string): Promise<void> {
  try {
    await client.call(`unpause container "${id}"`, (docker, abortSignal) =>
      docker.getContainer(id).unpause({ abortSignal }),
    );
  } catch {
    // It was not paused, or is gone: the removal that follows tells.
  }
}

function cleanupFailed(id: string, error: unknown): MoorageError {
  const text = error instanceof Error ? error.message : String(error);
  return new MoorageError("CLEANUP_FAILED", `Container "${id}" may be left behind: ${text}`, {
    details: { container: id },
    cause: error,
  });
}
