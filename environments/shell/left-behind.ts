/** Which of the processes that were just adopted by init belong to a worker, or hold its streams. */
import { childrenScript, READ_ENVIRON } from "./phrases.ts";
import type { SystemShell } from "./stream.ts";
import type { CallEnd, CallWorker } from "./worker.ts";

/** A process that holds the outputs of a resident shell belongs to it. */
function holdsStream(pid: number): string {
  return `for f in /proc/$1/fd/*; do
      if [ "$f" -ef /proc/${pid}/fd/8 ] || [ "$f" -ef /proc/${pid}/fd/9 ]; then found=1; break; fi
    done`;
}

/**
 * One that ended before it could be looked at may have left a child of its own, which is adopted by then: all who are
 * adopted since and no older than the worker's shell are looked at anew, until none has gone. One that is about to end
 * has lost its variables before its children are adopted, so it is waited for, and one that begins another program has
 * none for a moment, so it is looked at anew.
 */
function lookAgain(reaper: string, shellPid: number | null): string {
  const since =
    shellPid === null ? "" : `IFS= read -r s </proc/${shellPid}/stat; set -- \${s##*) }; since=\${20:-0}`;
  return `since=0 rounds=0
${since}
while [ "$gone" ] && [ $rounds -lt 50 ]; do
  gone= rounds=$((rounds + 1)) __moor_a= was=$dying dying=
  # It has to get its turn on a busy machine.
  [ -z "$was" ] || [ $rounds -lt 5 ] || sleep 0.02
  for p in $was; do
    { IFS= read -r s </proc/$p/stat; } || continue
    case \${s##*) } in [ZX]*) ;; *) look $p ;; esac
  done
  ${childrenScript(reaper)}
  for p in $__moor_a; do
    case $known in *" $p "*) continue ;; esac
    known="$known$p "
    IFS= read -r s </proc/$p/stat || { gone=1; continue; }
    set -- \${s##*) }
    [ "\${20}" -lt "$since" ] || look $p
  done
done`;
}

/** Shell builtins only, but for a rare wait: no fork, since this stands between a command's end and its result. */
export async function ownedOrphans(
  system: SystemShell,
  worker: CallWorker,
  { newOrphans, adopted, ownOrphans = [] }: Pick<CallEnd, "newOrphans" | "adopted" | "ownOrphans">,
): Promise<readonly number[]> {
  const orphans = newOrphans.filter((pid) => !ownOrphans.includes(pid));
  if (orphans.length === 0) return ownOrphans;
  const stream = worker.shellPid;
  const { reaper } = worker.facts;
  const script = `known=' ${adopted.join(" ")} ' gone= dying=
marked() { case $1 in *${worker.marker}*) return 0 ;; esac; return 1; }
${READ_ENVIRON}
look() {
  found= seen=
  if environ $1; then found=1; fi
  if [ -z "$found" ]; then
    ${stream === null ? ":" : holdsStream(stream)}
  fi
  if [ "$found" ]; then echo "$1"
  elif [ -z "$seen" ] && [ -r /proc/$1/environ ]; then gone=1 dying="$dying $1"
  elif IFS= read -r s </proc/$1/stat; then
    case \${s##*) } in [ZX]*) gone=1;; esac
  else gone=1; fi
}
{ for p in ${orphans.join(" ")}; do look $p; done
${reaper === null ? "" : lookAgain(reaper, stream)}
} 2>/dev/null
:`;
  const { stdout } = await system.run(script, { repeatable: true });
  const found = stdout
    .toString("latin1")
    .split("\n")
    .filter((line) => line !== "")
    .map(Number);
  return [...ownOrphans, ...found];
}
