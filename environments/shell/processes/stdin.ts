/** Writes to and ends the stdin of a background process: a FIFO whose writing end a holder keeps open. */
import { MoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import type { SystemShell } from "../stream.ts";
import { recordScript } from "./record.ts";
import { PAUSE_LIBRARY } from "./wait.ts";

const CHUNK_MIN = 64 * 1024;
const CHUNK_MAX = 4 * 1024 * 1024;

/**
 * Writes all of `data`. What nobody reads fills the pipe; a chunk that is not taken within
 * `limits.stdinStallMs` is given up.
 *
 * @throws {MoorageError} PROCESS_NOT_RUNNING, PROCESS_NO_STDIN (closed, or not read), PROCESS_MISSING
 */
export async function writeStdin(
  system: SystemShell,
  folder: string,
  id: string,
  data: Uint8Array,
): Promise<void> {
  let chunkBytes = CHUNK_MIN;
  for (let at = 0; at === 0 || at < data.length; chunkBytes = Math.min(chunkBytes * 2, CHUNK_MAX)) {
    const chunk = data.subarray(at, at + chunkBytes);
    const { exitCode, stderr } = await system.run(recordScript(folder, WRITE), {
      stdin: chunk,
      timeoutMs: limits.stdinStallMs + limits.fileOpTimeoutMs,
    });
    if (exitCode !== 0) throw refusal(exitCode, id, { taken: at, total: data.length, stderr });
    at += Math.max(chunk.length, 1);
  }
}

/** Ends stdin. Idempotent. @throws {MoorageError} PROCESS_NOT_RUNNING, PROCESS_MISSING */
export async function closeStdin(system: SystemShell, folder: string, id: string): Promise<void> {
  const script = recordScript(
    folder,
    `look "$folder" || exit 2
[ ! -e "$folder/eof" ] || exit 0
[ $status = running ] || exit 3
[ -e "$folder/in" ] || exit 0
: >"$folder/eof"
read -r helper helperstart <"$folder/holder" || exit 0
alive "$helper" "$helperstart" && kill -KILL "$helper"
exit 0`,
  );
  const { exitCode, stderr } = await system.run(script);
  if (exitCode !== 0) throw refusal(exitCode, id, { taken: 0, total: 0, stderr });
}

function refusal(
  exitCode: number,
  id: string,
  { taken, total, stderr }: { readonly taken: number; readonly total: number; readonly stderr: string },
): MoorageError {
  const action = `Cannot write to ${id}`;
  const details = { bytesTaken: taken, bytesTotal: total };
  switch (exitCode) {
    case 2:
      return new MoorageError("PROCESS_MISSING", `${action}: its record is gone`, { details });
    case 3:
      return new MoorageError("PROCESS_NOT_RUNNING", `${action}: it has ended`, { details });
    case 4:
      return new MoorageError("PROCESS_NO_STDIN", `${action}: its stdin is closed`, { details });
    case 5:
      return new MoorageError(
        "PROCESS_NO_STDIN",
        `${action}: it did not read for ${limits.stdinStallMs} ms after ${taken} of ${total} bytes`,
        { details, suggestion: "Look at its log: it may be busy, or read its input from elsewhere." },
      );
    default:
      return new MoorageError("INTERNAL", `${action}: ${stderr.trim() || `exit code ${exitCode}`}`, {
        details,
      });
  }
}

/**
 * The write runs beside, since opening a FIFO that nobody reads, or filling it, may never end. By dd: BusyBox cat asks the
 * kernel for one transfer more, which fails when the reader has taken all and gone.
 */
const WRITE = `${PAUSE_LIBRARY}
look "$folder" || exit 2
[ $status = running ] || exit 3
[ -e "$folder/in" ] && [ ! -e "$folder/eof" ] || exit 4
exec 3<&0
(exec dd bs=65536 <&3 >"$folder/in") 2>/dev/null &
writer=$!
{ IFS= read -r s <"/proc/$writer/stat"; } 2>/dev/null || s=') '
set -- \${s##*) }
writerstart=\${20:-0}
clock
deadline=$((cs + ${Math.round(limits.stdinStallMs / 10)})) step=1
while alive "$writer" "$writerstart"; do
  clock
  if [ "$cs" -ge "$deadline" ]; then kill -KILL "$writer"; exit 5; fi
  nap "$step"
  step=$((step * 2))
  [ "$step" -le 10 ] || step=10
done
wait "$writer"
result=$?
[ "$result" = 0 ] && exit 0
look "$folder"
[ "$status" = running ] || exit 3
[ "$result" = 141 ] && exit 4
exit 6`;
