/** The processes that a worker's calls started: found, ended, waited for. */
import { MoorageError } from "../../src/errors.ts";
import type { LeftProcess } from "../base.ts";
import { ownedOrphans } from "./left-behind.ts";
import { endTree, findProcesses } from "./processes/process-tree.ts";
import type { Shells } from "./shells.ts";
import type { SystemShell } from "./stream.ts";
import type { CallEnd, CallWorker } from "./worker.ts";

/** How often a set-aside worker's processes are looked for, growing from the first to the last, milliseconds. */
const GONE_POLL_MIN_MS = 500;
const GONE_POLL_MAX_MS = 30_000;

export class WorkerProcesses {
  readonly #system: SystemShell;
  readonly #shells: Pick<Shells, "afterRecovery">;
  readonly #stopping: AbortSignal;

  /** @param stopping ends every wait */
  constructor(system: SystemShell, shells: Pick<Shells, "afterRecovery">, stopping: AbortSignal) {
    this.#system = system;
    this.#shells = shells;
    this.#stopping = stopping;
  }

  /** Ends all of the worker's call. @returns what survived */
  end(worker: CallWorker): Promise<LeftProcess[]> {
    return this.#shells.afterRecovery(() =>
      endTree(this.#system, {
        marker: worker.marker,
        sinceTicks: worker.sinceTicks ?? null,
        ...(worker.alive &&
          worker.shellPid !== null && { exceptPids: [worker.shellPid], sincePid: worker.shellPid }),
      }),
    );
  }

  /** Those that carry the worker's marker, and those that are named, with all that they started. */
  async find(worker: CallWorker, pids: readonly number[] = []): Promise<readonly LeftProcess[]> {
    const { shellPid } = worker;
    return findProcesses(this.#system, {
      marker: worker.marker,
      pids,
      sinceTicks: worker.sinceTicks ?? null,
      ...(shellPid !== null && { exceptPids: [shellPid], ...(worker.alive && { sincePid: shellPid }) }),
    });
  }

  /** What a call that has ended left running. */
  leftBehind(worker: CallWorker, end: CallEnd): Promise<readonly LeftProcess[]> {
    return this.#shells.afterRecovery(async () => {
      const owned = await ownedOrphans(this.#system, worker, end);
      return owned.length === 0 ? [] : this.find(worker, owned);
    });
  }

  /** Sends a signal, named without its `SIG`, to the processes of the worker's call. */
  async signal(worker: CallWorker, signal: string): Promise<void> {
    const pids = (await this.find(worker)).map(({ pid }) => pid);
    if (pids.length > 0) await this.#system.run(`kill -s ${signal} ${pids.join(" ")} 2>/dev/null; :`);
  }

  /** Looks, more and more rarely, until nothing of the worker's is left. */
  async gone(worker: CallWorker): Promise<void> {
    // Without a shell between its calls it has no stream that somebody could hold.
    if (worker.shellPid === null) return;
    const aborted = new Promise<void>((resolve) => {
      this.#stopping.addEventListener("abort", () => resolve(), { once: true });
    });
    for (
      let pauseMs = GONE_POLL_MIN_MS;
      !this.#stopping.aborted && worker.alive;
      pauseMs = Math.min(pauseMs * 2, GONE_POLL_MAX_MS)
    ) {
      const timer = Promise.withResolvers<void>();
      const handle = setTimeout(timer.resolve, pauseMs);
      handle.unref();
      await Promise.race([timer.promise, aborted]);
      clearTimeout(handle);
      if (this.#stopping.aborted) return;
      try {
        if ((await this.find(worker)).length === 0) return;
      } catch (error) {
        // The place is gone, and what ran in it; a fault of ours is told by the next call that meets it.
        if (error instanceof MoorageError) return;
        throw error;
      }
    }
  }
}
