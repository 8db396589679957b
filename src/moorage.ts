/**
 * The composition root: joins environments, tools and the pipeline into one object. The only file that knows them
 * all; `places.ts` makes the environments for it.
 */
import { randomUUID } from "node:crypto";
import { realpath } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { BaseEnvironment, Health } from "../environments/base.ts";
import type { SyncMemory, SyncOptions, SyncReport } from "../environments/sync/mirror.ts";
import type { FolderWatch, WatchOptions } from "../environments/sync/watch.ts";
import { AvailabilityCache, type AvailabilityChange } from "./availability.ts";
import type { CallOptions, CallResult, ToolCall } from "./call.ts";
import { type CheckpointSettings, Checkpoints } from "./checkpoints/checkpoints.ts";
import { checkpointMiddleware } from "./checkpoints/middleware.ts";
import { type Clock, systemClock } from "./clock.ts";
import { type Config, readConfig } from "./config.ts";
import { loadTools } from "./discovery.ts";
import { ERRORS, MoorageError } from "./errors.ts";
import { EventHub, type EventListener } from "./events.ts";
import { limits } from "./limits.ts";
import { type ListedTools, Listings, type ToolFormats, type ToolListing } from "./listing.ts";
import type { Middleware } from "./middleware.ts";
import { serveOwnModules } from "./module-resolution.ts";
import { didYouMean } from "./nearest.ts";
import { ensureStateDir, stateDir } from "./paths.ts";
import { pickDefined } from "./pick-defined.ts";
import { Pipeline } from "./pipeline.ts";
import { makePlaces, type Place, type PlaceOptions } from "./places.ts";
import { defaultRegistry, type ToolRegistry } from "./registry.ts";
import { Sessions } from "./sessions.ts";
import { defineEnvironment, defineTools, environmentKey } from "./subjects.ts";
import { chooseToolsets } from "./toolsets.ts";

export interface MoorageOptions extends PlaceOptions {
  /** Toolsets that are on. @default all */
  readonly toolsets?: readonly string[];
  /** Toolsets that are off; wins over `toolsets`. */
  readonly disabledToolsets?: readonly string[];
  /** Folders with tool modules of your own. */
  readonly toolFolders?: readonly string[];
  /** A configuration, or the path of a `moorage.yaml`. None is read unless it is named here. */
  readonly config?: string | Config;
  /** Folder for records of our own, mode 0700. @default $MOORAGE_HOME or the XDG state folder */
  readonly stateDir?: string;
  /** Checkpoints before calls that can change files; false for none. @default what the configuration says, else on */
  readonly checkpoints?: boolean | CheckpointSettings;
  /** Functions around every call, outermost first. */
  readonly middleware?: readonly Middleware[];
  readonly onEvent?: EventListener;
  /** Tools to use instead of the built-in ones and those of `toolFolders`. */
  readonly registry?: ToolRegistry;
}

/** So that the compiler misses none. */
const OPTION_NAMES: Readonly<Record<keyof MoorageOptions, true>> = {
  environments: true,
  workspace: true,
  env: true,
  keep: true,
  clock: true,
  toolsets: true,
  disabledToolsets: true,
  toolFolders: true,
  config: true,
  stateDir: true,
  checkpoints: true,
  middleware: true,
  onEvent: true,
  registry: true,
};

export interface SyncCallOptions extends Omit<SyncOptions, "stateDir" | "memory"> {
  /** @default the first one */
  readonly environment?: string;
}

export interface WatchFolderOptions
  extends Omit<SyncCallOptions, "dryRun" | "overwrite" | "abortSignal" | "onProgress">,
    WatchOptions {}

export interface Moorage extends AsyncDisposable {
  /** Names of the environments; the first one is the default. */
  readonly environments: readonly string[];
  /** What a model sees now. From cache in microseconds; never waits longer than `limits.probeTimeoutMs`. */
  tools(): Promise<ToolListing>;
  /** The visible tools in the form of a provider. */
  tools<Format extends keyof ToolFormats>(format: Format): Promise<ListedTools<Format>>;
  /** Runs one call through the whole pipeline. Never rejects for what a model or an environment did. */
  call(call: ToolCall, options?: CallOptions): Promise<CallResult>;
  /** Runs calls in order, as one turn; results come in call order. After an abort the rest answer `ABORTED`. */
  batch(calls: readonly ToolCall[], options?: CallOptions): Promise<readonly CallResult[]>;
  /**
   * Brings an environment up before its first use; a failure shows in the listing of tools.
   *
   * @param name @default the first one
   * @throws {MoorageError} INVALID_ARGUMENTS when there is none of that name, and what the start met
   */
  start(name?: string): Promise<void>;
  /** @throws {MoorageError} INVALID_ARGUMENTS when there is none of that name */
  environment(name?: string): BaseEnvironment;
  /** Takes, lists and restores checkpoints, also when none are taken before calls. */
  readonly checkpoints: Checkpoints;
  /**
   * Mirrors a folder of the host into an environment's workspace, or back, or both. What both sides changed stays on
   * both and is reported.
   *
   * @param folder absolute, or relative to the cwd
   */
  sync(folder: string, options: SyncCallOptions): Promise<SyncReport>;
  /**
   * Mirrors a folder again and again until it is disposed, or the runtime stops. A run that fails is told and the next
   * one comes all the same.
   */
  watchFolder(folder: string, options: WatchFolderOptions): Promise<FolderWatch>;
  /** Asks every environment now, side by side. */
  health(): Promise<Readonly<Record<string, Health>>>;
  /** @returns a function that takes the listener off */
  onEvent(listener: EventListener): () => void;
  /** Closes the shell sessions of a caller that is gone. */
  forget(caller: string): Promise<void>;
  /** Aborts calls, closes sessions, stops the environments that a specification made. Idempotent. */
  stop(): Promise<void>;
}

/**
 * Makes a runtime. Environments are made and checked, but start with their first use.
 *
 * An environment that the caller made stays the caller's to stop.
 *
 * @throws {MoorageError} INVALID_SPEC, INVALID_CONFIG, UNSUPPORTED; INVALID_ARGUMENTS for an option that there is none of
 */
export async function createMoorage(options: MoorageOptions): Promise<Moorage> {
  checkNames(options);
  const config =
    typeof options.config === "string" ? await readConfig(options.config) : (options.config ?? {});
  const state = await ensureStateDir(options.stateDir ?? stateDir());
  const events = new EventHub();
  if (options.onEvent) events.listen(options.onEvent);
  const folders = [...(config.toolFolders ?? []), ...(options.toolFolders ?? [])];
  const stopServing = folders.length > 0 ? serveOwnModules(folders) : () => {};
  try {
    const registry = options.registry ?? (await loadRegistry(folders, state, events));
    const toolsets = new Set(registry.list().map(({ toolset }) => toolset));
    const choice = {
      ...pickDefined("enabled", options.toolsets ?? config.toolsets),
      ...pickDefined("disabled", options.disabledToolsets ?? config.disabledToolsets),
      ...pickDefined("includes", config.toolsetIncludes),
    };
    const isEnabled = chooseToolsets(choice, toolsets);
    const places = await makePlaces(options, config, { state, events });
    const checkpointsEach = config.checkpoints?.each ?? "call";
    return new Runtime({
      options,
      registry,
      isEnabled,
      places,
      events,
      stopServing,
      state,
      checkpointsEach,
    });
  } catch (error) {
    stopServing();
    throw error;
  }
}

interface RuntimeParts {
  readonly options: MoorageOptions;
  readonly registry: ToolRegistry;
  readonly isEnabled: (toolset: string) => boolean;
  readonly places: ReadonlyMap<string, Place>;
  readonly events: EventHub;
  /** Ends the module resolution for tool folders. */
  readonly stopServing: () => void;
  /** The state folder. */
  readonly state: string;
  /** What the configuration says of how often checkpoints are taken. */
  readonly checkpointsEach: "call" | "turn" | "never";
}

class Runtime implements Moorage {
  readonly environments: readonly string[];
  readonly checkpoints: Checkpoints;
  readonly #places: ReadonlyMap<string, Place>;
  readonly #state: string;
  readonly #events: EventHub;
  readonly #clock: Clock;
  readonly #availability: AvailabilityCache;
  readonly #listings: Listings;
  readonly #sessions = new Sessions();
  readonly #pipeline: Pipeline;
  readonly #stopping = new AbortController();
  readonly #stopListening: () => void;
  readonly #stopNoting: () => void;
  readonly #stopServing: () => void;
  readonly #watches = new Set<FolderWatch>();
  readonly #syncMemories = new WeakMap<BaseEnvironment, SyncMemory>();
  readonly #running = new Set<Promise<unknown>>();
  #watching = false;
  #stopped: Promise<void> | null = null;

  constructor({
    options,
    registry,
    isEnabled,
    places,
    events,
    stopServing,
    state,
    checkpointsEach,
  }: RuntimeParts) {
    this.#state = state;
    const settings = typeof options.checkpoints === "object" ? options.checkpoints : {};
    this.checkpoints = new Checkpoints(state, settings);
    const each = options.checkpoints === false ? "never" : (settings.each ?? checkpointsEach);
    this.#stopServing = stopServing;
    this.environments = [...places.keys()];
    this.#places = places;
    this.#events = events;
    this.#clock = options.clock ?? systemClock;
    const availability = new AvailabilityCache({ clock: this.#clock });
    this.#availability = availability;
    for (const [name, { environment, spec }] of places) {
      defineEnvironment(availability, name, environment, this.#clock);
      this.checkpoints.name(environment, { spec });
    }
    defineTools(availability, registry, process.env);
    this.#stopListening = registry.listen(() => {
      defineTools(availability, registry, process.env);
      events.emit({ type: "tools-changed" });
    });
    this.#listings = new Listings({ registry, availability, environments: this.environments, isEnabled });
    this.#pipeline = new Pipeline({
      registry,
      environments: new Map([...places].map(([name, { environment }]) => [name, environment])),
      availability,
      sessions: this.#sessions,
      isEnabled,
      // Innermost: a checkpoint is of what is about to happen, after everything else had its say.
      middleware: [
        ...(options.middleware ?? []),
        ...(each === "never" ? [] : [checkpointMiddleware(this.checkpoints, each)]),
      ],
      events,
      clock: this.#clock,
      stopSignal: this.#stopping.signal,
    });
    // What an environment did to a call is news of its availability.
    this.#stopNoting = events.listen((event) => {
      if (event.type !== "call-ended" || event.environment === null || event.error === null) return;
      // The probe tells its own faults; nobody waits for it here.
      if (ERRORS[event.error.code].kind === "fix-setup")
        void availability.recheck(environmentKey(event.environment));
    });
    if (options.onEvent) this.#watch();
  }

  tools(): Promise<ToolListing>;
  tools<Format extends keyof ToolFormats>(format: Format): Promise<ListedTools<Format>>;
  tools(format?: keyof ToolFormats): Promise<ToolListing | ListedTools<keyof ToolFormats>> {
    return format === undefined ? this.#listings.list() : this.#listings.format(format);
  }

  call(call: ToolCall, options?: CallOptions): Promise<CallResult> {
    const running = this.#pipeline.call(call, options);
    this.#running.add(running);
    return running.finally(() => this.#running.delete(running));
  }

  async batch(calls: readonly ToolCall[], options?: CallOptions): Promise<readonly CallResult[]> {
    const results: CallResult[] = [];
    const turn = options?.turn ?? randomUUID();
    for (const call of calls) results.push(await this.call(call, { ...options, turn }));
    return results;
  }

  async start(name = this.environments[0] ?? ""): Promise<void> {
    const environment = this.environment(name);
    try {
      await environment.start();
    } catch (error) {
      await this.#availability.recheck(environmentKey(name));
      throw error;
    }
  }

  environment(name = this.environments[0]): BaseEnvironment {
    const place = name === undefined ? undefined : this.#places.get(name);
    if (place) return place.environment;
    const known = this.environments;
    throw new MoorageError(
      "INVALID_ARGUMENTS",
      `There is no environment "${name ?? ""}"${didYouMean(name ?? "", known)} (there are: ${known.join(", ")})`,
    );
  }

  async sync(folder: string, { environment, ...options }: SyncCallOptions): Promise<SyncReport> {
    const { mirror, SyncMemory } = await import("../environments/sync/mirror.ts");
    const place = this.environment(environment);
    const memory = this.#syncMemories.get(place) ?? new SyncMemory();
    this.#syncMemories.set(place, memory);
    const root = resolve(folder);
    const report = await mirror(root, place, { ...options, memory, stateDir: this.#state });
    // One that went meanwhile is known by the path that it had.
    this.checkpoints.name(place, { mirrored: await realpath(root).catch(() => root) });
    return report;
  }

  async watchFolder(folder: string, options: WatchFolderOptions): Promise<FolderWatch> {
    const { intervalMs, onReport, onFailure, ...sync } = options;
    const { watchFolder } = await import("../environments/sync/watch.ts");
    const watch = watchFolder((abortSignal) => this.sync(folder, { ...sync, abortSignal }), {
      ...pickDefined("intervalMs", intervalMs),
      ...pickDefined("onReport", onReport),
      ...pickDefined("onFailure", onFailure),
    });
    this.#watches.add(watch);
    return watch;
  }

  async health(): Promise<Readonly<Record<string, Health>>> {
    const answers = [...this.#places].map(async ([name, { environment }]) => {
      return [name, await withinProbeLimit(environment.health(), this.#clock)] as const;
    });
    return Object.fromEntries(await Promise.all(answers));
  }

  onEvent(listener: EventListener): () => void {
    this.#watch();
    return this.#events.listen(listener);
  }

  async forget(caller: string): Promise<void> {
    await this.#sessions.close(caller);
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #stop(): Promise<void> {
    this.#stopListening();
    this.#stopNoting();
    this.#availability.close();
    this.#stopping.abort();
    await Promise.all(this.#running);
    this.#stopServing();
    await Promise.all([...this.#watches].map((watch) => watch[Symbol.asyncDispose]()));
    // Everything is stopped before anything is reported: one failure must not keep the others alive.
    const ours = [...this.#places.values()].filter(({ isOurs }) => isOurs);
    const outcomes = [
      ...(await Promise.allSettled([this.#sessions.close(), this.checkpoints[Symbol.asyncDispose]()])),
      ...(await Promise.allSettled(ours.map(({ environment }) => environment.stop()))),
    ];
    const failures = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason] : []));
    if (failures.length === 1) throw failures[0];
    if (failures.length > 1) {
      const texts = failures.map((failure) => (failure instanceof Error ? failure.message : String(failure)));
      throw new MoorageError("CLEANUP_FAILED", texts.join("; "), { cause: new AggregateError(failures) });
    }
  }

  /** Turns changes of availability into events. Probing in the background begins with the first listener. */
  #watch(): void {
    if (this.#watching) return;
    this.#watching = true;
    this.#availability.listen((change) => this.#announce(change));
  }

  #announce(change: AvailabilityChange): void {
    const subject = change.key;
    if (change.kind === "fault") {
      this.#events.emit({ type: "probe-failed", subject, error: change.error.report() });
      return;
    }
    if (change.kind === "lost")
      this.#events.emit({ type: "availability-lost", subject, reason: change.reason });
    else this.#events.emit({ type: "availability-restored", subject });
    this.#events.emit({ type: "tools-changed" });
  }
}

/** Folder of the built-in tools, beside this one in the sources as in the package. */
const BUILT_IN_TOOLS = fileURLToPath(new URL("../tools", import.meta.url));

/** Callers without types would miss an option that is misspelt, such as the one that says where commands run. */
function checkNames(options: MoorageOptions): void {
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(OPTION_NAMES, name));
  if (unknown === undefined) return;
  const known = Object.keys(OPTION_NAMES);
  throw new MoorageError(
    "INVALID_ARGUMENTS",
    `Unknown option "${unknown}"${didYouMean(unknown, known)} (there are: ${known.join(", ")})`,
  );
}

async function loadRegistry(
  folders: readonly string[],
  state: string,
  events: EventHub,
): Promise<ToolRegistry> {
  const { problems } = await loadTools({
    folders: [BUILT_IN_TOOLS, ...folders],
    cacheFile: join(state, "tool-discovery.json"),
  });
  for (const { path, error } of problems) {
    events.emit({ type: "tool-module-failed", path, error: error.report() });
  }
  return defaultRegistry;
}

async function withinProbeLimit(answer: Promise<Health>, clock: Clock): Promise<Health> {
  let cancel = () => {};
  const limit = new Promise<Health>((resolve) => {
    cancel = clock.after(limits.probeTimeoutMs, () =>
      resolve({
        healthy: false,
        code: "ENVIRONMENT_UNAVAILABLE",
        reason: `No answer within ${limits.probeTimeoutMs} ms`,
      }),
    );
  });
  try {
    return await Promise.race([answer, limit]);
  } finally {
    cancel();
  }
}
