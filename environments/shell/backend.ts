/**
 * What a backend brings so that `createShellEnvironment` can make a whole environment of it. A backend is a folder
 * beside this one; it knows nothing of sessions, files or tools.
 */
import type { MoorageError } from "../../src/errors.ts";
import type {
  Capability,
  EgressPolicy,
  EgressReport,
  EnvironmentProgress,
  Health,
  Isolation,
} from "../base.ts";
import type { ShellStream, StreamEnd, StreamRequest } from "./stream.ts";
import type { KnownShells } from "./worker.ts";

/** What happened when a backend was asked to come back after a loss. */
export interface Recovery {
  /** One sentence for the caller, saying what state was lost. */
  readonly note: string;
}

/** What every backend brings, however it starts programs. */
export interface PlaceBackend {
  readonly name: string;
  readonly isolation: Isolation;
  readonly capabilities: ReadonlySet<Capability>;
  /** For people: an image, `user@host`. */
  readonly description: string;
  /** Absolute, inside the environment. Final after `start`. */
  readonly workspace: string;
  readonly exposedHostPaths: readonly string[];
  /** The host's folder that the workspace is. @default none */
  readonly sharedFolder?: string | null;
  /** Defences that the place lacks, for people. @default none */
  readonly warnings?: readonly string[];
  /**
   * Whether `stop` without `keep` takes everything inside with it, so that nothing need be ended first.
   * @default false
   */
  readonly disposable?: boolean;
  /**
   * PATH and other variables come from a login shell, taken once; false where the backend's own are final.
   * @default true
   */
  readonly readsLogin?: boolean;

  /** Brings the place up. Called once at a time; again after `stop` or a failure. */
  start(onProgress: (progress: EnvironmentProgress) => void): Promise<void>;
  /** Removes the place, or leaves it when `keep`. All streams are closed before. Works when never started. */
  stop(options: { readonly keep: boolean }): Promise<void>;
  health(): Promise<Health>;
  /**
   * Asked when a stream could not be opened or was lost. Brings the place back if it is gone and may be made
   * again; null when nothing was done. A command that had begun is never run again; one that had not is, once.
   */
  recover(error: MoorageError): Promise<Recovery | null>;
  /** Says more about an exit code that the backend caused, such as 137 by a memory limit; null when it did not. */
  explainExit?(exitCode: number, startedAt: number): Promise<string | null>;
  /**
   * Absolute paths that only hold the place of what is not there, such as mount points of what is protected. Trees leave
   * them out as long as nothing else is in them. @default none
   */
  placeholders?(): Promise<readonly string[]>;
  /** Absolute paths that nothing inside can change, or make anything in: so that a refusal says why. @default none */
  protectedPaths?(): readonly string[];
  /** Changes the egress policy of a living place. Missing where none can change. @see BaseEnvironment.setEgress */
  setEgress?(policy: EgressPolicy): void | Promise<void>;
  /** What its egress policy decided so far; null where there is none. */
  egressReport?(): EgressReport | null;
  /** What a policy refused since `startedAt` (performance.now), for the notes of a command's result. */
  refusalsSince?(startedAt: number): readonly string[];
}

/** A backend that holds streams open to programs inside. */
export interface ShellBackend extends PlaceBackend {
  /** Starts a program. @throws {MoorageError} the backend's own code when it provably did not start */
  openStream(request: StreamRequest): Promise<ShellStream>;
  /** @default nothing is known */
  readonly knownShells?: KnownShells;
  /**
   * What the login shell printed of its variables (`export -p`), where the place asks it beside the first shell;
   * elsewhere the first shell asks it. Called once the place is up.
   *
   * @throws {MoorageError} when they could not be read, which keeps nothing from running
   */
  readLogin?(): Promise<string>;
}

/** A backend that can only run a program to its end, such as one behind an HTTP API. */
export interface ScriptBackend extends PlaceBackend {
  /** Runs one program, never twice. Never rejects: `lost` tells what went wrong, as in a stream's end. */
  runScript(request: ScriptRequest): Promise<StreamEnd>;
}

export interface ScriptRequest {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Written before, mode 0600, at absolute paths; the program removes them. */
  readonly files: readonly { readonly path: string; readonly bytes: Uint8Array }[];
  /** A promise holds the output back. */
  readonly onData: (stream: "stdout" | "stderr", chunk: Buffer) => void | Promise<void>;
  /** Nobody waits for the end any more: the connection may be given up. Ends nothing inside. */
  readonly abortSignal?: AbortSignal;
}
