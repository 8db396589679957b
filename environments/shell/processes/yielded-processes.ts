/** The commands of one environment that outlasted their calls, as its processes, until they are forgotten. */
import { limits } from "../../../src/limits.ts";
import type { ProcessInfo } from "../../base.ts";
import type { WorkerPool } from "../pool.ts";
import type { YieldedCommand } from "../runner.ts";
import { type YieldedHost, YieldedProcess } from "./yielded.ts";

export interface YieldedProcessesHost extends YieldedHost {
  readonly pool: WorkerPool;
  /** Commands end with their environment. */
  readonly stopping: AbortSignal;
}

export class YieldedProcesses {
  readonly #host: YieldedProcessesHost;
  readonly #all = new Map<string, YieldedProcess>();

  constructor(host: YieldedProcessesHost) {
    this.#host = host;
  }

  /** @returns the id of the command's process */
  adopt(yielded: YieldedCommand): string {
    this.#forgetExpired();
    const process = new YieldedProcess(yielded, this.#host);
    this.#all.set(process.id, process);
    const { stopping, pool } = this.#host;
    const endWithEnvironment = async () => {
      // Where it has not begun yet there is nothing to kill; what begins late is found by the end of the environment.
      await process.kill(limits.killGraceMs).catch(() => undefined);
      await pool.discard(yielded.worker);
    };
    if (stopping.aborted) void endWithEnvironment();
    else stopping.addEventListener("abort", () => void endWithEnvironment(), { once: true });
    return process.id;
  }

  list(): Promise<readonly ProcessInfo[]> {
    this.#forgetExpired();
    return Promise.all([...this.#all.values()].map((process) => process.info()));
  }

  /** @param id or the beginning of one, from 4 characters on @returns null unless there is exactly one */
  get(id: string): YieldedProcess | null {
    const found = [...this.#all.values()].filter(
      (process) => process.id === id || (id.length >= 4 && process.id.startsWith(id)),
    );
    const [only] = found;
    return only && found.length === 1 ? only : null;
  }

  #forgetExpired(): void {
    for (const [id, process] of this.#all) {
      if (process.isExpired) this.#all.delete(id);
    }
  }
}
