/**
 * What happens to one container, as the engine tells it: pauses, ends of programs, kills for want of memory, its
 * own end. One connection per container; when it breaks it is made again and the present state is asked for.
 */
import type { Readable } from "node:stream";
import { isMoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { DockerClient } from "./client.ts";

export type ContainerLoss = "removed" | "stopped";

export interface WatchListener {
  execEnded?(exitCode: number): void;
  paused?(): void;
  unpaused?(): void;
  gone?(loss: ContainerLoss): void;
}

const ACTIONS = ["exec_die", "pause", "unpause", "die", "destroy", "oom", "start"];
const RECONNECT_MIN_MS = 100;
const RECONNECT_MAX_MS = 5_000;

interface EngineEvent {
  readonly Action?: string;
  readonly timeNano?: number;
  readonly Actor?: { readonly Attributes?: Readonly<Record<string, string>> };
}

export class ContainerWatch {
  readonly #client: DockerClient;
  readonly #id: string;
  readonly #listeners = new Map<WatchListener, string>();
  readonly #outOfMemoryAt: number[] = [];
  #paused = false;
  #loss: ContainerLoss | null = null;
  #lostAt: number | null = null;
  #stream: Readable | null = null;
  #closed = false;
  #attempts = 0;

  constructor(client: DockerClient, containerId: string) {
    this.#client = client;
    this.#id = containerId;
  }

  get paused(): boolean {
    return this.#paused;
  }

  /** Set once its programs are known to be gone; a restarted container needs a new watch. */
  get loss(): ContainerLoss | null {
    return this.#loss;
  }

  /** When its programs were gone at the latest, as performance.now counts; null when they are not or it is not known. */
  get lostAt(): number | null {
    return this.#lostAt;
  }

  /** Connects, then learns the present state. Failures are not thrown: the watch goes on trying. */
  async open(): Promise<void> {
    try {
      const stream = await this.#client.call(`watch container "${this.#id}"`, (docker, abortSignal) =>
        docker.getEvents({ filters: { container: [this.#id], event: ACTIONS }, abortSignal }),
      );
      // The engine's answer is an IncomingMessage, which the library types as the bare interface.
      this.#follow(stream as Readable);
      await this.#reconcile();
    } catch {
      // An engine that cannot be reached is told by every call that needs it; here it only means to try again.
      this.#reconnect();
    }
  }

  /** Whether events come through at the moment. */
  get connected(): boolean {
    return this.#stream !== null && !this.#stream.destroyed;
  }

  /** @param execId the program whose end is told; without one only the container's own events are */
  listen(listener: WatchListener, execId = ""): () => void {
    this.#listeners.set(listener, execId);
    return () => this.#listeners.delete(listener);
  }

  /** Whether the kernel killed something in it for want of memory since `atMs` (performance.now). */
  outOfMemorySince(atMs: number): boolean {
    return this.#outOfMemoryAt.some((at) => at >= atMs);
  }

  close(): void {
    this.#closed = true;
    this.#stream?.destroy();
    this.#listeners.clear();
  }

  #follow(stream: Readable): void {
    if (this.#closed) {
      stream.destroy();
      return;
    }
    this.#stream = stream;
    // The watch alone is no reason for the process to stay.
    if ("socket" in stream && stream.socket instanceof Object && "unref" in stream.socket) {
      (stream.socket as { unref(): void }).unref(); // checked on the line above
    }
    let rest = "";
    stream.on("data", (chunk: Buffer) => {
      const lines = (rest + chunk.toString("utf8")).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line.trim()) this.#take(line);
    });
    stream.on("error", () => {}); // "close" follows and is what counts
    stream.on("close", () => this.#reconnect());
  }

  #take(line: string): void {
    let event: EngineEvent;
    try {
      event = JSON.parse(line);
    } catch {
      // Only whole lines come here; one that is no JSON tells nothing.
      return;
    }
    const attributes = event.Actor?.Attributes ?? {};
    const at = this.localTime((event.timeNano ?? 0) / 1e6);
    switch (event.Action) {
      case "exec_die":
        for (const [listener, execId] of [...this.#listeners]) {
          if (execId === attributes.execID) listener.execEnded?.(Number(attributes.exitCode ?? Number.NaN));
        }
        break;
      case "pause":
        this.#setPaused(true);
        break;
      case "unpause":
        this.#setPaused(false);
        break;
      case "oom":
        this.#outOfMemoryAt.push(at);
        if (this.#outOfMemoryAt.length > 100) this.#outOfMemoryAt.shift();
        break;
      case "die":
        this.#lose("stopped", at);
        break;
      case "destroy":
        this.#lose("removed", at);
        break;
    }
  }

  /**
   * When it happened, as performance.now counts. Only an engine on this machine has our clock; of others the arrival
   * counts.
   */
  localTime(engineTimeMs: number): number {
    const age = this.#client.endpoint.local && engineTimeMs > 0 ? Date.now() - engineTimeMs : 0;
    return performance.now() - Math.max(0, age);
  }

  #setPaused(paused: boolean): void {
    if (this.#paused === paused) return;
    this.#paused = paused;
    for (const listener of [...this.#listeners.keys()]) paused ? listener.paused?.() : listener.unpaused?.();
  }

  #lose(loss: ContainerLoss, at: number | null = null): void {
    if (this.#loss === "removed" || this.#loss === loss) return;
    this.#loss = loss;
    this.#lostAt ??= at;
    for (const listener of [...this.#listeners.keys()]) listener.gone?.(loss);
  }

  async #reconcile(): Promise<void> {
    try {
      const { State } = await this.#client.call(
        `inspect container "${this.#id}"`,
        (docker, abortSignal) => docker.getContainer(this.#id).inspect({ abortSignal }),
        { timeoutMs: limits.dockerRequestTimeoutMs },
      );
      if (!State.Running) return this.#lose("stopped");
      this.#setPaused(State.Paused);
      this.#attempts = 0;
    } catch (error) {
      if (!isMoorageError(error, "CONTAINER_MISSING")) throw error;
      this.#lose("removed");
    }
  }

  #reconnect(): void {
    this.#stream = null;
    if (this.#closed || this.#loss) return;
    const delayMs = Math.min(RECONNECT_MAX_MS, RECONNECT_MIN_MS * 2 ** this.#attempts);
    this.#attempts += 1;
    setTimeout(() => {
      if (!this.#closed) void this.open();
    }, delayMs).unref();
  }
}
