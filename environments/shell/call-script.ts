/** What a shell is told of a call. */
import type { Ends, ShellKind } from "./phrases.ts";
import type { ShellState } from "./state.ts";

export interface CallScript extends Ends {
  readonly shell: ShellKind;
  /** A shell line, or argv to start as it is. One byte a character. */
  readonly command: string | readonly string[];
  /** Folder to start in. */
  readonly cwd: string;
  /** Fail when the folder cannot be entered, instead of going to its nearest ancestor. */
  readonly cwdRequired: boolean;
  readonly state: ShellState;
  /** Set for this call only. */
  readonly env: ReadonlyMap<string, string | null>;
  /** Number of bytes that will follow; null for an empty input. */
  readonly stdinBytes: number | null;
  readonly separate: boolean;
  /** Whether the state after the command is wanted. */
  readonly dump: boolean;
  /**
   * Whether the line is known to be of sound grammar, as our own are: it is then read once instead of twice.
   * @default false
   */
  readonly sound?: boolean;
  /** The subshell of `readyScript` that the text is for, in bash. @default none */
  readonly ready?: Readied | null;
  /**
   * Whether a line is known to leave no process in the background of its shell. Its subshell then ends the call itself,
   * which is sooner than the shell around it hears of the subshell's end. @default false
   */
  readonly plain?: boolean;
}

/** A subshell that waits, as far as a call's text depends on it. */
export interface Readied {
  /** What it has of a session's variables, a difference like `ShellState.variables`; null when it has none. */
  readonly variables: ReadonlyMap<string, string | null> | null;
  /** Variables of a fresh shell. */
  readonly base: ReadonlyMap<string, string>;
  /** Whether it waits in the locale C, in which our own scripts stay. */
  readonly inC: boolean;
}
