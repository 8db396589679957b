/** Ends background processes with all that they started: one, or all of an environment; and lists them. */
import { MoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import type { LeftProcess, ProcessInfo } from "../../base.ts";
import type { SystemShell } from "../stream.ts";
import { endTree } from "./process-tree.ts";
import { PROCESS_VARIABLE, parseRecords, recordScript } from "./record.ts";
import { waitFor } from "./wait.ts";

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
  const { exitCode, stdout } = await system.run(script, { repeatable: true });
  if (exitCode === 2) throw new MoorageError("PROCESS_MISSING", `Cannot end ${id}: its record is gone`);
  const pid = Number(stdout.toString());
  const leader = pid > 0 ? { pids: [pid], sincePid: pid } : {};
  const survivors = await endTree(system, { marker: markerOf(id), ...leader });
  if (survivors.length > 0) return survivors;
  if (pid > 0) await waitFor(system, folder, { timeoutMs: SETTLE_MS });
  await system.run(recordScript(folder, endKeepers('"$folder"')), { repeatable: true });
  return [];
}

/** Ends all of the records' processes at once, and removes the records unless something survives. */
export async function endProcesses(
  system: SystemShell,
  folder: string,
  processes: readonly ProcessInfo[],
): Promise<readonly LeftProcess[]> {
  if (processes.length === 0) return [];
  const running = processes.filter(({ status }) => status === "running");
  const survivors = await endTree(system, {
    marker: processes.map(({ id }) => markerOf(id)),
    pids: running.flatMap(({ pid }) => pid ?? []),
  });
  if (survivors.length > 0) return survivors;
  // Supervisors write into their folders until their end.
  for (const { id } of running) await waitFor(system, `${folder}/${id}`, { timeoutMs: SETTLE_MS });
  const ids = processes.map(({ id }) => id).join(" ");
  const remove = `cd "$folder" || exit\n${endKeepers(ids)}\nrm -rf ${ids}`;
  const { exitCode, stderr } = await system.run(recordScript(folder, remove));
  if (exitCode !== 0) {
    throw new MoorageError("CLEANUP_FAILED", `Cannot remove process records: ${stderr.trim()}`);
  }
  return [];
}

/**
 * Ends who bounds the logs in these folders, once the exit codes are written. A keeper whose supervisor saw something
 * alive that has ended since would notice only at its next look; the group is the supervisor's, and holds nothing but
 * ours.
 */
function endKeepers(folders: string): string {
  return `for d in ${folders}; do
  [ -e "$d/exit" ] || continue
  helper= helperstart= leader= group=
  { read -r helper helperstart <"$d/keeper" && read -r leader s <"$d/supervisor"; } 2>/dev/null || continue
  alive "$helper" "$helperstart" || continue
  [ "$group" = "$leader" ] && kill -KILL "-$group" || kill -KILL "$helper"
done`;
}

/** All processes that have a record, oldest first, after removing what ended longer ago than the retention. */
export async function listProcesses(system: SystemShell, folder: string): Promise<ProcessInfo[]> {
  const { stdout } = await system.run(recordScript(folder, LIST), { repeatable: true });
  return parseRecords(stdout).sort((a, b) => (`${a.startedAt} ${a.id}` < `${b.startedAt} ${b.id}` ? -1 : 1));
}

/** A record without a pid is being made; one that stays so is left by a launch that was cut off. */
const LIST = `now
stale=
for d in "$folder"/proc_*; do
  [ -d "$d" ] || continue
  since= retention=${Math.ceil(limits.processRetentionMs / 1000)}
  if [ -e "$d/exit" ] && ended_as "$d"; then
    since=$ended
    [ "$endboot" = "$boot" ] || since=0
  elif [ ! -e "$d/pid" ]; then
    { read -r since <"$d/began"; } 2>/dev/null
    retention=60
  fi
  if [ "$since" ] && [ $((\${since%.*} + retention)) -lt "\${up%.*}" ]; then
    stale="$stale \${d##*/}"
    continue
  fi
  [ ! -e "$d/pid" ] || show "$d"
done
[ -z "$stale" ] || (cd "$folder" && rm -rf $stale)
sizes`;

function markerOf(id: string): string {
  return `${PROCESS_VARIABLE}=${id}`;
}
