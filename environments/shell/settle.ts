/** What is done with a worker when its command is over, by a place that may not be there to be looked at any more. */
import { MoorageError } from "../../src/errors.ts";
import type { LeftProcess } from "../base.ts";
import type { WorkerPool } from "./pool.ts";
import type { CallEnd, CallWorker } from "./worker.ts";

/** What is needed of an environment to settle a worker. */
export interface SettleHost {
  readonly pool: WorkerPool;
  /** Ends all processes of the worker's call, and says what survived. */
  endTree(worker: CallWorker): Promise<readonly LeftProcess[]>;
  /** Which of the processes that were adopted during a call belong to the worker, with all that they started. */
  leftBehind(worker: CallWorker, end: CallEnd): Promise<readonly LeftProcess[]>;
  /** Resolves when the worker's processes are gone. */
  gone(worker: CallWorker): Promise<void>;
}

/** Of a command whose processes could not be ended: no failure that lets a caller run it again at once. */
export function notEnded(error: unknown, output: string): unknown {
  if (!(error instanceof MoorageError)) return error;
  return new MoorageError(
    "EXECUTION_UNKNOWN",
    `Cannot tell whether the command was ended: ${error.message}`,
    {
      cause: error,
      details: { output, cause: error.code },
    },
  );
}

/** A place that cannot be asked explains nothing. */
export function noReason(error: unknown): null {
  if (error instanceof MoorageError) return null;
  throw error;
}

interface Settled {
  readonly left: readonly LeftProcess[];
  /** Why nobody could look, where that failed. */
  readonly notes: readonly string[];
}

export const NOTHING_LEFT: Settled = { left: [], notes: [] };

/**
 * Gives the worker back, or sets it aside when something that it started lives on, or may. How the command ended is known
 * by then, so a place that fails to be looked at is a note: as an error it would tell a caller that nothing had run.
 */
export async function settle(host: SettleHost, worker: CallWorker, end: CallEnd): Promise<Settled> {
  const unseen = (error: unknown): Settled => {
    if (!(error instanceof MoorageError)) throw error;
    return { left: [], notes: [`What it left running could not be looked for: ${error.message}`] };
  };
  if (end.kind !== "ended") {
    // The shell is gone, but what it started may not be.
    const settled =
      end.kind === "died" ? await host.endTree(worker).then(() => NOTHING_LEFT, unseen) : NOTHING_LEFT;
    await host.pool.discard(worker);
    return settled;
  }
  if (end.newOrphans.length === 0) {
    host.pool.release(worker);
    return NOTHING_LEFT;
  }
  const settled = await host.leftBehind(worker, end).then((left) => ({ left, notes: [] }), unseen);
  if (settled.left.length === 0 && settled.notes.length === 0) host.pool.release(worker);
  else host.pool.retire(worker, host.gone(worker));
  return settled;
}
