/** Finds containers by their labels, tells whose they are, and removes those whose owner is dead. */

import { judgeOwner, type OwnerState, type ProcessTable, thisProcessTable } from "../owner.ts";
import { DockerClient } from "./client.ts";
import { removeContainer } from "./container.ts";
import type { DockerEndpoint } from "./endpoint.ts";
import { DOOR_ROLE, LABELS } from "./labels.ts";

export interface DockerEntry {
  readonly containerId: string;
  readonly name: string;
  readonly image: string;
  readonly environment: string;
  /** As the engine says it: `running`, `paused`, `exited`, … */
  readonly state: string;
  /** ISO 8601, empty when the label is missing. */
  readonly createdAt: string;
  /** `unknown`: another machine or process namespace made it. */
  readonly owner: OwnerState;
  readonly kept: boolean;
  /** Whether it is the companion of another one. */
  readonly isDoor: boolean;
}

export interface ReapOptions {
  /** @default the one that the `docker` command would use */
  readonly endpoint?: DockerEndpoint;
  /** Ids of environments that were to be kept, to be removed as well when their owner is dead. @default none */
  readonly kept?: readonly string[];
  /** Also those whose owner cannot be judged from here, when they are older than this, milliseconds. @default never */
  readonly unknownOlderThanMs?: number;
  /** Only says what would be removed. @default false */
  readonly dryRun?: boolean;
}

export interface ReapReport {
  readonly removed: readonly DockerEntry[];
  readonly failed: readonly { readonly entry: DockerEntry; readonly reason: string }[];
}

/** Containers of every owner, in any state. @throws {MoorageError} DOCKER_* */
export async function listDocker(
  options: { readonly endpoint?: DockerEndpoint } = {},
): Promise<DockerEntry[]> {
  const { endpoint } = options;
  const entries = await listEntries(new DockerClient(endpoint ? () => endpoint : undefined));
  return entries.filter(({ isDoor }) => !isDoor);
}

/**
 * Removes the containers of dead owners, running ones too. Those of live owners and those without our label are never
 * touched. One that cannot be removed does not keep the others.
 *
 * @throws {MoorageError} DOCKER_*
 */
export function reapDocker(options: ReapOptions = {}): Promise<ReapReport> {
  const { endpoint } = options;
  return reapWith(new DockerClient(endpoint ? () => endpoint : undefined), options);
}

/** `reapDocker` over a client that is there already. */
export async function reapWith(client: DockerClient, options: ReapOptions = {}): Promise<ReapReport> {
  const orphans = (await listEntries(client)).filter((entry) => isOrphan(entry, options));
  if (options.dryRun) return { removed: orphans, failed: [] };
  const removed: DockerEntry[] = [];
  const failed: { entry: DockerEntry; reason: string }[] = [];
  for (const entry of orphans) {
    try {
      await removeContainer(client, entry.containerId);
      removed.push(entry);
    } catch (error) {
      failed.push({ entry, reason: error instanceof Error ? error.message : String(error) });
    }
  }
  return { removed, failed };
}

function isOrphan(entry: DockerEntry, options: ReapOptions): boolean {
  if (entry.kept && !options.kept?.includes(entry.environment)) return false;
  if (entry.owner === "dead") return true;
  const { unknownOlderThanMs } = options;
  if (entry.owner !== "unknown" || unknownOlderThanMs === undefined) return false;
  const createdAt = Date.parse(entry.createdAt);
  return !Number.isNaN(createdAt) && Date.now() - createdAt > unknownOlderThanMs;
}

/** Containers that we made: with the owner label, and with all of `labels`. */
export async function listEntries(
  client: DockerClient,
  labels: readonly string[] = [],
  table: ProcessTable = thisProcessTable(),
): Promise<DockerEntry[]> {
  const containers = await client.call("list containers", (docker, abortSignal) =>
    docker.listContainers({ all: true, filters: { label: [LABELS.owner, ...labels] }, abortSignal }),
  );
  return containers
    .filter(({ Labels, Names }) => Labels[LABELS.owner] && Names.includes(`/${Labels[LABELS.container]}`))
    .map(({ Id, Names, Image, Labels, State }) => ({
      containerId: Id,
      name: (Names[0] ?? "").replace(/^\//, ""),
      image: Image,
      environment: Labels[LABELS.environment] ?? "",
      state: State,
      createdAt: Labels[LABELS.createdAt] ?? "",
      owner: judgeOwner(Labels[LABELS.owner] ?? "", State === "running" || State === "paused", table),
      kept: Labels[LABELS.keep] === "true",
      isDoor: Labels[LABELS.role] === DOOR_ROLE,
    }));
}
