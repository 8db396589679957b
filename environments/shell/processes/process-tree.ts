/**
 * Finds and ends whole process trees inside an environment: everything that carries a marker variable in its
 * initial environ (setsid, nohup and double forks keep it), everything in a group or session that such a process
 * leads, and all their descendants, once seen never forgotten.
 *
 * The scripts use shell builtins only, so that they work when no further process can be forked; waiting is done
 * here, between runs. Where there is no /proc, `ps` is asked, and three things are weaker: it needs a fork, it
 * shows the variables of the caller's own processes only, and a reused pid cannot be told from its predecessor.
 * Nowhere can a daemon be found that left its tree and its group and overwrote or cleared its environ.
 */
import { limits } from "../../../src/limits.ts";
import type { LeftProcess } from "../../base.ts";
import { READ_ENVIRON } from "../phrases.ts";
import type { SystemShell } from "../stream.ts";

export interface FindRequest {
  /** `NAME=value`; the value random and of fixed length, since it is searched as text. */
  readonly marker: string | readonly string[];
  /** Processes never to be reported or ended; their marked descendants are. */
  readonly exceptPids?: readonly number[];
  /** Roots beside the marked ones, with their descendants and the members of groups that they lead. */
  readonly pids?: readonly number[];
  /**
   * A living process that no member is older than, such as the one that all others come from. Older ones are then not
   * looked at, which saves most of the time where many run.
   */
  readonly sincePid?: number;
  /** The same as a time: ticks since boot. */
  readonly sinceTicks?: string | null;
}

export interface EndRequest extends FindRequest {
  /** TERM to KILL, milliseconds. @default limits.killGraceMs */
  readonly graceMs?: number;
}

/** Lists the living processes of a tree; zombies do not count. */
export async function findProcesses(
  system: SystemShell,
  request: FindRequest,
): Promise<readonly LeftProcess[]> {
  const { processes } = await scan(system, request, { step: "scan; report", ...beginning(request) });
  return processes;
}

/** On a machine so loaded that one look takes the whole time, what was ended is looked for this often all the same. */
const MIN_LOOKS = 3;

/**
 * Ends a tree: TERM (stopped processes are continued so that they can obey), after the grace STOP until nothing
 * new appears, then KILL, and looks until all are gone or `limits.killVerifyMs` have passed.
 *
 * @returns what is still alive
 */
export async function endTree(system: SystemShell, request: EndRequest): Promise<LeftProcess[]> {
  let memory = beginning(request);
  const until = async (step: string, budgetMs: number): Promise<LeftProcess[]> => {
    const deadline = performance.now() + budgetMs;
    for (let pauseMs = 15, looks = 1; ; pauseMs = Math.min(pauseMs * 1.5, 200), looks += 1) {
      let found = await scan(system, request, { step, ...memory });
      if (found.processes.length === 0 && found.clear !== "" && usesGrep(system, request)) {
        // What grep met in the middle of an exec was taken for cleared: look at all once more.
        found = await scan(system, request, { step, ...found, clear: "" });
      }
      memory = found;
      const leftMs = deadline - performance.now();
      if (found.processes.length === 0 || (leftMs <= 0 && looks >= MIN_LOOKS)) return found.processes;
      await new Promise((resolve) => setTimeout(resolve, leftMs > 0 ? Math.min(pauseMs, leftMs) : pauseMs));
    }
  };
  const obstinate = await until("scan; ask; report", request.graceMs ?? limits.killGraceMs);
  if (obstinate.length === 0) return [];
  return until("freeze; end; scan; report", limits.killVerifyMs);
}

/**
 * Finds a member whose parent is a server of SSH, which has a process for each of its connections: one whose connection
 * lives is still heard.
 */
const HEARD = `
heard() {
  for row in $table; do
    IFS=:
    set -- $row
    IFS=' 	
'
    case "$live " in *" $1:$2 "*) ;; *) continue ;; esac
    name=
    { IFS= read -r name <"/proc/$3/comm"; } 2>/dev/null
    case $name in sshd* | dropbear*) return 0 ;; esac
  done
  return 1
}`;

/**
 * A script that ends a tree by itself: TERM, a second later KILL. For a shell that finds its orchestrator gone, when
 * nobody is left to look again. While another connection has members, the orchestrator is not gone, and ends itself what
 * was left; that too may end, and is looked for more and more rarely.
 */
export function lastWill(marker: string): string {
  return `${preamble({ marker }, NO_MEMORY, "grep")}${HEARD}
scan; pause=1
while heard; do sleep $pause || break; [ $pause -ge 30 ] || pause=$((pause * 2)); scan; done
ask
[ -z "$live" ] || { sleep 1; freeze; end; }`;
}

/** `pid:start` keys of the tree so far and of processes known not to belong to it. */
interface Memory {
  readonly tree: string;
  readonly clear: string;
  /** Start time of `sincePid`, kept since that process may end first. */
  readonly since: string;
}

const NO_MEMORY: Memory = { tree: "", clear: "", since: "" };

function beginning({ sinceTicks }: FindRequest): Memory {
  return { ...NO_MEMORY, since: sinceTicks ?? "" };
}

async function scan(
  system: SystemShell,
  request: FindRequest,
  { step, ...memory }: Memory & { readonly step: string },
): Promise<Memory & { readonly processes: LeftProcess[] }> {
  // What is asked to end twice ends no more than once.
  const run = (search: Search) =>
    system.run(`${preamble(request, memory, search)}\n${step}`, { repeatable: true });
  const search = usesGrep(system, request) && memory.clear === "" ? "grep" : "builtin";
  const found = await run(search);
  // A program could not be started, perhaps because nothing more can be forked.
  const { stdout } = found.exitCode === 0 || search === "builtin" ? found : await run("builtin");
  return parse(stdout);
}

/**
 * How environs are searched. bash reads them by blocks itself; dash and BusyBox sh read byte by byte, which takes
 * seconds on a machine with many processes, so there `grep` looks first, unless only few are young enough.
 */
type Search = "builtin" | "grep";

function usesGrep(system: SystemShell, request: FindRequest): boolean {
  return system.shell !== "bash" && request.sincePid === undefined && !request.sinceTicks;
}

function preamble(request: FindRequest, memory: Memory, search: Search): string {
  const { tree, clear } = memory;
  const markers = typeof request.marker === "string" ? [request.marker] : request.marker;
  return [
    `tree=' ${tree}' clear=' ${clear}' roots=' ${pidList(request.pids)}' except=' 1 ${pidList(request.exceptPids)}'`,
    search === "grep"
      ? `marks() { printf 'x\\000${markers[0]}' | LC_ALL=C grep -lsF ${markers.map((marker) => `-e ${marker}`).join(" ")} - /proc/[0-9]*/environ; }`
      : "marks() { :; }",
    `search=${search}`,
    `marked() { case $1 in ${markers.map(pattern).join("|") || "''"}) return 0 ;; esac; return 1; }`,
    LIBRARY,
    memory.since === "" ? `born ${request.sincePid ?? 0}` : `since=${memory.since}`,
  ].join("\n");
}

/** The marker as a pattern of `case`. */
function pattern(marker: string): string {
  if (!/^[A-Za-z_][A-Za-z0-9_]*=[A-Za-z0-9_.-]+$/.test(marker)) {
    throw new RangeError(`Marker "${marker}" is not NAME=value of plain characters`);
  }
  return `*${marker}*`;
}

function pidList(pids: readonly number[] = []): string {
  return pids.map((pid) => `${pid} `).join("");
}

function parse(stdout: Buffer): Memory & { readonly processes: LeftProcess[] } {
  // latin1 keeps one character per byte, so that byte counts and offsets agree.
  const text = stdout.toString("latin1");
  const head = text.split("\n", 4);
  const [tree = "", clear = "", since = "", count = "0"] = head;
  let at = head.reduce((sum, line) => sum + line.length + 1, 0);
  const rows: { readonly pid: number; readonly name: string }[] = [];
  for (let index = 0; index < Number(count); index += 1) {
    const end = text.indexOf("\n", at);
    const line = text.slice(at, end);
    const space = line.indexOf(" ");
    rows.push({ pid: Number(line.slice(0, space)), name: line.slice(space + 1) });
    at = end + 1;
  }
  const processes = rows.map(({ pid, name }) => {
    const header = `==> /proc/${pid}/cmdline <==\n`;
    const start = text.indexOf(header, at);
    let command = "";
    if (start >= 0) {
      at = start + header.length;
      const end = text.indexOf("\n==> /", at);
      command = text.slice(at, end < 0 ? undefined : end).replace(/\0+$/, "");
    }
    const bytes = Buffer.from(command || `[${name}]`, "latin1");
    const line = bytes
      .toString("utf8")
      .replace(/[\0-\x1f\x7f]+/g, " ")
      .trim();
    return { pid, command: line.slice(0, 200) };
  });
  return { tree: `${tree.trim()} `.trimStart(), clear: `${clear.trim()} `.trimStart(), since, processes };
}

/**
 * scan: sets `live` to the keys of all living members, `stopped` to the stopped ones, `fresh` when new ones came.
 * A stat line is cut after its last `) `, since a name may hold anything. What `environ` has not seen whole is never
 * remembered as cleared. Kernel threads have flag 0x200000.
 * The last step prints what was found and becomes `head`, which needs no fork.
 */
const LIBRARY = String.raw`
IFS=' 	
'
${READ_ENVIRON}
self() {
  { IFS= read -r s </proc/self/stat; } 2>/dev/null || return 0
  p=\${s%% *}
  while [ "$p" -gt 1 ]; do
    except="$except$p "
    { IFS= read -r s <"/proc/$p/stat"; } 2>/dev/null || return 0
    set -- \${s##*) }
    p=$2
  done
}
variables() {
  seen=
  if [ "$search" = grep ]; then
    case $marks in *"/proc/$1/environ"*) return 0 ;; esac
    [ "$2" -ge "$edge" ] || { seen=1; return 1; }
  fi
  environ "$1"
}
born() {
  since=0
  { IFS= read -r s <"/proc/$1/stat"; } 2>/dev/null || return 0
  set -- \${s##*) }
  since=\${20}
}
rows() {
  # Processes that end meanwhile make grep answer 2, with or without a match.
  marks=$(marks)
  case $? in 126 | 127) exit 127 ;; esac
  # BusyBox grep sees nothing after a NUL, as in the sample on its standard input.
  case $marks in *"standard input"*) ;; *) search=builtin ;; esac
  # Younger than two seconds, in ticks: it may have been between a fork and an exec when grep came by.
  edge=0
  { read -r s p </proc/uptime; } 2>/dev/null && edge=$((\${s%.*}\${s#*.} - 200))
  # By number, so that a shell is ended before the program it waits for, whose end it would tell.
  for d in /proc/[0-9] /proc/[0-9][0-9] /proc/[0-9][0-9][0-9] /proc/[0-9][0-9][0-9][0-9] /proc/[0-9][0-9][0-9][0-9][0-9] \
    /proc/[0-9][0-9][0-9][0-9][0-9][0-9] /proc/[0-9][0-9][0-9][0-9][0-9][0-9][0-9]; do
    p=\${d#/proc/}
    case $except in *" $p "*) continue ;; esac
    { IFS= read -r s <"$d/stat"; } 2>/dev/null || continue
    set -- \${s##*) }
    [ "$(($7 & 2097152))" = 0 ] && [ "\${20}" -ge "$since" ] || continue
    key=$p:\${20}
    case $1 in Z | X | x) ;; *)
      case $tree in *" $key "*) ;; *)
        case $clear in *" $key "*) ;; *)
          case $roots in
          *" $p "*) tree="$tree$key " fresh=1 ;;
          *)
            if variables "$p" "\${20}"; then tree="$tree$key " fresh=1
            elif [ "$seen" ]; then clear="$clear$key "; fi ;;
          esac ;;
        esac ;;
      esac ;;
    esac
    table="$table $key:$2:$3:$4:$1"
  done
}
rows_ps() {
  listing=$(ps -axEww -o pid= -o ppid= -o pgid= -o stat= -o command= 2>/dev/null || ps axeww -o pid= -o ppid= -o pgid= -o stat= -o command=)
  while read -r p parent group state rest; do
    case $except in *" $p "*) continue ;; esac
    key=$p:0
    case $tree$roots in
    *" $key "*) ;;
    *" $p "*) tree="$tree$key " fresh=1 ;;
    *) case $state in Z*) ;; *) if marked "$rest"; then tree="$tree$key " fresh=1; fi ;; esac ;;
    esac
    table="$table $key:$parent:$group:$group:\${state%"\${state#?}"}"
  done <<END_OF_LISTING
$listing
END_OF_LISTING
}
scan() {
  table= live= stopped= fresh= again=1
  if [ -r /proc/self/stat ]; then rows; else rows_ps; fi
  while [ "$again" ]; do
    again= members=' '
    for row in $table; do
      key=\${row%:*:*:*:*}
      case $tree in *" $key "*) members="$members\${row%%:*} " ;; esac
    done
    for row in $table; do
      IFS=:
      set -- $row
      IFS=' 	
'
      case $tree in *" $1:$2 "*) continue ;; esac
      case $members in
      *" $3 "* | *" $4 "* | *" $5 "*) tree="$tree$1:$2 " members="$members$1 " again=1 fresh=1 ;;
      esac
    done
  done
  # Numbers begin anew at the last one: who comes after a younger one by number is older, and goes first.
  part= last=0
  for row in $table; do
    key=\${row%:*:*:*:*}
    case $tree in *" $key "*)
      case $row in *:[ZXx]) continue ;; esac
      [ "\${key#*:}" -ge "$last" ] || live=$part$live part=
      last=\${key#*:} part="$part $key"
      case $row in *:[Tt]) stopped="$stopped $key" ;; esac ;;
    esac
  done
  live=$part$live
}
ask() {
  for key in $live; do
    case $asked in *" $key "*) ;; *) kill -TERM "\${key%%:*}" ;; esac
  done 2>/dev/null
  for key in $stopped; do kill -CONT "\${key%%:*}"; done 2>/dev/null
}
freeze() {
  rounds=0
  scan
  while [ "$rounds" -lt 200 ]; do
    rounds=$((rounds + 1))
    for key in $live; do kill -STOP "\${key%%:*}"; done 2>/dev/null
    scan
    [ "$fresh" ] || return 0
  done
}
end() { for key in $live; do kill -KILL "\${key%%:*}"; done 2>/dev/null; }
report() {
  count=0 files=
  for key in $live; do count=$((count + 1)); done
  printf '%s\n%s\n%s\n%s\n' "$tree" "$clear" "$since" "$count"
  for key in $live; do
    p=\${key%%:*} s=
    { IFS= read -r s <"/proc/$p/stat"; } 2>/dev/null
    s=\${s#*\(}
    printf '%s %s\n' "$p" "\${s%\)*}"
    files="$files /proc/$p/cmdline"
  done
  [ "$count" = 0 ] || exec head -c 600 $files /dev/null 2>/dev/null
  return 0
}
self
asked=$tree
`.replaceAll("\\${", "${");
