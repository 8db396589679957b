/** A mirror that goes on while somebody works on both sides. */
import { setTimeout as delay } from "node:timers/promises";
import { limits } from "../../src/limits.ts";
import type { SyncReport } from "./mirror.ts";

export interface WatchOptions {
  /** Time between the end of one run and the next, at least, milliseconds. @default limits.syncWatchMs */
  readonly intervalMs?: number;
  /** Told of each run that had something to do or to say; what stays the same is told once. */
  readonly onReport?: (report: SyncReport) => void;
  /** Told of a run that failed; the next one comes all the same. The same failure is told once in a row. */
  readonly onFailure?: (error: unknown) => void;
}

/** Ends with the run that is under way, which is cancelled; nothing is left half done. */
export interface FolderWatch extends AsyncDisposable {
  /** Settles when a run that began after the call has ended, whatever came of it; at once when the watch has ended. */
  settled(): Promise<void>;
}

/** A run may take this share of the time, so that a large folder does not keep the machine busy. */
const SHARE = 0.2;

/**
 * Runs a mirror again and again. Both sides are looked at each time: an environment cannot tell of its changes, and
 * the notices of a host are lost when there are many.
 *
 * @param run one mirror; must end soon after its signal
 */
export function watchFolder(
  run: (abortSignal: AbortSignal) => Promise<SyncReport>,
  { intervalMs = limits.syncWatchMs, onReport, onFailure }: WatchOptions = {},
): FolderWatch {
  const ending = new AbortController();
  let toldReport = "";
  let toldFailure = "";
  let hurry = new AbortController();
  let waiting: (() => void)[] = [];

  const once = async (): Promise<void> => {
    try {
      const report = await run(ending.signal);
      toldFailure = "";
      const standing = JSON.stringify([report.conflicts, report.skipped]);
      const isNews = report.pushed.length > 0 || report.pulled.length > 0 || standing !== toldReport;
      toldReport = standing;
      if (isNews) onReport?.(report);
    } catch (error) {
      if (ending.signal.aborted) return;
      const text = error instanceof Error ? error.message : String(error);
      if (text !== toldFailure) onFailure?.(error);
      toldFailure = text;
    }
  };
  const loop = async (): Promise<void> => {
    while (!ending.signal.aborted) {
      const served = waiting;
      waiting = [];
      hurry = new AbortController();
      const startedAt = performance.now();
      await once();
      for (const wake of served) wake();
      const restMs = Math.max(intervalMs, (performance.now() - startedAt) * (1 / SHARE - 1));
      const signal = AbortSignal.any([ending.signal, hurry.signal]);
      // The pause ends early when somebody asks for a run, or the watch ends.
      await delay(restMs, undefined, { signal }).catch(() => undefined);
    }
    for (const wake of waiting) wake();
    waiting = [];
  };
  const running = loop();
  return {
    settled: () => {
      if (ending.signal.aborted) return running;
      return new Promise((resolve) => {
        waiting.push(resolve);
        hurry.abort();
      });
    },
    [Symbol.asyncDispose]: async () => {
      ending.abort();
      await running;
    },
  };
}
