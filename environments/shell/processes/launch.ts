/**
 * Starts a background process so that it depends on nothing of ours: neither on the shell that started it nor on
 * the stream, and so that its exit status is kept.
 *
 * The tree is: supervisor (a session of its own, waits and writes `exit`), its holder (keeps stdin's writing end
 * open), its keeper (bounds the log), and the process itself in a second session, so that `kill 0` in a command cannot
 * hit the supervisor. Nothing of it is started with `&`: shells without job control start such commands with SIGINT and
 * SIGQUIT ignored for ever. Instead the supervisor, a foreground child, kills the subshell that waits for it.
 */
import { randomBytes } from "node:crypto";
import { MoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import type { Command, PtySize } from "../../base.ts";
import { quote, quoteAll } from "../quote.ts";
import { oversizedVariables } from "../state.ts";
import type { SystemShell } from "../stream.ts";
import { LOG_BOUND } from "./log-bound.ts";
import {
  PROCESS_VARIABLE,
  processWorkerId,
  type RecordMeta,
  recordScript,
  SHOWN_COMMAND_CHARS,
} from "./record.ts";
import { TERMINAL_PROBE, terminalText } from "./terminal.ts";

export interface LaunchRequest {
  readonly command: Command;
  readonly title: string | null;
  /** Absolute. */
  readonly cwd: string;
  /** Difference to the system shell's variables; null means unset. */
  readonly variables: ReadonlyMap<string, string | null>;
  readonly pty: PtySize | null;
  readonly stdin: boolean;
  readonly environmentId: string;
  /** Variable that marks what a worker started: the process is none of the launching worker's. */
  readonly markerName: string;
}

/** A command text up to this goes into one argument; Linux allows 131,071 bytes. */
const INLINE_BYTES = 100_000;

/** Why nothing was started, as the launcher's exit code. */
const REFUSED = { workdir: 71, special: 72, full: 73, pty: 74, record: 75, start: 76 } as const;

/**
 * @returns the new process's id, or null when `limits.maxProcesses` run already
 * @throws {MoorageError} WORKDIR_MISSING, EXECUTION_REFUSED, UNSUPPORTED (pty), STORAGE_FULL, ENVIRONMENT_*
 */
export async function launch(
  system: SystemShell,
  folder: string,
  request: LaunchRequest,
): Promise<string | null> {
  const text = commandText(request.command);
  const id = `proc_${randomBytes(6).toString("hex")}`;
  const shown = typeof request.command === "string" ? request.command : shownWords(request.command);
  const meta: RecordMeta = {
    command: shown.slice(0, SHOWN_COMMAND_CHARS),
    title: request.title,
    cwd: request.cwd,
    startedAt: new Date().toISOString(),
    pty: request.pty !== null,
  };
  const script = recordScript(
    folder,
    `
d=$folder/${id}
cd -P -- ${quote(request.cwd)} 2>/dev/null || exit ${REFUSED.workdir}
case $PWD/ in /proc/* | /sys/* | /dev/fd/*) exit ${REFUSED.special} ;; esac
cd -L -- ${quote(request.cwd)} || exit ${REFUSED.workdir}
${request.pty ? `{ ${TERMINAL_PROBE}; } || exit ${REFUSED.pty}` : ""}
[ -d "$folder" ] || mkdir -p -m 700 "$folder"
mkdir -m 700 "$d" || exit ${REFUSED.record}
refuse() { rm -rf "$d"; exit "$1"; }
MOORAGE_UMASK=$(umask)
umask 077
count=0
for other in "$folder"/proc_*; do
  [ -e "$other/exit" ] || count=$((count + 1))
done
[ "$count" -le ${limits.maxProcesses} ] || refuse ${REFUSED.full}
mkfifo ${request.stdin ? '"$d/in" ' : ""}"$d/done" "$d/ready" || refuse ${REFUSED.record}
${Buffer.byteLength(text) > INLINE_BYTES ? `printf '%s' ${quote(text)} >"$d/command" &&` : ""}
printf '%s' ${quote(variablesText(request.variables))} >"$d/env" &&
printf '%s\\n' ${quote(JSON.stringify(meta))} >"$d/meta" &&
printf '%s' ${quote(superviseText(folder, id, request.pty !== null))} >"$d/supervise" &&
printf '%s' ${quote(beginText(folder, id, text, request))} >"$d/begin" &&
${request.pty ? `printf '%s' ${quote(terminalText(`${folder}/${id}`, id, request.pty))} >"$d/terminal" &&` : ""}
: >"$d/log" || refuse ${REFUSED.record}
now
printf '%s\\n' "$up" >"$d/began"
MOORAGE_SH=$(command -v sh) || MOORAGE_SH=/bin/sh
MOORAGE_COMMAND_SHELL=${system.shell === "bash" ? '$(command -v bash || printf %s "$BASH")' : "$MOORAGE_SH"}
MOORAGE_LOGIN_SHELL=\${SHELL-}
export MOORAGE_SH MOORAGE_COMMAND_SHELL MOORAGE_LOGIN_SHELL MOORAGE_UMASK
export ${request.markerName}=${quote(processWorkerId(request.environmentId))}
exec 7<>"$d/done" 5<>"$d/ready" 4<"$d/ready"
exec 2>/dev/null
(
  exec </dev/null >/dev/null 3>&- 4>&- 6>&- 8>&- 9>&-
  self=
  { IFS= read -r self </proc/self/stat; } || self=$("$MOORAGE_SH" -c 'echo $PPID')
  ${APART}
  ( apart "$MOORAGE_SH" "$d/supervise" "\${self%% *}" )
  :
)
exec 7>&- 5>&-
read -r answer <&4
[ "$answer" = begun ] || refuse ${REFUSED.start}
printf '%s' ${id}
`,
  );
  const { exitCode, stdout, stderr } = await system.run(script);
  if (exitCode === 0 && stdout.toString() === id) return id;
  if (exitCode === REFUSED.full) return null;
  throw refusal(exitCode, request, stderr);
}

function refusal(exitCode: number, request: LaunchRequest, stderr: string): MoorageError {
  const reason = stderr.trim().split("\n").at(-1) ?? "";
  switch (exitCode) {
    case REFUSED.workdir:
      return new MoorageError("WORKDIR_MISSING", `Cannot start in "${request.cwd}": no such folder`);
    case REFUSED.special:
      return new MoorageError(
        "EXECUTION_REFUSED",
        `Cannot start in "${request.cwd}": it belongs to the kernel`,
      );
    case REFUSED.pty:
      return new MoorageError(
        "UNSUPPORTED",
        "Cannot start on a terminal: the environment has neither util-linux `script` nor python3",
        { suggestion: "Install util-linux or python3 in the environment, or start without pty." },
      );
    case REFUSED.record:
      return new MoorageError("STORAGE_FULL", `Cannot keep a record of the process: ${reason}`);
    default:
      return new MoorageError(
        "EXECUTION_REFUSED",
        `Cannot start the process: ${reason || "it did not begin"}`,
        {
          suggestion: "Free processes or memory in the environment and start it again.",
        },
      );
  }
}

/** `exec` starts the program itself, never a builtin, and leaves no shell behind. */
function commandText(command: Command): string {
  return typeof command === "string" ? command : `exec ${quoteAll(command)}`;
}

/** For people: quoted only where it must be. */
function shownWords(words: readonly string[]): string {
  return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : quote(word))).join(" ");
}

/** Variables too long for the kernel are left out, lest no program could be started. */
function variablesText(variables: ReadonlyMap<string, string | null>): string {
  const tooLong = new Set(oversizedVariables(variables));
  return [...variables]
    .map(([name, value]) =>
      value === null || tooLong.has(name) ? `unset ${name}\n` : `export ${name}=${quote(value)}\n`,
    )
    .join("");
}

/**
 * `apart COMMAND…` becomes it in a session of its own. Where nothing can make one, it stays in the group of the
 * shell that started it and may end with that.
 */
const APART = `
apart() {
  if command -v setsid >/dev/null; then exec setsid "$@"
  elif command -v perl >/dev/null; then exec perl -e 'use POSIX; POSIX::setsid(); exec { $ARGV[0] } @ARGV' "$@"
  elif command -v python3 >/dev/null; then exec python3 -c 'import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])' "$@"
  else exec "$@"; fi
}`;

/**
 * The supervisor; its argument is the pid of the subshell that waits for it. Its traps are for stray signals;
 * children begin with the defaults. It keeps no marker, so that what ends the tree leaves it to write the exit code.
 * At its end it takes its whole group with it, since the keeper may be in a pause that is a process.
 */
function superviseText(folder: string, id: string, pty: boolean): string {
  const begin = pty
    ? `apart "$MOORAGE_SH" "$d/terminal"`
    : `export ${PROCESS_VARIABLE}=${id}\napart "$MOORAGE_SH" "$d/begin"`;
  return `trap : HUP INT QUIT TERM USR1 USR2 ALRM
d=${quote(`${folder}/${id}`)}
boot=- born=0
{ read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
${APART}
started() {
  { IFS= read -r s <"/proc/$1/stat"; } 2>/dev/null || return 0
  set -- \${s##*) }
  born=\${20} group=$3
}
marker=${PROCESS_VARIABLE}=${id}
${LOG_BOUND}
started $$
printf '%s %s\\n' $$ "$born" >"$d/supervisor"
[ "$1" = $$ ] || kill -KILL "$1"
holder=
if [ -e "$d/in" ]; then
  (
    exec 6<"$d/done" 7>&- 5>&-
    exec 8>"$d/in"
    while read -r s <&6; do :; done
  ) &
  holder=$!
  started "$holder"
  printf '%s %s\\n' "$holder" "$born" >"$d/holder"
fi
( bound_log ) &
keeper=$!
started "$keeper"
printf '%s %s\\n' "$keeper" "$born" >"$d/keeper"
(
  exec 7>&- 5>&-
  ${begin}
)
code=$?
{ read -r up s </proc/uptime; } 2>/dev/null || up=$(date +%s).00
printf '%s %s %s\\n' "$code" "$up" "$boot" >"$d/exit"
[ -z "$holder" ] || kill -KILL "$holder"
exec 7>&- 5>&-
left_behind && exit
[ "$group" != $$ ] || kill -KILL 0
kill -KILL "$keeper"
`;
}

/**
 * Becomes the command: records its pid, takes its streams, variables and umask, tells the launcher, and execs the
 * shell. A text that fits is given by -c, so that messages name the shell and a single program replaces it.
 */
function beginText(folder: string, id: string, text: string, request: LaunchRequest): string {
  const streams = request.pty
    ? `stty rows ${request.pty.rows} cols ${request.pty.columns}
trap '' HUP
SHELL=$MOORAGE_LOGIN_SHELL
[ "$SHELL" ] || unset SHELL`
    : `exec <${request.stdin ? '"$2/in"' : "/dev/null"} >>"$2/log" 2>&1`;
  const fits = Buffer.byteLength(text) <= INLINE_BYTES;
  return `set -- "$MOORAGE_COMMAND_SHELL" ${quote(`${folder}/${id}`)} -
{ IFS= read -r moorage_line </proc/sys/kernel/random/boot_id; } 2>/dev/null && set -- "$1" "$2" "$moorage_line"
{ IFS= read -r moorage_line </proc/$$/stat; } 2>/dev/null && set -- "$1" "$2" "$3" \${moorage_line##*) }
printf '%s %s %s\\n' $$ "\${23:-0}" "$3" >"$2/pid"
${streams}
umask "$MOORAGE_UMASK"
unset moorage_line MOORAGE_UMASK MOORAGE_COMMAND_SHELL MOORAGE_LOGIN_SHELL MOORAGE_SH
printf 'begun\\n' >"$2/ready"
. "$2/env"
: >"$2/env"
${fits ? `exec "$1" -c ${quote(text)} "\${1##*/}"` : `exec "$1" -c '. "$0"' "$2/command"`}
`;
}
