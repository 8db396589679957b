/** What an exit status of `moor` means. */
import { constants } from "node:os";

export const EXIT = {
  ok: 0,
  /** What was asked for ran and its answer is a failure: a tool's error, a sick backend. */
  failed: 1,
  /** `moor exec` ended its command at the timeout. */
  timeout: 124,
  /** We could not do what was asked: wrong words, no environment, a fault. */
  ours: 125,
} as const;

/** Status of a program that a signal ended, as shells tell it. */
export function signalExit(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}
