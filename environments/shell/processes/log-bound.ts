/**
 * Keeps the log of a background process within `limits.processLogMaxBytes`.
 *
 * The process writes straight into its log, so that nothing stands between its output and a reader, and its end means
 * that all of it is there. Beside it a keeper looks at the log's size, and cuts what exceeds the limit: the log is
 * open for appending, so that later output follows the cut and is cut in turn. `cut` in the record tells that it was.
 */
import { limits } from "../../../src/limits.ts";

/** Seconds between looks: short once a log has grown large. */
const CALM_SECONDS = 1;
const BUSY_SECONDS = 0.2;
/** A log from this on is watched closely. */
const BUSY_BYTES = 16 * 1024 * 1024;

/**
 * For the supervisor, which has set `d` and `marker`. `left_behind`: whether anything that the process started lives.
 * `bound_log`: goes on until the process and all that it left behind have ended, or the record is gone.
 * dd with nothing to copy cuts its output where it would have begun to write.
 */
export const LOG_BOUND = `left_behind() {
  [ -r /proc/self/environ ] || return 1
  # The grep of BusyBox sees nothing after a NUL.
  cat /proc/[0-9]*/environ 2>/dev/null | tr '\\000' '\\n' | grep -q "$marker"
}
log_bytes() { set -- $(ls -ln "$d/log") && bytes=$5 && [ "$bytes" ]; }
bound_log() {
  exec 7>&- 5>&-
  looks=0
  while log_bytes; do
    pause=${CALM_SECONDS}
    [ "$bytes" -lt ${BUSY_BYTES} ] || pause=${BUSY_SECONDS}
    if [ "$bytes" -gt ${limits.processLogMaxBytes} ]; then
      : >"$d/cut"
      dd if=/dev/null of="$d/log" bs=65536 seek=${Math.floor(limits.processLogMaxBytes / 65_536)} count=0
    fi
    looks=$(((looks + 1) % 5))
    [ $looks != 0 ] || { [ ! -e "$d/exit" ] && kill -0 $$; } || left_behind || break
    sleep $pause || sleep 1
  done
}`;
