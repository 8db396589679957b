import type { Clock } from "../../src/clock.ts";

interface Timer {
  readonly at: number;
  readonly callback: () => void;
}

/** A monotonic clock that stands still until a test moves it. */
export class ManualClock implements Clock {
  #now = 0;
  readonly #timers = new Set<Timer>();

  get pendingTimers(): number {
    return this.#timers.size;
  }

  now(): number {
    return this.#now;
  }

  after(delayMs: number, callback: () => void): () => void {
    const timer = { at: this.#now + delayMs, callback };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** Moves time on, running timers at their moments and whatever they set going. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    await settle();
    for (;;) {
      const [next] = [...this.#timers].sort((a, b) => a.at - b.at);
      if (!next || next.at > end) break;
      this.#timers.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.callback();
      await settle();
    }
    this.#now = end;
  }
}

/** Lets promises that can settle do so: chains of up to fifty steps, without the cost of a turn of the event loop. */
export async function settle(): Promise<void> {
  for (let step = 0; step < 50; step += 1) await null;
}
