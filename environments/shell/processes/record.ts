/**
 * What is known of a background process, as files of the environment: one folder `<private>/p/<id>` for each, so
 * that any orchestrator that reaches the environment finds it. Written by the launcher (`meta`, `command`), by the
 * process at its birth (`pid`), by its supervisor (`supervisor`, `holder`, `keeper`, `exit`) and by what is done to it
 * (`killed`, `eof`). `log` is stdout and stderr; `in` is stdin; `done` is a FIFO that the supervisor holds open, so that
 * a reader meets its end when the process has ended.
 *
 * A pid counts only with its start time and the machine's boot id: pids are used again.
 */
import type { ProcessInfo, ProcessStatus } from "../../base.ts";
import { quote } from "../quote.ts";
import type { SystemShell } from "../stream.ts";

/** Variable in the environ of everything that a background process starts. */
export const PROCESS_VARIABLE = "MOORAGE_PROCESS";

/** Worker id that background processes and their supervisors carry: none of an environment's resident shells. */
export function processWorkerId(environmentId: string): string {
  return `${environmentId}.process`;
}

/** Characters of a command that a record shows. */
export const SHOWN_COMMAND_CHARS = 1_000;

/** The part of a record that never changes, stored as one line of JSON. */
export interface RecordMeta {
  readonly command: string;
  readonly title: string | null;
  readonly cwd: string;
  readonly startedAt: string;
  readonly pty: boolean;
}

/** The folder of all records. */
export async function recordsFolder(system: SystemShell): Promise<string> {
  return `${await system.privateDir()}/p`;
}

/**
 * Shell functions over records.
 * `now`: sets `up`, seconds since the boot. `alive PID START`. `look FOLDER`: sets `status`, `code`, `ended`, `pid`,
 * `group` and settles a process that was lost. `show FOLDER`: prints it. `sizes`: prints the shown logs' sizes.
 * An `exit` without its line end is being written and does not count yet.
 */
export const RECORD_LIBRARY = `
IFS=' \t
'
boot=-
{ read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
now() { { read -r up s </proc/uptime; } 2>/dev/null || up=$(date +%s).00; }
alive() {
  if [ ! -r /proc/self/stat ]; then kill -0 "$1" 2>/dev/null; return; fi
  { IFS= read -r s <"/proc/$1/stat"; } 2>/dev/null || return 1
  set -- "$2" \${s##*) }
  [ "$1" = "\${21}" ] || return 1
  group=$4 terminal=$7
  case $2 in Z | X | x) return 1 ;; esac
}
ended_as() {
  { read -r code ended endboot <"$1/exit"; } 2>/dev/null || return 1
  case $code in lost) status=lost code= ;; *) status=exited ;; esac
  [ ! -e "$1/killed" ] || status=killed
}
look() {
  code= ended= pid= start= born= group= terminal=
  { read -r pid start born <"$1/pid"; } 2>/dev/null || return 1
  ended_as "$1" && return 0
  if [ "$born" = "$boot" ]; then
    status=running
    alive "$pid" "$start" && return 0
    helper= helperstart=
    { read -r helper helperstart <"$1/supervisor"; } 2>/dev/null
    if [ "$helper" ] && alive "$helper" "$helperstart"; then return 0; fi
    ended_as "$1" && return 0
  fi
  now
  printf 'lost %s %s\\n' "$up" "$boot" >"$1/exit"
  ended_as "$1"
}
shown=
show() {
  look "$1" || return 0
  began= stdin=open cut=-
  [ ! -e "$1/cut" ] || cut=cut
  read -r began <"$1/began"
  [ ! -e "$1/eof" ] || stdin=closed
  [ -e "$1/in" ] || stdin=closed
  printf '%s\\n' "\${1##*/} $status \${code:--} $began \${ended:--} $pid $stdin $cut"
  IFS= read -r line <"$1/meta"
  printf '%s\\n' "$line"
  shown="$shown \${1##*/}"
}
sizes() {
  [ "$shown" ] || return 0
  files=
  for id in $shown; do files="$files $id/log"; done
  cd "$folder" && exec ls -ln $files
}
`;

/** A script that begins with the library and with `folder` set. */
export function recordScript(folder: string, body: string): string {
  return `folder=${quote(folder)}\n${RECORD_LIBRARY}\n${body}`;
}

/** Reads what `show` and `sizes` printed. */
export function parseRecords(stdout: Buffer): ProcessInfo[] {
  const lines = stdout.toString("utf8").split("\n");
  const found: ProcessInfo[] = [];
  let at = 0;
  for (; lines[at]?.startsWith("proc_"); at += 2)
    found.push(parseRecord(lines[at] ?? "", lines[at + 1] ?? ""));
  const bytes = new Map<string, number>();
  for (const line of lines.slice(at)) {
    const match = /^\S+ +\S+ +\S+ +\S+ +(\d+) .* (proc_[0-9a-f]+)\/log$/.exec(line);
    if (match?.[1] && match[2]) bytes.set(match[2], Number(match[1]));
  }
  return found.map((info) => ({ ...info, logBytes: bytes.get(info.id) ?? 0 }));
}

function parseRecord(head: string, json: string): ProcessInfo {
  const [id = "", status = "", code = "", began = "", ended = "", pid = "", stdin = "", cut = ""] =
    head.split(" ");
  // The launcher wrote it; nobody else can write to the private folder but the user whose commands these are.
  const meta = JSON.parse(json) as RecordMeta;
  const lifeMs = Math.max(0, Math.round((Number(ended) - Number(began)) * 1000));
  const isKnown = status === "exited" || (status === "killed" && code !== "-");
  return {
    id,
    command: meta.command,
    cwd: meta.cwd,
    pid: Number(pid),
    // `look` knows no other word.
    status: status as ProcessStatus,
    exitCode: isKnown ? Number(code) : null,
    startedAt: meta.startedAt,
    endedAt: isKnown ? new Date(Date.parse(meta.startedAt) + lifeMs).toISOString() : null,
    pty: meta.pty,
    stdinOpen: status === "running" && stdin === "open",
    logBytes: 0,
    logTruncated: cut === "cut",
  };
}
