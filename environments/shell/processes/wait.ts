/**
 * Waits inside the environment, in one run, for the end of a process, a port or new log bytes. Bash and BusyBox
 * sh wait on the `done` FIFO and wake the moment the supervisor ends; a shell whose `read` knows no timeout sleeps in
 * steps that grow to a quarter of a second.
 */
import { randomBytes } from "node:crypto";
import { StringDecoder } from "node:string_decoder";
import { isMoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import type { WaitCondition } from "../../base.ts";
import { quote } from "../quote.ts";
import type { SystemShell } from "../stream.ts";
import { recordScript } from "./record.ts";

/** Longest single run, milliseconds; a longer wait is several. */
export const RUN_MS = 300_000;
/** Characters of the log that a pattern can reach back over. */
const WINDOW_CHARS = 65_536;

/** How the waiting script ends. */
const OUTCOMES = { 10: "exit", 11: "port", 12: "timeout", 2: "missing" } as const;

export interface WaitEnd {
  readonly reason: "exit" | "log" | "port" | "timeout" | "aborted" | "missing";
  readonly match: string | null;
}

/**
 * Waits for the first condition that holds. Answers at once on a match or an abort; the script inside ends by
 * itself soon after. A wait changes nothing, so a broken connection is tried again.
 */
export async function waitFor(
  system: SystemShell,
  folder: string,
  condition: WaitCondition,
): Promise<WaitEnd> {
  const { timeoutMs, abortSignal } = condition;
  const deadline = timeoutMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + timeoutMs;
  const scanner = condition.logPattern === undefined ? null : createLogScanner(condition.logPattern);
  for (let losses = 0; ; ) {
    if (abortSignal?.aborted) return { reason: "aborted", match: null };
    const leftMs = Math.max(0, deadline - performance.now());
    const budgetMs = Math.min(leftMs, RUN_MS);
    const early = Promise.withResolvers<"early">();
    const onAbort = (): void => early.resolve("early");
    abortSignal?.addEventListener("abort", onAbort, { once: true });
    const stop = `${folder}/stop.${randomBytes(4).toString("hex")}`;
    const script = waitScript(folder, condition, { logBytes: scanner?.bytes ?? 0, budgetMs, stop });
    const running = system.run(script, {
      timeoutMs: budgetMs + limits.fileOpTimeoutMs,
      live: scanner !== null,
      onStdout: (chunk) => {
        if (scanner && scanner.push(chunk) !== null) early.resolve("early");
      },
    });
    try {
      const end = await Promise.race([running, early.promise]);
      if (end === "early") {
        running.catch(() => undefined); // nobody waits for it
        releaseWait(system, stop);
      }
      if (scanner && scanner.match !== null) return { reason: "log", match: scanner.match };
      if (end === "early") return { reason: "aborted", match: null };
      const reason = OUTCOMES[end.exitCode as keyof typeof OUTCOMES];
      if (!reason) throw new Error(`The waiting script ended with ${end.exitCode}: ${end.stderr.trim()}`);
      if (reason !== "timeout") return { reason, match: null };
      if (budgetMs >= leftMs) return { reason: "timeout", match: null };
    } catch (error) {
      losses += 1;
      if (!isMoorageError(error, "EXECUTION_UNKNOWN") || losses > 3) throw error;
    } finally {
      abortSignal?.removeEventListener("abort", onAbort);
    }
  }
}

/** Lets a waiting script end. It also ends when its record or its environment goes, so failures do not matter. */
export function releaseWait(system: SystemShell, stop: string): void {
  system.run(`: >${quote(stop)}`).catch(() => undefined);
}

interface LogScanner {
  /** Bytes taken so far. */
  readonly bytes: number;
  readonly match: string | null;
  /** @returns the match, once there is one */
  push(chunk: Buffer): string | null;
}

/** Searches a growing log; keeps the last part of what did not match, from a line start where there is one. */
export function createLogScanner(pattern: RegExp | string): LogScanner {
  const regExp =
    typeof pattern === "string"
      ? new RegExp(pattern.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"))
      : new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, ""));
  const window = Math.max(WINDOW_CHARS, typeof pattern === "string" ? pattern.length * 2 : 0);
  const decoder = new StringDecoder("utf8");
  let held = "";
  let bytes = 0;
  let match: string | null = null;
  return {
    get bytes() {
      return bytes;
    },
    get match() {
      return match;
    },
    push(chunk) {
      bytes += chunk.length;
      if (match !== null) return match;
      held += decoder.write(chunk);
      match = regExp.exec(held)?.[0] ?? null;
      if (held.length > window) {
        const cut = held.length - window;
        const line = held.indexOf("\n", cut);
        held = held.slice(line < 0 ? cut : line + 1);
      }
      return match;
    },
  };
}

/**
 * `clock`: sets `cs`, hundredths of a second. `events`: opens the FIFO as descriptor 6, reading end only, and
 * finds whether `read` can wait on it. `nap CS`: waits, or returns at once when the process has ended.
 */
export const PAUSE_LIBRARY = `
clock() { now; cs=\${up%.*}\${up#*.}; }
how=sleep
events() {
  exec 8<>"$folder/done" 6<"$folder/done"
  exec 8>&-
  s=
  read -r -t 0.01 s 2>/dev/null <<END_OF_LINE
ok
END_OF_LINE
  [ "$s" = ok ] && how=read
}
nap() {
  part=$(($1 % 100))
  [ "$part" -ge 10 ] || part=0$part
  if [ $how = read ]; then read -r -t "$(($1 / 100)).$part" s <&6
  else sleep "$(($1 / 100)).$part" 2>/dev/null || sleep 1; fi
}
`;

/**
 * `listening HEX DECIMAL`: by the kernel's table, elsewhere by netstat. By grep, since a shell that reads the table line
 * by line goes back after each one, and the kernel then makes all lines before it anew.
 */
const LISTENING = `listening() {
  if [ -r /proc/net/tcp ]; then grep -qsE ":$1 0+:0000 0A " /proc/net/tcp /proc/net/tcp6
  else netstat -an 2>/dev/null | grep -q "[.:]$2 .*LISTEN"; fi
}`;

/** Whether something inside the environment listens on this TCP port. */
export async function isListening(system: SystemShell, port: number): Promise<boolean> {
  const script = `IFS=' 	
'
${LISTENING}
listening ${portHex(port)} ${port}`;
  const { exitCode } = await system.run(script, { repeatable: true });
  return exitCode === 0;
}

function portHex(port: number): string {
  return port.toString(16).toUpperCase().padStart(4, "0");
}

interface WaitRun {
  /** Bytes of the log that an earlier run gave. */
  readonly logBytes: number;
  readonly budgetMs: number;
  /** A file that ends the wait when it appears. */
  readonly stop: string;
}

function waitScript(folder: string, condition: WaitCondition, { logBytes, budgetMs, stop }: WaitRun): string {
  const { logPattern, port } = condition;
  const polled = logPattern !== undefined || port !== undefined;
  const readLog = logPattern === undefined ? ":" : "cat <&5";
  const testPort = port === undefined ? "false" : `listening ${portHex(port)} ${port}`;
  const first = logBytes > 0 ? `tail -c +${logBytes + 1} <&5` : "cat <&5";
  return recordScript(
    folder,
    `${PAUSE_LIBRARY}
${LISTENING}
look "$folder" || exit 2
events
${logPattern === undefined ? "" : `exec 5<"$folder/log"\n${first}`}
clock
deadline=$((cs + ${Math.round(budgetMs / 10)})) step=2 longest=25
${polled ? "" : "[ $how = sleep ] || step=100 longest=100"}
while :; do
  look "$folder" || exit 2
  ${readLog}
  if ${testPort}; then exit 11; fi
  [ $status = running ] || exit 10
  clock
  left=$((deadline - cs))
  [ "$left" -gt 0 ] || exit 12
  [ ! -e ${quote(stop)} ] || exit 12
  [ "$step" -le "$left" ] || step=$left
  before=$cs
  nap "$step"
  if [ $how = read ]; then
    # An end of file while it still runs: its supervisor was killed, and there is nothing to wake us.
    clock
    look "$folder" || exit 2
    [ $status != running ] || [ $((cs - before)) -ge $((step / 2)) ] || how=sleep step=2 longest=25
  fi
  step=$((step * 3 / 2 + 1))
  [ "$step" -le "$longest" ] || step=$longest
done`,
  );
}
