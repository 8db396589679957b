/** Which of the processes that were just adopted by init belong to a worker, or hold its streams. */
import type { SystemShell } from "./stream.ts";
import type { CallWorker } from "./worker.ts";

/** A process that holds the outputs of a resident shell belongs to it. */
function holdsStream(pid: number): string {
  return `for f in /proc/$p/fd/*; do
      if [ "$f" -ef /proc/${pid}/fd/8 ] || [ "$f" -ef /proc/${pid}/fd/9 ]; then found=1; break; fi
    done`;
}

/** Shell builtins only: no fork, since this stands between a command's end and its result. */
export async function ownedOrphans(
  system: SystemShell,
  worker: CallWorker,
  orphans: readonly number[],
): Promise<number[]> {
  const stream = worker.shellPid;
  const script = `for p in ${orphans.join(" ")}; do
  found=
  { while IFS= read -r l || [ -n "$l" ]; do
    case $l in *${worker.marker}*) found=1; break;; esac
  done; } </proc/$p/environ
  if [ -z "$found" ]; then
    ${stream === null ? ":" : holdsStream(stream)}
  fi
  [ -z "$found" ] || echo "$p"
done 2>/dev/null
:`;
  const { stdout } = await system.run(script);
  return stdout
    .toString("latin1")
    .split("\n")
    .filter((line) => line !== "")
    .map(Number);
}
