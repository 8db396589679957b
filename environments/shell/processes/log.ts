/** Reads the log of a background process by bytes, never cutting a UTF-8 sequence. */
import type { LogSlice } from "../../base.ts";
import type { SystemShell } from "../stream.ts";
import { recordScript } from "./record.ts";

export const LOG_DEFAULT_BYTES = 65_536;

/** Bytes read before and after the slice, to see where sequences begin and end. */
const SLACK = 3;
const BLOCK = 65_536;

/**
 * Null when there is no such process.
 *
 * @param offset first byte; negative counts from the end. One inside a sequence moves to the next one
 * @param maxBytes at least one sequence is given when there is one, so that reading always goes on
 */
export async function readLog(
  system: SystemShell,
  folder: string,
  { offset, maxBytes }: { readonly offset: number; readonly maxBytes: number },
): Promise<LogSlice | null> {
  const script = recordScript(
    folder,
    `look "$folder" || exit 3
set -- $(ls -ln "$folder/log") || exit 3
size=$5 first=${offset}
[ "$first" -ge 0 ] || first=$((size + first))
[ "$first" -ge 0 ] || first=0
[ "$first" -le "$size" ] || first=$size
from=$((first - ${SLACK}))
[ "$from" -ge 0 ] || from=0
block=$((from / ${BLOCK}))
blocks=$(((from + ${maxBytes + 3 * SLACK}) / ${BLOCK} - block + 1))
printf '%s %s %s %s\\n' "$size" "$first" "$((block * ${BLOCK}))" "$status"
exec dd if="$folder/log" bs=${BLOCK} skip="$block" count="$blocks" 2>/dev/null`,
  );
  const { stdout, exitCode } = await system.run(script, { repeatable: true });
  const end = stdout.indexOf(0x0a);
  if (end < 0 || exitCode === 3) return null;
  const words = stdout.subarray(0, end).toString().split(" ");
  const [size = 0, first = 0, base = 0] = words.slice(0, 3).map(Number);
  // Where nothing more can come, a sequence that is cut at the end is given as it is.
  const whole = words[3] !== "running";
  return cut(stdout.subarray(end + 1), { size, first, base, maxBytes, whole });
}

function cut(
  bytes: Buffer,
  at: {
    readonly size: number;
    readonly first: number;
    readonly base: number;
    readonly maxBytes: number;
    readonly whole: boolean;
  },
): LogSlice {
  let start = at.first - at.base;
  const lead = sequenceStart(bytes, start);
  if (lead < start) start = Math.min(bytes.length, lead + sequenceLength(bytes[lead]));
  // What was written after the size was read belongs to the next slice.
  const available = Math.min(bytes.length, at.size - at.base);
  start = Math.min(start, available);
  let stop = Math.min(start + at.maxBytes, available);
  const open = sequenceStart(bytes.subarray(0, available), stop);
  if (open < stop) {
    const full = open + sequenceLength(bytes[open]);
    if (full <= available) stop = open > start ? open : full;
    else stop = at.whole ? available : open;
  }
  return {
    text: bytes.subarray(start, stop).toString("utf8"),
    offset: at.base + start,
    nextOffset: at.base + stop,
    totalBytes: at.size,
  };
}

/** Where the sequence begins that would be cut at `index`; `index` when none is. */
function sequenceStart(bytes: Buffer, index: number): number {
  for (let back = 1; back <= SLACK && back <= index; back += 1) {
    const byte = bytes[index - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    return sequenceLength(byte) > back ? index - back : index;
  }
  return index;
}

function sequenceLength(lead = 0): number {
  if (lead >= 0xf0 && lead < 0xf8) return 4;
  if (lead >= 0xe0) return lead < 0xf0 ? 3 : 1;
  return lead >= 0xc2 ? 2 : 1;
}
