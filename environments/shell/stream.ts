/**
 * The one thing that a backend must bring to have sessions, exec, processes and files: a way to start a program
 * inside the environment with three byte streams. Everything else in this folder stands on it.
 */
import type { Readable, Writable } from "node:stream";
import type { MoorageError } from "../../src/errors.ts";

export interface StreamRequest {
  /** Started as it is, by no shell. */
  readonly argv: readonly string[];
  /** Added to the environment's own variables. */
  readonly env: Readonly<Record<string, string>>;
  /**
   * First bytes of its standard input, one byte a character, for a backend that can hand them over before the program is
   * there. See `ShellStream.isGreeted`. @default none
   */
  readonly greeting?: string;
  /**
   * `user`: a shell for the caller's commands. `system`: one for our own scripts, which must be had also while user
   * commands hold all that a backend with few streams would give them, and while the environment stops.
   */
  readonly purpose?: "user" | "system";
  readonly abortSignal?: AbortSignal;
}

/** How a stream came to its end. */
export interface StreamEnd {
  /** Null when unknown. */
  readonly exitCode: number | null;
  readonly signal: string | null;
  /**
   * Set when the connection or the environment broke, instead of the program ending. With `details.undelivered`,
   * the last bytes written to stdin were provably not sent.
   */
  readonly lost: MoorageError | null;
}

export interface ShellStream {
  /** Whether the greeting that was asked for was written; else whoever asked for it does. @default false */
  readonly isGreeted?: boolean;
  /** Errors (EPIPE) are swallowed by the backend: `ended` tells. */
  readonly stdin: Writable;
  /** Raw bytes; must honour pause and back pressure. */
  readonly stdout: Readable;
  readonly stderr: Readable;
  /**
   * Settles once, when the program has ended or the connection broke, also while children hold the outputs. Never
   * rejects.
   */
  readonly ended: Promise<StreamEnd>;
  /** Closes the streams and, where the backend can, ends the program. Idempotent, never throws. */
  close(): Promise<void>;
}

export interface SystemRunOptions {
  /** Bytes for the script's standard input. @default empty */
  readonly stdin?: Uint8Array;
  /** Receives stdout as it arrives instead of collecting it; a slow promise holds the source back. */
  readonly onStdout?: (chunk: Buffer) => void | Promise<void>;
  /** The same of stderr, only where `hasTwoStreams`. */
  readonly onStderr?: (chunk: Buffer) => void | Promise<void>;
  /**
   * Whether each piece of stdout is wanted when it is written: some backends send it faster at the end.
   * @default false
   */
  readonly live?: boolean;
  /**
   * Whether it runs again, on another shell, when its own was lost in its middle: to do twice what it does is no more than
   * to do it once. Output that `onStdout` has taken cannot be taken back, and then it does not. @default false
   */
  readonly repeatable?: boolean;
  /**
   * Whether it is known to leave no process in the background of its shell: its end is then told sooner.
   * @default false
   */
  readonly plain?: boolean;
  /** @default limits.fileOpTimeoutMs */
  readonly timeoutMs?: number;
  /** On abort the script's tree is ended and ABORTED is thrown. */
  readonly abortSignal?: AbortSignal;
  /** Collected stdout beyond this many bytes is an INTERNAL error. @default 64 MiB */
  readonly maxBytes?: number;
}

export interface SystemRunResult {
  readonly exitCode: number;
  /** Empty when `onStdout` took it. */
  readonly stdout: Buffer;
  /** Decoded, at most 64 KiB; empty when `onStderr` took it. */
  readonly stderr: string;
}

/**
 * Runs our own scripts inside the environment, in POSIX sh, in a subshell of a resident shell whose variables no
 * user command can touch. About one fork per run; every external program is one more. The functions of
 * `files/library.ts` are defined in it.
 *
 * @throws {MoorageError} ENVIRONMENT_*, EXECUTION_UNKNOWN, TOOL_TIMEOUT, ABORTED
 */
export interface SystemShell {
  run(script: string, options?: SystemRunOptions): Promise<SystemRunResult>;
  /** The environment's home folder, absolute. */
  readonly home: string;
  /** bash or a POSIX sh. */
  readonly shell: "bash" | "sh";
  /** Whether stderr carries any bytes as they are, as stdout does. @default false */
  readonly hasTwoStreams?: boolean;
  /** A private folder inside the environment for our records, mode 0700, made on first use. */
  privateDir(): Promise<string>;
}
