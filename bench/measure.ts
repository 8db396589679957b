/**
 * How a figure is taken. Both sides of a comparison run in turn in the same process and minute, so that a busy
 * machine slows them alike, and the value is a ratio of medians.
 */
import { fork } from "node:child_process";
import { once } from "node:events";

/** What was measured. `ours` and `baseline` are in `unit`; an amount without a baseline has null. */
export interface Measured {
  readonly value: number;
  readonly ours: number;
  readonly baseline: number | null;
  readonly runs: number;
}

/** A promise of speed or size, and how it is held to. */
export interface Figure {
  /** `docker-echo-vs-cli`: the subject first. */
  readonly name: string;
  /** What `value` must not pass. */
  readonly goal: number;
  /** Unit of `ours` and `baseline`: `ms`, `MiB`, `failures`. */
  readonly unit: string;
  /** Why it cannot be taken on this machine, or null. @default always can */
  readonly obstacle?: () => Promise<string | null>;
  measure(): Promise<Measured>;
}

/** One side of a comparison. Only `run` is timed. */
export interface Side {
  readonly before?: () => Promise<void>;
  readonly run: () => Promise<void>;
  readonly after?: () => Promise<void>;
}

/**
 * Runs both sides in turn and compares their medians.
 *
 * @param runs of each side that count, after `warmups`
 * @returns milliseconds of each side, and ours divided by the baseline
 */
export async function paired(ours: Side, baseline: Side, runs: number, warmups = 2): Promise<Measured> {
  const times: { ours: number[]; baseline: number[] } = { ours: [], baseline: [] };
  for (let run = -warmups; run < runs; run += 1) {
    // The one that goes first changes, so that neither always finds the machine as the other left it.
    const order = run % 2 === 0 ? (["ours", "baseline"] as const) : (["baseline", "ours"] as const);
    for (const name of order) {
      const elapsedMs = await timed(name === "ours" ? ours : baseline);
      if (run >= 0) times[name].push(elapsedMs);
    }
  }
  const medians = { ours: median(times.ours), baseline: median(times.baseline) };
  return { value: medians.ours / medians.baseline, ...medians, runs };
}

/** An amount that has no other side: bytes, failures. */
export function amount(value: number, runs = 1): Measured {
  return { value, ours: value, baseline: null, runs };
}

/**
 * An amount that a process of its own takes, so that nothing of ours is counted with it. That process runs `file` with
 * `word` as its argument, and sends the number.
 */
export async function amountInChild(file: string, word: string): Promise<Measured> {
  const child = fork(file, [word], { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  let value: number | null = null;
  child.on("message", (message) => {
    value = Number(message);
  });
  const [exitCode] = await once(child, "close");
  if (exitCode !== 0 || value === null) {
    throw new Error(`The measured process ended with exit code ${exitCode}`);
  }
  return amount(value);
}

const SAMPLE_MS = 20;

/** @returns MiB by which the resident memory grew at most during the work */
export async function peakGrowth(work: () => Promise<void>): Promise<number> {
  const before = process.memoryUsage.rss();
  let most = before;
  const sampler = setInterval(() => {
    most = Math.max(most, process.memoryUsage.rss());
  }, SAMPLE_MS);
  try {
    await work();
  } finally {
    clearInterval(sampler);
  }
  return (most - before) / 1024 / 1024;
}

async function timed({ before, run, after }: Side): Promise<number> {
  await before?.();
  const startedAt = performance.now();
  try {
    await run();
    return performance.now() - startedAt;
  } finally {
    await after?.();
  }
}

/** @throws {RangeError} on an empty list */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const low = sorted[Math.floor((sorted.length - 1) / 2)];
  const high = sorted[Math.ceil((sorted.length - 1) / 2)];
  if (low === undefined || high === undefined) throw new RangeError("There is no median of nothing");
  return (low + high) / 2;
}
