/**
 * What concerns this machine and not one runtime: which environments live on it, what dead owners left, whether a
 * backend works at all. Joins the backends for these questions, as `backends.ts` does for work.
 */
import type { Health, LeftProcess } from "./base.ts";
import type { GateRecord } from "./egress/record.ts";
import type { ReapedEnvironment } from "./local/reap.ts";
import type { OwnerState } from "./owner.ts";

/** An environment that has an owner's record or label. */
export interface RecordedEnvironment {
  readonly id: string;
  readonly backend: string;
  /** For people: an image, a container. */
  readonly description: string;
  readonly workspace: string | null;
  /** ISO 8601. */
  readonly createdAt: string;
  readonly owner: OwnerState;
  /** Stays when its owner ends. */
  readonly keep: boolean;
  /** What runs in it, apart from our own shells. */
  readonly processes: readonly LeftProcess[];
}

/** What the egress policy of a living environment decided, by the environment's id. */
export async function egressOfEnvironments({
  stateDir,
}: UpkeepOptions): Promise<ReadonlyMap<string, EgressRecord>> {
  const { readGates } = await import("./egress/record.ts");
  const records = await readGates(stateDir);
  return new Map(records.map(({ id, owner: _, folder: __, ...record }) => [id, record]));
}

/** Counters, and the last decisions, oldest first. */
export type EgressRecord = Omit<GateRecord, "id" | "owner" | "folder">;

/** What an orphan's removal came to. */
export interface Removal {
  readonly id: string;
  readonly backend: string;
  readonly removed: readonly string[];
  /** What could not be removed. */
  readonly left: readonly string[];
}

/** The part of a backend that needs no environment. */
export interface Upkeep {
  readonly backend: string;
  /** Forms of specifications that lead here. */
  readonly forms: readonly string[];
  /** Whether environments could be had now, within `limits.probeTimeoutMs`. */
  check(): Promise<Health>;
  /** @throws {MoorageError} the backend's own code when it cannot be asked */
  list(): Promise<readonly RecordedEnvironment[]>;
  /**
   * Removes what dead owners left.
   *
   * @param kept ids of environments that were to be kept, to be removed as well when their owner is dead
   * @throws {MoorageError} the backend's own code when it cannot be asked
   */
  reap(kept?: readonly string[]): Promise<readonly Removal[]>;
}

export interface UpkeepOptions {
  /** Folder for records of our own, as the runtime has it. */
  readonly stateDir: string;
}

/** The backends of this machine, each loaded on its first question. */
export function upkeep({ stateDir }: UpkeepOptions): readonly Upkeep[] {
  return [
    {
      backend: "local",
      forms: ["local"],
      check: async () => ({ healthy: true, detail: "commands run as you do, without isolation" }),
      list: async () => {
        const { listLocal } = await import("./local/list.ts");
        const entries = await listLocal({ stateDir });
        return entries.map((entry) => ({ ...entry, backend: "local" }));
      },
      reap: async (kept = []) => {
        const { reapLocal } = await import("./local/reap.ts");
        const reaped = await reapLocal({ stateDir, kept });
        return reaped.map((each) => removalOf("local", each));
      },
    },
    {
      backend: "bubblewrap",
      forms: ["local?isolation=bubblewrap"],
      check: async () => {
        const { currentFolder } = await import("./local/index.ts");
        const { probeBubblewrap } = await import("./local/bubblewrap/probe.ts");
        // Who asks stands in a project more often than not.
        return await probeBubblewrap([currentFolder()]);
      },
      // Their records are among the local ones.
      list: async () => [],
      reap: async () => {
        const { sweepGates } = await import("./egress/record.ts");
        const { reapWaiting } = await import("./local/reap.ts");
        const swept = await sweepGates(stateDir);
        const waiting = await reapWaiting();
        return [
          ...swept.map((id) => ({ id, backend: "egress", removed: ["the remains of a proxy"], left: [] })),
          ...waiting.map((each) => removalOf("bubblewrap", each)),
        ];
      },
    },
    {
      backend: "docker",
      forms: ["docker:IMAGE", "docker+attach:CONTAINER"],
      check: async () => {
        const { createDockerBackend, warningsOfEngine } = await import("./docker/index.ts");
        // Nothing of it is started, so that it asks for the engine alone; any image does.
        const health = await createDockerBackend({ image: "any" }).health();
        if (!health.healthy) return health;
        const warnings = await warningsOfEngine();
        return { healthy: true, detail: [health.detail ?? "works", ...warnings].join("; ") };
      },
      list: async () => {
        const { listDocker } = await import("./docker/index.ts");
        const { listContainerProcesses } = await import("./docker/top.ts");
        const entries = await listDocker();
        return Promise.all(
          entries.map(async ({ containerId, environment, image, name, state, createdAt, owner, kept }) => ({
            id: environment === "" ? containerId : environment,
            backend: "docker",
            description: `${image}, container ${name} (${state})`,
            workspace: null,
            createdAt,
            owner,
            keep: kept,
            // One that ends while we look has none.
            processes: state === "running" ? await listContainerProcesses(containerId).catch(() => []) : [],
          })),
        );
      },
      reap: async (kept = []) => {
        const { reapDocker } = await import("./docker/index.ts");
        const { removed, failed } = await reapDocker({ kept });
        return [
          ...removed.map(({ environment, name }) => ({
            id: environment,
            backend: "docker",
            removed: [`container ${name}`],
            left: [],
          })),
          ...failed.map(({ entry: { environment, name }, reason }) => ({
            id: environment,
            backend: "docker",
            removed: [],
            left: [`container ${name}: ${reason}`],
          })),
        ];
      },
    },
    {
      backend: "ssh",
      forms: ["ssh://[user@]host[:port][/workspace]"],
      check: async () => {
        const { nativeRemark } = await import("./ssh/native.ts");
        const detail = ["each host answers for itself, once it is named", nativeRemark()];
        return { healthy: true, detail: detail.filter((part) => part !== null).join("; ") };
      },
      list: async () => {
        const { listSsh } = await import("./ssh/index.ts");
        const entries = await listSsh({ stateDir });
        return entries.map((entry) => ({ ...entry, backend: "ssh", processes: [] }));
      },
      reap: async (kept = []) => {
        const { reapSsh } = await import("./ssh/index.ts");
        const reaped = await reapSsh({ stateDir, kept });
        return reaped.map(({ id, description, problem }) => ({
          id,
          backend: "ssh",
          removed: problem === null ? [`processes on ${description}`] : [],
          left: problem === null ? [] : [`processes on ${description}: ${problem}`],
        }));
      },
    },
    {
      backend: "vercel",
      forms: ["vercel[:NAME]"],
      check: async () => (await import("./vercel/index.ts")).checkVercel(),
      list: async () => {
        const { listVercel } = await import("./vercel/index.ts");
        const entries = await listVercel({ stateDir });
        return entries.map((entry) => ({ ...entry, backend: "vercel", workspace: null, processes: [] }));
      },
      reap: async (kept = []) => {
        const { reapVercel } = await import("./vercel/index.ts");
        const reaped = await reapVercel({ stateDir, kept });
        return reaped.map(({ id, name, problem }) => ({
          id,
          backend: "vercel",
          removed: problem === null ? [`sandbox ${name}`] : [],
          left: problem === null ? [] : [`sandbox ${name}: ${problem}`],
        }));
      },
    },
  ];
}

/** Of processes and files of this machine. */
function removalOf(backend: string, { id, processes, survivors, left }: ReapedEnvironment): Removal {
  return {
    id,
    backend,
    removed: processes.filter((pid) => !survivors.includes(pid)).map((pid) => `process ${pid}`),
    left: [...survivors.map((pid) => `process ${pid}`), ...left],
  };
}
