/** Ends what the environments of dead owners left running on this machine. */
import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { limits } from "../../src/limits.ts";
import { judgeOwner } from "../owner.ts";
import { processWorkerId } from "../shell/processes/record.ts";
import { WORKER_MARKER } from "../shell/worker.ts";
import { releasePlaceholders } from "./bubblewrap/claims.ts";
import { ownerOfWaiting } from "./bubblewrap/launch.ts";
import { isOrphan, type LocalRecord, readRecords, removeRecord } from "./owners.ts";

export interface ReapedEnvironment {
  readonly id: string;
  readonly processes: readonly number[];
  /** Processes that are still there. */
  readonly survivors: readonly number[];
  /** Files and folders that are still there, each with the reason. */
  readonly left: readonly string[];
}

const POLL_MS = 20;

/**
 * Processes whose variables at their start hold one of `texts`, but not `spared`. Unreadable ones belong to somebody
 * else.
 */
async function findMarked(texts: readonly string[], spared: string | null): Promise<number[]> {
  const found: number[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const variables = await readFile(`/proc/${name}/environ`, "latin1");
      if (texts.some((text) => variables.includes(text)) && !(spared && variables.includes(spared)))
        found.push(Number(name));
    } catch {
      // Gone, or not ours.
    }
  }
  return found;
}

function send(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch {
      // Gone meanwhile.
    }
  }
}

async function endMarked(
  texts: readonly string[],
  spared: string | null,
): Promise<Omit<ReapedEnvironment, "id" | "left">> {
  const seen = new Set<number>();
  // One that is forked while the list is read, by a process that ends meanwhile, is met by a second look alone.
  const look = async (): Promise<number[]> => {
    const found = await findMarked(texts, spared);
    return found.length > 0 ? found : await findMarked(texts, spared);
  };
  let living = await look();
  const started = performance.now();
  while (living.length > 0) {
    for (const pid of living) seen.add(pid);
    const elapsedMs = performance.now() - started;
    if (elapsedMs > limits.killGraceMs + limits.killVerifyMs) break;
    send(living, "SIGCONT");
    send(living, elapsedMs < limits.killGraceMs ? "SIGTERM" : "SIGKILL");
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    living = await look();
  }
  return { processes: [...seen], survivors: living };
}

export interface ReapOptions {
  readonly stateDir: string;
  /** Ids of environments that were to be kept, to be removed as well when their owner is dead. @default none */
  readonly kept?: readonly string[];
  /** Host folders that may hold private folders of environments. */
  readonly temporaryFolders?: readonly string[];
  /** An environment that is about to begin again: its background processes and their records stay, for it to find. */
  readonly successorOf?: string;
}

/** Ends the processes of environments whose owner died, removes their private folders and records. */
export async function reapLocal(options: ReapOptions): Promise<readonly ReapedEnvironment[]> {
  const dead = (await readRecords(options.stateDir)).filter(
    (record: LocalRecord) => isOrphan(record) && (!record.keep || options.kept?.includes(record.id)),
  );
  const reaped: ReapedEnvironment[] = [];
  for (const record of dead) {
    const markers = [`${record.id}.`, ...record.marks].map((mark) => `${WORKER_MARKER}=${mark}`);
    if (record.id === options.successorOf) {
      const ended = await endMarked(markers, `${WORKER_MARKER}=${processWorkerId(record.id)}`);
      reaped.push({ id: record.id, ...ended, left: [] });
      continue;
    }
    const ended = await endMarked(markers, null);
    const left = await removeFiles(record, options);
    if (ended.survivors.length === 0 && left.length === 0) await removeRecord(options.stateDir, record.id);
    reaped.push({ id: record.id, ...ended, left });
  }
  return reaped;
}

/** Goes on after what cannot be removed: the record stays, and the next one tries again. */
async function removeFiles(record: LocalRecord, options: ReapOptions): Promise<readonly string[]> {
  const uid = process.getuid?.() ?? 0;
  const temporary = options.temporaryFolders ?? [
    process.env.TMPDIR ?? "/tmp",
    "/tmp",
    "/var/tmp",
    "/dev/shm",
  ];
  const left: string[] = [];
  const folders = [...new Set(temporary)].map((folder) => join(folder, `.moorage-${uid}`, record.id));
  for (const folder of [...folders, ...record.folders]) {
    try {
      await rm(folder, { recursive: true, force: true });
    } catch (error) {
      left.push(`${folder} (${error instanceof Error ? error.message : String(error)})`);
    }
  }
  return [...left, ...(await releasePlaceholders(options.stateDir, record))];
}

/**
 * Ends processes that were to become a sandbox of an orchestrator that is gone. They end by themselves, those apart that
 * somebody has stopped.
 */
export async function reapWaiting(): Promise<readonly ReapedEnvironment[]> {
  const reaped: ReapedEnvironment[] = [];
  for (const pid of await readdir("/proc")) {
    if (!/^\d+$/.test(pid)) continue;
    const mark = await markOf(pid);
    const waiting = mark === null ? null : ownerOfWaiting(mark);
    if (mark === null || waiting === null || judgeOwner(waiting.owner, false) !== "dead") continue;
    const ended = await endMarked([`${WORKER_MARKER}=${mark}\0`], null);
    if (ended.processes.length > 0) reaped.push({ id: waiting.name, ...ended, left: [] });
  }
  return reaped;
}

async function markOf(pid: string): Promise<string | null> {
  try {
    const variables = await readFile(`/proc/${pid}/environ`, "latin1");
    return new RegExp(`(?:^|\0)${WORKER_MARKER}=([^\0]*)`).exec(variables)?.[1] ?? null;
  } catch {
    // Gone, or not ours.
    return null;
  }
}
