/**
 * Waits for the ends of many processes in one request, where each wait would be a request of its own. Those that begin at
 * about the same time share one; it comes back at the first end, and the others go on in the next.
 */
import { randomBytes } from "node:crypto";
import { limits } from "../../../src/limits.ts";
import type { ProcessInfo, WaitCondition } from "../../base.ts";
import { quote } from "../quote.ts";
import type { SystemShell } from "../stream.ts";
import { parseRecords, recordScript } from "./record.ts";
import { PAUSE_LIBRARY, RUN_MS, releaseWait, type WaitEnd } from "./wait.ts";

/** What begins within this time shares a request, milliseconds. */
const JOIN_MS = 20;

export interface ProcessEnd extends WaitEnd {
  /** As its record was at the end; null when it was not looked at. */
  readonly info: ProcessInfo | null;
}

interface Waiter {
  readonly id: string;
  /** As `performance.now` counts. */
  readonly deadline: number;
  readonly settle: (end: ProcessEnd) => void;
  readonly fail: (error: unknown) => void;
  /** Told by nobody any more. */
  isOver: boolean;
  /** Called when it is given up while a request runs for it. */
  onOver: () => void;
}

export class JoinedWaits {
  readonly #system: SystemShell;
  /** Waiters that no request runs for. */
  #idle: Waiter[] = [];
  #isDue = false;

  constructor(system: SystemShell) {
    this.#system = system;
  }

  /** Waits for the end alone: a condition's port and log are not looked at. @param folder of all records */
  wait(folder: string, id: string, { timeoutMs, abortSignal }: WaitCondition): Promise<ProcessEnd> {
    const { promise, resolve, reject } = Promise.withResolvers<ProcessEnd>();
    const deadline = timeoutMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + timeoutMs;
    const waiter: Waiter = {
      id,
      deadline,
      settle: resolve,
      fail: reject,
      isOver: false,
      onOver: () => {},
    };
    const onAbort = (): void => {
      waiter.isOver = true;
      waiter.onOver();
      resolve({ reason: "aborted", match: null, info: null });
    };
    abortSignal?.addEventListener("abort", onAbort, { once: true });
    if (abortSignal?.aborted) onAbort();
    this.#add(folder, [waiter]);
    return promise.finally(() => abortSignal?.removeEventListener("abort", onAbort));
  }

  #add(folder: string, waiters: readonly Waiter[]): void {
    this.#idle.push(...waiters);
    if (this.#isDue || this.#idle.length === 0) return;
    this.#isDue = true;
    setTimeout(() => {
      this.#isDue = false;
      const members = this.#idle.filter(({ isOver }) => !isOver);
      this.#idle = [];
      if (members.length > 0) void this.#ask(folder, members);
    }, JOIN_MS);
  }

  async #ask(folder: string, members: readonly Waiter[]): Promise<void> {
    const budgetMs = Math.max(
      0,
      Math.min(RUN_MS, ...members.map(({ deadline }) => deadline - performance.now())),
    );
    const ids = [...new Set(members.map(({ id }) => id))];
    // It goes with the record that it lies in.
    const stop = `${folder}/${ids[0]}/stop.${randomBytes(4).toString("hex")}`;
    for (const member of members) {
      member.onOver = () => {
        if (members.every(({ isOver }) => isOver)) releaseWait(this.#system, stop);
      };
    }
    try {
      const { stdout, stderr } = await this.#system.run(endsScript(folder, ids, budgetMs, stop), {
        timeoutMs: budgetMs + limits.fileOpTimeoutMs,
        repeatable: true,
      });
      const ended = readEnds(stdout);
      if (!ended) throw new Error(`The waiting script ended early: ${stderr.trim()}`);
      const now = performance.now();
      for (const member of members) {
        const end = ended(member.id) ?? (member.deadline <= now ? TIMEOUT : null);
        if (end) settle(member, end);
      }
      this.#add(
        folder,
        members.filter(({ isOver }) => !isOver),
      );
    } catch (error) {
      for (const member of members) if (!member.isOver) member.fail(error);
    }
  }
}

const TIMEOUT: ProcessEnd = { reason: "timeout", match: null, info: null };

function settle(waiter: Waiter, end: ProcessEnd): void {
  if (waiter.isOver) return;
  waiter.isOver = true;
  waiter.settle(end);
}

/** First line: processes that have no record. Then the records of those that have ended. */
function readEnds(stdout: Buffer): ((id: string) => ProcessEnd | null) | null {
  const cut = stdout.indexOf(0x0a);
  if (cut < 0) return null;
  const missing = new Set(stdout.toString("latin1", 0, cut).split(" "));
  const records = new Map(parseRecords(stdout.subarray(cut + 1)).map((info) => [info.id, info]));
  return (id) => {
    if (missing.has(id)) return { reason: "missing", match: null, info: null };
    const info = records.get(id);
    return info ? { reason: "exit", match: null, info } : null;
  };
}

/** The first one's FIFO is what is napped on: its own end wakes, and a nap costs no program. */
function endsScript(folder: string, ids: readonly string[], budgetMs: number, stop: string): string {
  return recordScript(
    folder,
    `${PAUSE_LIBRARY}
ids='${ids.join(" ")}' all=$folder
folder=$all/${ids[0] ?? ""}
[ ! -e "$folder/done" ] || events
clock
deadline=$((cs + ${Math.ceil(budgetMs / 10) + 1})) step=2
while :; do
  missing= over=
  for id in $ids; do
    if ! look "$all/$id"; then missing="$missing $id"
    elif [ $status != running ]; then over="$over $id"; fi
  done
  [ -z "$missing$over" ] || break
  clock
  left=$((deadline - cs))
  [ "$left" -gt 0 ] && [ ! -e ${quote(stop)} ] || break
  [ "$step" -le "$left" ] || step=$left
  before=$cs
  nap "$step"
  if [ $how = read ]; then
    clock
    # Its end is seen at the next look; where it still runs, its supervisor was killed and there is nothing to nap on.
    [ $((cs - before)) -ge $((step / 2)) ] || how=sleep
  fi
  step=$((step * 3 / 2 + 1))
  [ "$step" -le 25 ] || step=25
done
printf '%s\\n' "$missing"
for id in $over; do show "$all/$id"; done
folder=$all
sizes`,
  );
}
