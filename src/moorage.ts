/**
 * The composition root: joins environments, tools and the pipeline into one object. The only file that knows them
 * all.
 */
import type { BaseEnvironment, Health } from "../environments/base.ts";
import type { CallOptions, CallResult, ToolCall } from "./call.ts";
import type { EventListener } from "./events.ts";
import type { ListedTools, ToolFormats, ToolListing } from "./listing.ts";
import type { Middleware } from "./middleware.ts";
import type { ToolRegistry } from "./registry.ts";

export interface MoorageOptions {
  /** A specification such as `docker:node:24`, an environment, or several by name. The first one is the default. */
  readonly environments: string | BaseEnvironment | Readonly<Record<string, string | BaseEnvironment>>;
  /** Folder of the host that the agent works on: run in, or mounted. @default what the backend has */
  readonly workspace?: string;
  /** Toolsets that are on. @default all */
  readonly toolsets?: readonly string[];
  /** Toolsets that are off; wins over `toolsets`. */
  readonly disabledToolsets?: readonly string[];
  /** Folders with tool modules of your own. */
  readonly toolFolders?: readonly string[];
  /** Path of a `moorage.yaml` with named environments and defaults. Never read unless named. */
  readonly config?: string;
  /** Folder for records of our own, mode 0700. @default $MOORAGE_HOME or the XDG state folder */
  readonly stateDir?: string;
  /** Host variables by name and value that reach every environment; nothing else of the host's does. */
  readonly env?: Readonly<Record<string, string>>;
  /** `stop` leaves environments and their background processes for the next one of the same name. @default false */
  readonly keep?: boolean;
  /** Functions around every call, outermost first. */
  readonly middleware?: readonly Middleware[];
  readonly onEvent?: EventListener;
  /** Tools to use instead of the built-in ones and those of `toolFolders`. */
  readonly registry?: ToolRegistry;
  /** Milliseconds from an arbitrary start, never going back. @default performance.now */
  readonly now?: () => number;
}

export interface Moorage extends AsyncDisposable {
  /** Names of the environments; the first one is the default. */
  readonly environments: readonly string[];
  /** What a model sees now. From cache in microseconds; never waits longer than `limits.probeTimeoutMs`. */
  tools(): Promise<ToolListing>;
  /** The visible tools in the form of a provider. */
  tools<Format extends keyof ToolFormats>(format: Format): Promise<ListedTools<Format>>;
  /** Runs one call through the whole pipeline. Never rejects for what a model or an environment did. */
  call(call: ToolCall, options?: CallOptions): Promise<CallResult>;
  /** Runs calls in order; results come in call order. After an abort the rest answer `ABORTED`. */
  batch(calls: readonly ToolCall[], options?: CallOptions): Promise<readonly CallResult[]>;
  /** @throws {MoorageError} INVALID_ARGUMENTS when there is none of that name */
  environment(name?: string): BaseEnvironment;
  /** Asks every environment now, side by side. */
  health(): Promise<Readonly<Record<string, Health>>>;
  /** @returns a function that takes the listener off */
  onEvent(listener: EventListener): () => void;
  /** Aborts calls, closes sessions, stops the environments that a specification made. Idempotent. */
  stop(): Promise<void>;
}
