/** Keeps the door of a container open: one that is closed from outside is opened again, and results tell of it. */
import { isMoorageError, toMoorageError } from "../../src/errors.ts";
import type { DockerClient } from "./client.ts";
import type { Door } from "./door.ts";
import { ContainerWatch } from "./watch.ts";

const RETRY_MIN_MS = 100;
const RETRY_MAX_MS = 5_000;
/** Losses that are remembered for results. */
const LOSSES_MAX = 20;

interface Loss {
  /** performance.now() */
  readonly from: number;
  /** Infinity while the door is closed. */
  to: number;
  /** Why it could not be opened again yet. */
  reason: string | null;
}

export class DoorKeeper {
  readonly #client: DockerClient;
  readonly #open: () => Promise<Door>;
  readonly #losses: Loss[] = [];
  #door: Door | null = null;
  #watch: ContainerWatch | null = null;
  #healing: Promise<void> = Promise.resolve();
  #closing: (() => void) | null = null;
  #closed = false;

  private constructor(client: DockerClient, open: () => Promise<Door>) {
    this.#client = client;
    this.#open = open;
  }

  /** @param open opens the door, and can be called again once its container is gone @throws what `open` throws */
  static async open(client: DockerClient, open: () => Promise<Door>): Promise<DoorKeeper> {
    const keeper = new DoorKeeper(client, open);
    await keeper.#hold();
    return keeper;
  }

  /** What commands that ran since then could not do. */
  notesSince(startedAt: number): readonly string[] {
    const loss = this.#losses.findLast(({ to }) => to >= startedAt);
    if (!loss) return [];
    const closed = "The way to the egress proxy was closed from outside: nothing was reachable";
    if (loss.to !== Infinity) return [`${closed} until it was opened again`];
    return [loss.reason === null ? `${closed}; it is being opened again` : `${closed}; ${loss.reason}`];
  }

  /** Idempotent. @throws {MoorageError} CLEANUP_FAILED */
  async close(): Promise<void> {
    this.#closed = true;
    this.#closing?.();
    this.#watch?.close();
    await this.#healing;
    await this.#door?.close();
  }

  async #hold(): Promise<void> {
    const door = await this.#open();
    this.#door = door;
    if (this.#closed) return;
    const watch = new ContainerWatch(this.#client, door.containerId);
    this.#watch = watch;
    watch.listen({
      gone: () => {
        // A container that is first stopped and then removed is lost once.
        if (this.#watch !== watch || this.#closed) return;
        watch.close();
        this.#watch = null;
        this.#healing = this.#heal(door);
      },
    });
    await watch.open();
  }

  async #heal(lost: Door): Promise<void> {
    const loss: Loss = { from: performance.now(), to: Infinity, reason: null };
    this.#losses.push(loss);
    if (this.#losses.length > LOSSES_MAX) this.#losses.shift();
    for (let delayMs = RETRY_MIN_MS; !this.#closed; delayMs = Math.min(delayMs * 2, RETRY_MAX_MS)) {
      try {
        await lost.close();
        await this.#hold();
        loss.to = performance.now();
        return;
      } catch (error) {
        loss.reason = toMoorageError(error).message;
        // Without its container there is nothing to open; a new one gets a door of its own.
        if (isMoorageError(error, "CONTAINER_MISSING")) return;
      }
      await this.#pause(delayMs);
    }
  }

  async #pause(ms: number): Promise<void> {
    if (this.#closed) return;
    await new Promise<void>((resolve) => {
      this.#closing = resolve;
      setTimeout(resolve, ms).unref();
    });
  }
}
