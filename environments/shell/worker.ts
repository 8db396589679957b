/** Who runs calls in an environment, one at a time, and what a call is to them. */
import type { MoorageError } from "../../src/errors.ts";
import type { CallScript } from "./call-script.ts";
import type { StateDump } from "./exports.ts";
import type { WorkerFacts } from "./greeting.ts";

/** A resident shell, or a shell of its own for each call. */
export interface CallWorker {
  readonly id: string;
  readonly facts: WorkerFacts;
  readonly loginProblem: string | null;
  /** The shell that outlives a call and is never to be ended with it; null when each call has its own. */
  readonly shellPid: number | null;
  /** Start of the shell of its last call, in ticks since boot, where each call has its own; nothing of it is older. */
  readonly sinceTicks?: string | null;
  readonly alive: boolean;
  readonly ended: Promise<unknown>;
  readonly marker: string;
  /** Does ahead what the next call would wait for; to be called while nobody waits. @default there is nothing to do */
  prepare?(): void;
  /**
   * How long ago `prepare` was called for the next call, milliseconds; 0 when it is still to be.
   * @default there is nothing to do
   */
  readonly preparedForMs?: number;
  /** Never rejects for what the command or the connection does: the end tells. */
  run(request: CallRequest): Promise<CallEnd>;
  close(): Promise<void>;
}

export type CallRequest = Omit<
  CallScript,
  "shell" | "nonce" | "secret" | "reaper" | "stdinBytes" | "once" | "ready"
> & {
  readonly stdin: Uint8Array | null;
  /** Whether each piece of output is wanted when it is written, where that costs more. @default false */
  readonly live?: boolean;
  /** Bytes of the command. `stderr` only in a separate call. A promise holds that stream back. */
  readonly onData: (stream: "stdout" | "stderr", chunk: Buffer) => void | Promise<void>;
};

export interface CallEnd {
  /**
   * `ended`: the command ended and the worker is fine. `died`: the worker's program ended. `lost`: the connection
   * broke.
   */
  readonly kind: "ended" | "died" | "lost";
  readonly exitCode: number | null;
  readonly signal: string | null;
  /** Whether the shell may have begun with the call: false is a proof that nothing ran. */
  readonly begun: boolean;
  /** The state after the call; null when it was not wanted or the command had no chance to tell. */
  readonly dump: StateDump | null;
  /** Whether what the session keeps could be brought back; when not, the command did not run. */
  readonly restored: boolean;
  /** Why the asked folder could not be entered; the command did not run then. */
  readonly workdirProblem: "missing" | "kernel" | null;
  /** Folder used because the session's cwd is gone. */
  readonly movedTo: string | null;
  /** Processes that were adopted since the last call, ours or not. */
  readonly newOrphans: readonly number[];
  /** All that had been adopted by the call's end, ours or not. */
  readonly adopted: readonly number[];
  /** Those of the new ones that are known to be the call's. @default none */
  readonly ownOrphans?: readonly number[];
  readonly lost: MoorageError | null;
}

/** What a place tells of its shells before one has answered, so that they need not find it out. */
export interface KnownShells {
  /** bash is found by its name, and no variable of `STARTUP_VARIABLES` is set. */
  readonly bash: boolean;
  /** Number of the process that adopts orphans. */
  readonly reaper: string;
  /** Descriptors that a shell is started with and that nobody needs. @default none */
  readonly unwanted?: readonly number[];
}

/** Name of the variable by which every process of a worker is found. */
export const WORKER_MARKER = "MOORAGE_WORKER";
