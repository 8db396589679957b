/** Time as the runtime takes it from outside, so that tests can own it. */

export interface Clock {
  /** Milliseconds from an arbitrary start, never going back; the wall clock plays no part. */
  now(): number;
  /**
   * Calls back once after `delayMs`.
   * @param keepAlive whether the process waits for it. @default true
   * @returns a function that cancels it
   */
  after(delayMs: number, callback: () => void, keepAlive?: boolean): () => void;
}

/** The machine's monotonic clock. */
export const systemClock: Clock = {
  now: () => performance.now(),
  after: (delayMs, callback, keepAlive = true) => {
    const timer = setTimeout(callback, delayMs);
    if (!keepAlive) timer.unref();
    return () => clearTimeout(timer);
  },
};
