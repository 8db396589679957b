/**
 * Whether things work, asked rarely, answered at once, and neither flapping nor lying.
 *
 * Within the grace after a success the answer is "available" whatever a probe says, so it is given at once and the
 * probe runs behind it. Beyond the grace the last probe's word holds; when that is old, the asker waits for a new
 * one, at most the probe limit. One probe per key is in flight; all keys of one snapshot are read at one instant.
 */
import type { Clock } from "./clock.ts";
import { systemClock } from "./clock.ts";
import { isMoorageError, type MoorageError, toMoorageError } from "./errors.ts";
import { limits } from "./limits.ts";
import type { Availability } from "./registry.ts";

/** Asks the thing itself. Should end when the signal fires; its answer no longer counts then. */
export type Probe = (abortSignal: AbortSignal) => Promise<Availability>;

export type AvailabilityChange =
  | { readonly kind: "lost"; readonly key: string; readonly reason: string }
  | { readonly kind: "restored"; readonly key: string }
  /** The probe threw something that is no answer. */
  | { readonly kind: "fault"; readonly key: string; readonly error: MoorageError };

/** What is known of a key: an answer, or a fault of its probe, which is no answer. */
export type Verdict = Availability | { readonly available: null; readonly fault: MoorageError };

export interface AvailabilityOptions {
  readonly clock?: Clock;
  /** A success is fresh for this long, milliseconds. @default limits.availabilityTtlMs */
  readonly ttlMs?: number;
  /** The last success covers failures for this long, milliseconds. @default limits.availabilityGraceMs */
  readonly graceMs?: number;
  /** A failure is fresh for this long, milliseconds. @default limits.availabilityRetryMs */
  readonly retryMs?: number;
  /** A probe without an answer fails after this, milliseconds. @default limits.probeTimeoutMs */
  readonly probeTimeoutMs?: number;
}

interface Entry {
  readonly key: string;
  readonly probe: Probe;
  lastSuccessAt: number | null;
  /** The outcome of the last probe, and when it came. */
  outcome: Verdict | null;
  outcomeAt: number;
  inFlight: Promise<void> | null;
  /** What listeners were last told, or would have been; null before the first answer. */
  told: boolean | null;
  cancelTimer: (() => void) | null;
}

const AVAILABLE: Availability = { available: true };

/** Availability of everything that is probed, by key. */
export class AvailabilityCache {
  readonly #entries = new Map<string, Entry>();
  readonly #listeners = new Set<(change: AvailabilityChange) => void>();
  readonly #clock: Clock;
  readonly #ttlMs: number;
  readonly #graceMs: number;
  readonly #retryMs: number;
  readonly #probeTimeoutMs: number;
  #closed = false;

  constructor(options: AvailabilityOptions = {}) {
    this.#clock = options.clock ?? systemClock;
    this.#ttlMs = options.ttlMs ?? limits.availabilityTtlMs;
    this.#graceMs = options.graceMs ?? limits.availabilityGraceMs;
    this.#retryMs = options.retryMs ?? limits.availabilityRetryMs;
    this.#probeTimeoutMs = options.probeTimeoutMs ?? limits.probeTimeoutMs;
  }

  /** Makes a key known. A second probe for a known key is ignored. */
  define(key: string, probe: Probe): void {
    if (this.#entries.has(key)) return;
    const entry: Entry = {
      key,
      probe,
      lastSuccessAt: null,
      outcome: null,
      outcomeAt: 0,
      inFlight: null,
      told: null,
      cancelTimer: null,
    };
    this.#entries.set(key, entry);
    if (this.#listeners.size > 0) this.#schedule(entry);
  }

  /**
   * Hears of losses, recoveries and faults. While anyone listens, keys are probed on their own, so that a change is
   * noticed without a question.
   *
   * @returns a function that ends it
   */
  listen(listener: (change: AvailabilityChange) => void): () => void {
    this.#listeners.add(listener);
    for (const entry of this.#entries.values()) this.#schedule(entry);
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) for (const entry of this.#entries.values()) entry.cancelTimer?.();
    };
  }

  /**
   * Whether `key` works. At once unless nothing valid is known; then after one probe.
   *
   * @throws {MoorageError} INTERNAL when the probe itself is at fault; TypeError for a key that was never defined
   */
  async check(key: string): Promise<Availability> {
    const verdict = (await this.snapshot([key])).get(key);
    if (verdict === undefined) throw new TypeError(`No probe is defined for "${key}"`);
    if (verdict.available === null) throw verdict.fault;
    return verdict;
  }

  /** The verdicts on all `keys`, read at one instant after the probes that were needed. Never rejects for a probe. */
  async snapshot(keys: Iterable<string>): Promise<ReadonlyMap<string, Verdict>> {
    const wanted = [...keys];
    const waiting = wanted.map((key) => this.#refresh(this.#entry(key))).filter((probe) => probe !== null);
    await Promise.all(waiting);
    return this.#read(wanted);
  }

  /** Like `snapshot` when no probe has to be waited for, null otherwise. Starts those that are due. */
  peek(keys: Iterable<string>): ReadonlyMap<string, Verdict> | null {
    const wanted = [...keys];
    let known = true;
    for (const key of wanted) if (this.#refresh(this.#entry(key)) !== null) known = false;
    return known ? this.#read(wanted) : null;
  }

  /** Probes a key anew, also when its answer is fresh: something was met that the last probe cannot know of. */
  async recheck(key: string): Promise<void> {
    const entry = this.#entry(key);
    await entry.inFlight;
    entry.inFlight ??= this.#startProbe(entry);
    await entry.inFlight;
  }

  /** Ends background probing for good. */
  close(): void {
    this.#closed = true;
    this.#listeners.clear();
    for (const entry of this.#entries.values()) entry.cancelTimer?.();
  }

  #entry(key: string): Entry {
    const entry = this.#entries.get(key);
    if (!entry) throw new TypeError(`No probe is defined for "${key}"`);
    return entry;
  }

  #read(keys: readonly string[]): ReadonlyMap<string, Verdict> {
    const now = this.#clock.now();
    return new Map(keys.map((key) => [key, this.#verdict(this.#entry(key), now)]));
  }

  /** Starts a probe when one is due; returns it when the asker has to wait for it. */
  #refresh(entry: Entry): Promise<void> | null {
    const now = this.#clock.now();
    if (now >= this.#dueAt(entry)) entry.inFlight ??= this.#startProbe(entry);
    return this.#isCovered(entry, now) || (entry.outcome !== null && now < this.#dueAt(entry))
      ? null
      : entry.inFlight;
  }

  #dueAt(entry: Entry): number {
    if (entry.outcome === null) return Number.NEGATIVE_INFINITY;
    return entry.outcomeAt + (entry.outcome.available === true ? this.#ttlMs : this.#retryMs);
  }

  #isCovered(entry: Entry, now: number): boolean {
    return entry.lastSuccessAt !== null && now < entry.lastSuccessAt + this.#graceMs;
  }

  #verdict(entry: Entry, now: number): Verdict {
    const verdict: Verdict = this.#isCovered(entry, now) ? AVAILABLE : (entry.outcome ?? AVAILABLE);
    if (verdict.available !== null) this.#tell(entry, verdict);
    return verdict;
  }

  #tell(entry: Entry, verdict: Availability): void {
    const before = entry.told;
    entry.told = verdict.available;
    if (before === null || before === verdict.available) return;
    this.#emit(
      verdict.available
        ? { kind: "restored", key: entry.key }
        : { kind: "lost", key: entry.key, reason: verdict.reason },
    );
  }

  #emit(change: AvailabilityChange): void {
    for (const listener of this.#listeners) listener(change);
  }

  async #startProbe(entry: Entry): Promise<void> {
    const outcome = await this.#ask(entry.probe);
    const now = this.#clock.now();
    entry.inFlight = null;
    entry.outcome = outcome;
    entry.outcomeAt = now;
    if (outcome.available === true) entry.lastSuccessAt = now;
    if (outcome.available === false && outcome.neverWorked) entry.lastSuccessAt = null;
    if (outcome.available === null) this.#emit({ kind: "fault", key: entry.key, error: outcome.fault });
    this.#verdict(entry, now);
    this.#schedule(entry);
  }

  /** Never rejects. A Moorage error is an answer; anything else that is thrown is a fault of the probe. */
  async #ask(probe: Probe): Promise<Verdict> {
    const controller = new AbortController();
    let cancel = () => {};
    const limit = new Promise<Verdict>((resolve) => {
      cancel = this.#clock.after(this.#probeTimeoutMs, () => {
        resolve({ available: false, reason: `No answer within ${this.#probeTimeoutMs} ms` });
        controller.abort();
      });
    });
    try {
      return await Promise.race([limit, probe(controller.signal)]);
    } catch (error) {
      if (isMoorageError(error) && error.kind !== "bug") return { available: false, reason: error.message };
      return {
        available: null,
        fault: toMoorageError(error, "INTERNAL", "Cannot tell whether it is available"),
      };
    } finally {
      cancel();
    }
  }

  /** While anyone listens: wakes up when the next probe is due, and when the grace ends under a failure. */
  #schedule(entry: Entry): void {
    entry.cancelTimer?.();
    entry.cancelTimer = null;
    if (this.#listeners.size === 0 || this.#closed) return;
    const now = this.#clock.now();
    const failed = entry.outcome !== null && entry.outcome.available !== true;
    const graceEndsAt =
      failed && this.#isCovered(entry, now)
        ? (entry.lastSuccessAt ?? 0) + this.#graceMs
        : Number.POSITIVE_INFINITY;
    const wakeAt = Math.min(Math.max(now, this.#dueAt(entry)), graceEndsAt);
    const wake = () => {
      if (this.#refresh(entry) === null) this.#verdict(entry, this.#clock.now());
      if (entry.inFlight === null) this.#schedule(entry);
    };
    entry.cancelTimer = this.#clock.after(Math.max(0, wakeAt - now), wake, false);
  }
}
