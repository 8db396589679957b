/** Ends background processes with all that they started: one, all of an environment, or what dead owners left. */
import { MoorageError } from "../../src/errors.ts";
import type { LeftProcess } from "../base.ts";
import {
  PROCESS_VARIABLE,
  type ProcessRecord,
  parseRecords,
  recordScript,
  recordsFolder,
} from "./process-record.ts";
import { endTree } from "./process-tree.ts";
import { waitFor } from "./process-wait.ts";
import { quote } from "./quote.ts";
import type { SystemShell } from "./stream.ts";

/** Time for a supervisor to write the exit code of a process that has ended, milliseconds. */
const SETTLE_MS = 2_000;

/**
 * Ends a process and everything that carries its marker, also when the process itself has ended already. Its status
 * becomes `killed` only once it is dead.
 *
 * @throws {MoorageError} PROCESS_MISSING
 */
export async function killProcess(
  system: SystemShell,
  folder: string,
  id: string,
): Promise<readonly LeftProcess[]> {
  const script = recordScript(
    folder,
    `look "$folder" || exit 2
[ $status = running ] || exit 0
: >"$folder/killed"
printf '%s' "$pid"`,
  );
  const { exitCode, stdout } = await system.run(script);
  if (exitCode === 2) throw new MoorageError("PROCESS_MISSING", `Cannot end ${id}: its record is gone`);
  const pid = Number(stdout.toString());
  const survivors = await endTree(system, { marker: markerOf(id), pids: pid > 0 ? [pid] : [] });
  if (pid > 0 && survivors.length === 0) await waitFor(system, folder, { timeoutMs: SETTLE_MS });
  return survivors;
}

export interface ReapRequest {
  /** Whether the orchestrator that wrote this owner into its records still lives. */
  readonly isOwnerAlive: (owner: string) => boolean | Promise<boolean>;
  /** Folder of records. @default the one in the system shell's private folder */
  readonly folder?: string;
  /** Ends also what was to be kept for the next orchestrator of its environment. @default false */
  readonly kept?: boolean;
}

export interface ReapReport {
  /** Ids of processes that ran and were ended. */
  readonly ended: readonly string[];
  readonly survivors: readonly LeftProcess[];
}

/** Ends the processes of dead owners, of whatever environment, and removes their records. Idempotent. */
export async function reapProcesses(system: SystemShell, request: ReapRequest): Promise<ReapReport> {
  const folder = request.folder ?? (await recordsFolder(system));
  const records = await listRecords(system, folder);
  const owners = new Map<string, boolean>();
  for (const { owner } of records) {
    if (!owners.has(owner)) owners.set(owner, await request.isOwnerAlive(owner));
  }
  const orphans = records.filter(
    ({ owner, meta }) => owners.get(owner) === false && (request.kept === true || !meta.kept),
  );
  const survivors = await endRecords(system, folder, orphans);
  const ended = orphans.filter(({ info }) => info.status === "running").map(({ info }) => info.id);
  return { ended, survivors };
}

/** Ends all of the records' processes at once and removes the records, but keeps those that something survives. */
export async function endRecords(
  system: SystemShell,
  folder: string,
  records: readonly ProcessRecord[],
): Promise<readonly LeftProcess[]> {
  if (records.length === 0) return [];
  const pids = records.flatMap(({ info }) => (info.status === "running" && info.pid ? [info.pid] : []));
  const survivors = await endTree(system, { marker: records.map(({ info }) => markerOf(info.id)), pids });
  if (survivors.length === 0) await removeRecords(system, folder, records);
  return survivors;
}

async function removeRecords(
  system: SystemShell,
  folder: string,
  records: readonly ProcessRecord[],
): Promise<void> {
  const ids = records.map(({ info }) => info.id).join(" ");
  // Supervisors write into their folders until their end.
  for (const { info } of records) {
    if (info.status === "running") {
      await waitFor(system, `${folder}/${info.id}`, { timeoutMs: SETTLE_MS });
    }
  }
  const { exitCode, stderr } = await system.run(recordScript(folder, `cd "$folder" && rm -rf ${ids}`));
  if (exitCode !== 0) {
    throw new MoorageError("CLEANUP_FAILED", `Cannot remove process records: ${stderr.trim()}`);
  }
}

/** All records of a folder, oldest first, after removing those of `retentionMs` ago. */
export async function listRecords(
  system: SystemShell,
  folder: string,
  options: {
    readonly adopt?: { readonly environmentId: string; readonly owner: string };
    readonly retentionMs?: number;
  } = {},
): Promise<ProcessRecord[]> {
  const { stdout } = await system.run(recordScript(folder, listScript(options)));
  return parseRecords(stdout).sort((a, b) =>
    `${a.info.startedAt} ${a.info.id}` < `${b.info.startedAt} ${b.info.id}` ? -1 : 1,
  );
}

function listScript({
  adopt,
  retentionMs = Number.POSITIVE_INFINITY,
}: {
  readonly adopt?: { readonly environmentId: string; readonly owner: string };
  readonly retentionMs?: number;
}): string {
  const seconds = Number.isFinite(retentionMs) ? Math.ceil(retentionMs / 1000) : 2 ** 31;
  return `now
stale=
for d in "$folder"/proc_*; do
  ${adopt ? `place=\n  { IFS= read -r place <"$d/environment"; } 2>/dev/null\n  [ "$place" = ${quote(adopt.environmentId)} ] || continue` : ""}
  [ -e "$d/meta" ] || continue
  if [ -e "$d/exit" ] && ended_as "$d"; then
    if [ "$endboot" != "$boot" ] || [ $((\${ended%.*} + ${seconds})) -lt "\${up%.*}" ]; then
      stale="$stale \${d##*/}"
      continue
    fi
  fi
  ${adopt ? `owner=\n  { IFS= read -r owner <"$d/owner"; } 2>/dev/null\n  [ "$owner" = ${quote(adopt.owner)} ] || printf '%s\\n' ${quote(adopt.owner)} >"$d/owner"` : ""}
  show "$d"
done
[ -z "$stale" ] || ( cd "$folder" && rm -rf $stale )
sizes`;
}

function markerOf(id: string): string {
  return `${PROCESS_VARIABLE}=${id}`;
}
