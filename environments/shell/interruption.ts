/** What ends the wait for a command before the command itself does. */
import type { ExecOptions } from "../base.ts";
import type { Stop } from "./stop.ts";

export type Interruption = "timeout" | "abort" | "yield";

/** Fires once, for the first reason that comes. */
export function watchInterruptions(
  options: ExecOptions,
  stops: readonly Stop[],
): {
  readonly fired: Promise<Interruption>;
  readonly dispose: () => void;
} {
  const disposers: (() => void)[] = [];
  const fired = new Promise<Interruption>((resolve) => {
    const after = (ms: number | undefined, reason: Interruption) => {
      // Node's timers hold 31 bits; a longer wait is no wait that anybody measures.
      if (ms === undefined || ms > 2 ** 31 - 1) return;
      const timer = setTimeout(() => resolve(reason), ms);
      disposers.push(() => clearTimeout(timer));
    };
    const on = (abortSignal: AbortSignal | undefined, reason: Interruption) => {
      if (!abortSignal) return;
      const listener = () => resolve(reason);
      if (abortSignal.aborted) listener();
      abortSignal.addEventListener("abort", listener, { once: true });
      disposers.push(() => abortSignal.removeEventListener("abort", listener));
    };
    on(options.abortSignal, "abort");
    for (const stop of stops) disposers.push(stop.onStop(() => resolve("abort")));
    on(options.yieldSignal, "yield");
    after(options.timeoutMs, "timeout");
    after(options.yieldMs, "yield");
  });
  return { fired, dispose: () => disposers.forEach((dispose) => void dispose()) };
}
