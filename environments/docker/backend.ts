/** The life of a Docker environment: which container it has, how it gets one, loses it and gets another. */
import { isMoorageError, MoorageError, toMoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type {
  Capability,
  EgressCredential,
  EgressPolicy,
  EgressReport,
  EnvironmentProgress,
  Health,
} from "../base.ts";
import { EgressGate, reportOf, requireChangeable } from "../egress/gate.ts";
import type { Recovery, ShellBackend } from "../shell/backend.ts";
import type { ShellStream, StreamRequest } from "../shell/stream.ts";
import { attachContainer, endOurProcesses } from "./attach.ts";
import { DockerClient } from "./client.ts";
import type { DockerContainer, Exhausted } from "./container.ts";
import { createContainer, DEFAULT_WORKSPACE } from "./create.ts";
import { openDoor, requireLocal } from "./door.ts";
import { DoorKeeper } from "./door-keeper.ts";
import { probe } from "./health.ts";
import { findKept, revive, works } from "./keep.ts";
import { newSessionToken } from "./labels.ts";
import { OutOfMemory } from "./memory.ts";
import { DockerPool } from "./pool.ts";
import { reapWith } from "./reap.ts";
import { checkOptions, type DockerOptions, type DockerSettings } from "./settings.ts";

/** What happened to a container that was started again with the same files. */
const EXHAUSTED: Readonly<Record<Exhausted, string>> = {
  processes: "had no room for another process and was started anew; its running processes are lost",
  memory:
    "reached its memory limit and was started anew; its running processes and files in memory, as in /dev/shm, are lost",
};
const LOST = "its running processes, variables and files outside a mounted workspace are lost";

export class DockerBackend implements ShellBackend {
  readonly name = "docker";
  readonly isolation = "container";
  readonly capabilities: ReadonlySet<Capability>;
  readonly description: string;
  /** An image's own PATH is final; a login shell would replace it by its distribution's. */
  readonly readsLogin = false;
  /** A container of our own goes with all that runs in it. */
  get disposable(): boolean {
    return this.#settings.attach === null;
  }
  readonly #settings: DockerSettings;
  readonly #client: DockerClient;
  readonly #environment: string;
  readonly #session = newSessionToken();
  readonly #pool: DockerPool | null;
  /** Whether the pool lives and ends with this environment. */
  readonly #ownsPool: boolean;
  readonly #credentials: readonly EgressCredential[];
  /** Folder for the record of a gate; none without. */
  readonly #stateDir: string | null;
  /** The policy it was made with, or was given since. */
  #egress: EgressPolicy;
  #container: DockerContainer | null = null;
  /** The proxy of an allow-list, and the container's way to it. */
  #gate: EgressGate | null = null;
  #gateFolder = "";
  #door: DoorKeeper | null = null;
  /** The last container that a recovery made. */
  #remade: DockerContainer | null = null;
  #memory: OutOfMemory | null = null;
  #sweep: Promise<void> | null = null;
  #sweepTimer: NodeJS.Timeout | undefined;
  #recovering: Promise<Recovery | null> | null = null;
  #lastRecovery: Recovery | null = null;
  #stopped = true;

  /** @throws {MoorageError} INVALID_SPEC, UNSUPPORTED */
  constructor(options: DockerOptions, stateDir: string | null = null) {
    this.#settings = checkOptions(options);
    this.#egress = this.#settings.egress;
    this.#stateDir = stateDir;
    const { endpoint, pool } = options;
    this.#client = new DockerClient(endpoint ? () => endpoint : undefined);
    this.#environment = this.#settings.id ?? newSessionToken();
    this.#ownsPool = typeof pool === "number" && pool > 0;
    this.#pool = this.#ownsPool
      ? new DockerPool(options, Number(pool))
      : pool instanceof DockerPool
        ? pool
        : null;
    if (this.#pool && !sameContainers(this.#pool.settings, this.#settings)) {
      throw new MoorageError("INVALID_SPEC", "Cannot use this pool: its containers have other options");
    }
    const { image, attach, keep } = this.#settings;
    this.description = image ?? `container ${attach}`;
    this.#credentials = options.credentials ?? [];
    this.capabilities = new Set<Capability>([
      ...(keep || attach !== null ? (["reattach"] as const) : []),
      ...(attach === null ? (["egress:none", "egress:allow-list"] as const) : []),
    ]);
  }

  get workspace(): string {
    const fallback = this.#settings.workspace ?? DEFAULT_WORKSPACE;
    return this.#container?.facts.workspace ?? fallback;
  }

  get exposedHostPaths(): readonly string[] {
    const { mount } = this.#settings;
    return this.#container?.facts.hostPaths ?? (mount === null ? [] : [mount]);
  }

  get sharedFolder(): string | null {
    return this.#container?.facts.sharedFolder ?? null;
  }

  get warnings(): readonly string[] {
    return this.#container?.warnings ?? [];
  }

  /** Id of the container at the moment; null when there is none. */
  get containerId(): string | null {
    return this.#container?.facts.id ?? null;
  }

  async start(onProgress: (progress: EnvironmentProgress) => void): Promise<void> {
    if (this.#container) return;
    this.#stopped = false;
    const { egress } = this.#settings;
    if (typeof egress !== "string") {
      requireLocal(this.#client);
      if (!this.#gate) {
        const stateDir = this.#stateDir;
        this.#gate = await EgressGate.open({
          policy: this.#egress,
          credentials: this.#credentials,
          ...(stateDir !== null && { record: { stateDir, id: this.#environment } }),
        });
        this.#gateFolder = await this.#gate.openSocket();
      }
    }
    try {
      await this.#use(await this.#obtain(onProgress));
    } catch (error) {
      await this.#closeGate();
      throw error;
    } finally {
      if (this.#settings.attach === null) this.#sweepLater();
    }
  }

  egressReport(): EgressReport | null {
    return reportOf(this.#egress, this.#gate);
  }

  setEgress(policy: EgressPolicy): void {
    requireChangeable(this.#settings.egress, policy);
    this.#gate?.setPolicy(policy);
    this.#egress = policy;
  }

  refusalsSince(startedAt: number): readonly string[] {
    return [...(this.#door?.notesSince(startedAt) ?? []), ...(this.#gate?.refusalsSince(startedAt) ?? [])];
  }

  async stop(options: { readonly keep: boolean }): Promise<void> {
    this.#stopped = true;
    await this.#recovering?.catch(() => {}); // its own callers are told
    const container = this.#container;
    this.#container = null;
    const work = [
      this.#sweepTimer && this.#sweepOrphans(),
      this.#ownsPool ? this.#pool?.stop() : undefined,
      this.#release(container, options.keep),
      this.#closeGate(),
    ];
    const failed = (await Promise.allSettled(work)).find((result) => result.status === "rejected");
    if (failed) throw failed.reason;
  }

  async openStream(request: StreamRequest): Promise<ShellStream> {
    const container = this.#container;
    if (!container) {
      throw new MoorageError(
        "ENVIRONMENT_STOPPED",
        `Cannot start a program: ${this.description} is not started`,
      );
    }
    return await container.openStream(request);
  }

  health(): Promise<Health> {
    return probe(this.#client, this.#settings, this.#container);
  }

  /** Side by side callers share one recovery; one that speaks of an earlier container gets the note of its loss. */
  recover(error: MoorageError): Promise<Recovery | null> {
    this.#recovering ??= this.#recover(error).finally(() => {
      this.#recovering = null;
    });
    return this.#recovering;
  }

  async explainExit(exitCode: number, startedAt: number): Promise<string | null> {
    return (await this.#memory?.explain(exitCode, startedAt)) ?? null;
  }

  async #obtain(onProgress: (progress: EnvironmentProgress) => void): Promise<DockerContainer> {
    const settings = this.#settings;
    if (settings.attach !== null) return await attachContainer(this.#client, settings, this.#session);
    if (settings.keep) {
      const kept = await findKept(this.#client, settings, this.#environment);
      if (kept) return kept;
    }
    const warm = this.#pool?.take();
    if (warm) return warm;
    const identity = { environment: this.#environment, session: this.#session };
    onProgress({ message: `Starting a container from ${settings.image}` });
    return await createContainer(this.#client, settings, identity, onProgress);
  }

  /** @param startedAnewAt of one that had no memory left */
  async #use(container: DockerContainer, startedAnewAt?: number): Promise<void> {
    if (this.#gate) {
      const old = this.#door;
      this.#door = null;
      await old?.close();
      const identity = { environment: this.#environment, session: this.#session };
      try {
        this.#door = await DoorKeeper.open(this.#client, () =>
          openDoor(this.#client, container, this.#gateFolder, identity),
        );
      } catch (error) {
        await this.#release(container, this.#settings.keep);
        throw error;
      }
    }
    this.#container = container;
    this.#memory = new OutOfMemory(
      container,
      this.#settings.attach === null ? this.#settings.memoryBytes : 0,
      startedAnewAt,
    );
  }

  async #release(container: DockerContainer | null, keep: boolean): Promise<void> {
    if (!container) return;
    if (!container.facts.owned) {
      try {
        if (!container.watch.loss) await endOurProcesses(container, this.#session);
      } catch (error) {
        // With the container our processes went too; one that is paused keeps them, and that is told.
        if (!isMoorageError(error, "CONTAINER_MISSING") && !isMoorageError(error, "ENVIRONMENT_LOST"))
          throw error;
      } finally {
        await container.detach();
      }
    } else if (keep) {
      await container.detach();
    } else {
      await container.remove();
    }
  }

  async #closeGate(): Promise<void> {
    const [door, gate] = [this.#door, this.#gate];
    this.#door = null;
    this.#gate = null;
    await gate?.close();
    await door?.close();
  }

  /** In the background, and after the first commands had the engine for themselves; `stop` waits for it. */
  #sweepLater(): void {
    this.#sweepTimer ??= setTimeout(() => this.#sweepOrphans(), SWEEP_DELAY_MS);
    this.#sweepTimer.unref();
  }

  #sweepOrphans(): Promise<void> {
    clearTimeout(this.#sweepTimer);
    // What cannot be removed now is removed by a later start or `moor reap`; it is no reason to fail this one.
    this.#sweep ??= reapWith(this.#client).then(
      () => {},
      () => {},
    );
    return this.#sweep;
  }

  async #recover(error: MoorageError): Promise<Recovery | null> {
    const container = this.#container;
    if (!container || this.#stopped) return null;
    if (/^(DOCKER_|CONTAINER_PAUSED|SHELL_MISSING|ABORTED)/.test(error.code)) return null;
    const subject = error.details.container;
    if (typeof subject === "string" && subject !== container.facts.id) return this.#lastRecovery;
    const recovery = await this.#replace(container, await stateOf(container));
    if (recovery) this.#lastRecovery = recovery;
    return recovery;
  }

  async #replace(old: DockerContainer, state: ContainerState): Promise<Recovery | null> {
    if (state === "paused") return null;
    const { name, owned, id } = old.facts;
    if (state === "works") {
      if (!old.watch.loss) return null;
      // It was stopped and started: the same files, but a new life that needs a new watch.
      const again = owned
        ? await revive(this.#client, this.#settings, id, false)
        : await attachContainer(this.#client, this.#settings, this.#session);
      if (!again) return null;
      await old.detach();
      await this.#use(again);
      return { note: `Container "${name}" was restarted from outside; its running processes are lost` };
    }
    if (!owned) return await this.#rejoin(old);
    // What recovery made and never worked would not work the next time either.
    if (old === this.#remade && !old.proven) return null;
    if (this.#settings.keep && state === "stopped") {
      const again = await revive(this.#client, this.#settings, id, true);
      if (again) {
        await old.detach();
        await this.#use(again);
        return {
          note: `Container "${name}" was stopped from outside and started again; its running processes are lost`,
        };
      }
    }
    if (state === "processes" || state === "memory") {
      const again = await this.#startAgain(old);
      if (again) {
        await this.#use(again, state === "memory" ? performance.now() : undefined);
        return { note: `Container "${name}" ${EXHAUSTED[state]}` };
      }
    }
    const left = await old.remove().then(
      () => "",
      (error: unknown) => `; ${toMoorageError(error).message}`,
    );
    this.#remade = await this.#obtain(() => {});
    await this.#use(this.#remade);
    return { note: `Container "${name}" was ${state} from outside and a new one was made; ${LOST}${left}` };
  }

  /** With the same files; null when it does not come up. */
  async #startAgain(old: DockerContainer): Promise<DockerContainer | null> {
    const { name, id } = old.facts;
    await old.detach();
    try {
      const { State } = await old.inspect();
      if (State.Running) {
        await this.#client.call(
          `stop container "${name}"`,
          (docker, abortSignal) => docker.getContainer(id).stop({ t: 0, abortSignal }),
          { container: id },
        );
      }
    } catch (error) {
      // What cannot be stopped is removed, which is told when that fails too.
      if (!isMoorageError(error)) throw error;
      return null;
    }
    return await revive(this.#client, this.#settings, id, true);
  }

  /** Its owner may have made another of that name. */
  async #rejoin(old: DockerContainer): Promise<Recovery | null> {
    try {
      const again = await attachContainer(this.#client, this.#settings, this.#session);
      await old.detach();
      await this.#use(again);
      const { name, id } = old.facts;
      const note =
        again.facts.id === id
          ? `Container "${name}" could start no program for a while, as without memory; commands that ran may be lost`
          : `Container "${name}" was replaced by its owner; what ran in the old one is lost`;
      return { note };
    } catch (error) {
      // The caller's own error says already that it is gone.
      if (isMoorageError(error, "CONTAINER_MISSING")) return null;
      throw error;
    }
  }
}

/** How long others' remains wait after a start, milliseconds. */
const SWEEP_DELAY_MS = 1_000;

/** `processes` and `memory`: that limit is reached, as after a fork bomb or by files in memory. */
type ContainerState = "works" | "paused" | "stopped" | "removed" | "broken" | Exhausted;

/** A kill for want of memory this long ago still speaks of the present, milliseconds. */
const RECENT_MS = 60_000;

async function stateOf(container: DockerContainer): Promise<ContainerState> {
  try {
    const { State } = await container.inspect(limits.dockerRequestTimeoutMs);
    if (State.Paused) return "paused";
    const killed = container.watch.outOfMemorySince(performance.now() - RECENT_MS);
    if (!State.Running) return State.ExitCode === 137 && killed ? "memory" : "stopped";
    // Asked of the engine: that a shell could be started this once would prove nothing.
    const exhausted = container.facts.owned ? await container.exhausted() : null;
    if (exhausted === "processes" || (exhausted && killed)) return exhausted;
    if (await works(container)) return "works";
    return exhausted ?? "broken";
  } catch (error) {
    if (isMoorageError(error, "CONTAINER_MISSING")) return "removed";
    if (isMoorageError(error, "CONTAINER_PAUSED")) return "paused";
    throw error;
  }
}

/** Whether a pool's containers are what these settings would make; names and variables come later. */
function sameContainers(pool: DockerSettings, own: DockerSettings): boolean {
  const key = (settings: DockerSettings) => JSON.stringify({ ...settings, id: null });
  return key(pool) === key(own);
}
