/** Tells which environments of this machine have a record, and what runs in them. */
import { readdir, readFile } from "node:fs/promises";
import { judgeOwner, type OwnerState } from "../owner.ts";
import { WORKER_MARKER } from "../shell/worker.ts";
import { SANDBOX_MARK } from "./bubblewrap/launch.ts";
import { readRecords } from "./owners.ts";

export interface LocalEntry {
  readonly id: string;
  /** For people. */
  readonly description: string;
  readonly workspace: string;
  /** ISO 8601. */
  readonly createdAt: string;
  readonly owner: OwnerState;
  readonly keep: boolean;
  readonly processes: readonly LocalProcess[];
}

export interface LocalProcess {
  readonly pid: number;
  /** Its arguments, joined by spaces, at most 200 characters. */
  readonly command: string;
}

/** Environments of every owner, oldest first, with what runs in them apart from our own resident shells. */
export async function listLocal(options: { readonly stateDir: string }): Promise<readonly LocalEntry[]> {
  const records = await readRecords(options.stateDir);
  if (records.length === 0) return [];
  const processes = await readMarked();
  return records
    .map(({ id, workspace, createdAt, owner, keep, folders }) => ({
      id,
      // Folders of its own are a sandbox's.
      description: folders.length > 0 ? "bubblewrap sandbox on this machine" : "this machine",
      workspace,
      createdAt,
      owner: judgeOwner(owner, false),
      keep,
      processes: processes
        .filter(({ worker, isShell }) => worker.startsWith(`${id}.`) && !isShell)
        .map(({ pid, command }) => ({ pid, command })),
    }))
    .sort((a, b) => (a.createdAt < b.createdAt ? -1 : 1));
}

interface Marked extends LocalProcess {
  readonly worker: string;
  /** A resident shell, or a subshell of it: its arguments are the shell's own. Or what makes a sandbox. */
  readonly isShell: boolean;
}

async function readMarked(): Promise<readonly Marked[]> {
  const found: Marked[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const variables = (await readFile(`/proc/${name}/environ`, "utf8")).split("\0");
      const marker = variables.find((variable) => variable.startsWith(`${WORKER_MARKER}=`));
      if (marker === undefined) continue;
      const words = (await readFile(`/proc/${name}/cmdline`, "utf8")).split("\0");
      const command = words.join(" ").trim().slice(0, 200);
      const worker = marker.slice(WORKER_MARKER.length + 1);
      const isShell = worker.endsWith(SANDBOX_MARK) || isResident(command);
      found.push({ pid: Number(name), command, worker, isShell });
    } catch {
      // It ended while we looked, or it is somebody else's.
    }
  }
  return found;
}

/**
 * Resident shells are told by the loop that bash is started with, and who renames for them by its text; others are started as
 * a bare `sh`. Supervisors of background processes are told by their script.
 */
function isResident(command: string): boolean {
  return command === "sh" || command.includes("__moor_") || /\/proc_[0-9a-f]{12}\/supervise\b/.test(command);
}
