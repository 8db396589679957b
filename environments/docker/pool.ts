/**
 * Started containers kept ready. One is handed out at once, with streams opened ahead, and its place is filled in the
 * background. Their labels name this process as owner, so they go at `stop` or with it.
 */
import { limits } from "../../src/limits.ts";
import { DockerClient } from "./client.ts";
import type { DockerContainer } from "./container.ts";
import { createContainer } from "./create.ts";
import { newSessionToken } from "./labels.ts";
import { checkOptions, type DockerOptions, type DockerSettings } from "./settings.ts";

/** What was just handed out runs its first commands before the engine is busy with its successor, milliseconds. */
const REFILL_DELAY_MS = 250;

export class DockerPool implements AsyncDisposable {
  readonly settings: DockerSettings;
  readonly #client: DockerClient;
  readonly #size: number;
  readonly #ready: DockerContainer[] = [];
  readonly #discarding = new Set<Promise<void>>();
  #refillTimer: NodeJS.Timeout | undefined;
  #filling: Promise<void> | null = null;
  #stopped = false;

  /**
   * Touches nothing before `fill`.
   * @throws {MoorageError} INVALID_SPEC, UNSUPPORTED
   */
  constructor(options: DockerOptions, size: number) {
    this.settings = checkOptions({ ...options, pool: size });
    const { endpoint } = options;
    this.#client = new DockerClient(endpoint ? () => endpoint : undefined);
    this.#size = size;
  }

  /** Started containers that wait to be handed out. */
  get readyCount(): number {
    return this.#ready.length;
  }

  /**
   * Starts containers until the pool is full, and resolves when it is.
   * @throws {MoorageError} why a container could not be made; those that could stay
   */
  async fill(): Promise<void> {
    // A fill in the background may have begun before a failure was mended.
    await this.#filling?.catch(() => {});
    await this.#refill();
  }

  /** Hands out a container and begins to fill its place. Null when none is ready. */
  take(): DockerContainer | null {
    let container = this.#ready.shift();
    while (container && (container.watch.loss || container.watch.paused)) {
      this.#discard(container);
      container = this.#ready.shift();
    }
    clearTimeout(this.#refillTimer);
    this.#refillTimer = setTimeout(() => {
      // Whether a place can be filled shows at the next hand-out, which then makes a container of its own and tells.
      this.#refill().catch(() => {});
    }, REFILL_DELAY_MS);
    this.#refillTimer.unref();
    return container ?? null;
  }

  /** Removes what waits. @throws {MoorageError} CLEANUP_FAILED */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#refillTimer);
    await this.#filling?.catch(() => {}); // as above
    const waiting = this.#ready.splice(0).map((container) => container.remove());
    const results = await Promise.allSettled([...waiting, ...this.#discarding]);
    const failed = results.find((result) => result.status === "rejected");
    if (failed) throw failed.reason;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #refill(): Promise<void> {
    this.#filling ??= this.#makeAll().finally(() => {
      this.#filling = null;
    });
    return this.#filling;
  }

  /** One at a time: side by side the engine is no faster, and a caller's own container comes first. */
  async #makeAll(): Promise<void> {
    while (!this.#stopped && this.#ready.length < this.#size) {
      const identity = { environment: "pool", session: newSessionToken() };
      const container = await createContainer(this.#client, this.settings, identity, () => {});
      try {
        await container.warmUp(limits.dockerWarmStreams);
      } catch (error) {
        await container.remove();
        throw error;
      }
      this.#ready.push(container);
    }
  }

  #discard(container: DockerContainer): void {
    const work = container.remove();
    this.#discarding.add(work);
    work.then(
      () => this.#discarding.delete(work),
      () => {}, // stays in the set, so that `stop` tells
    );
  }
}
