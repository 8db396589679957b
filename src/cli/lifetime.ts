/**
 * The time between our start and a signal. The first SIGINT, SIGTERM or SIGHUP asks the command to end and clean
 * up; what takes longer than `limits.shutdownMs`, or a second signal, ends us as we are.
 */
import { limits } from "../limits.ts";
import { signalExit } from "./exit.ts";
import { outputClosed, printLine } from "./output.ts";

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
/** Wrappers such as npm pass on a signal that the terminal has sent to us too; that is still the first one. */
const SAME_SIGNAL_MS = 1_000;

export interface Lifetime extends Disposable {
  /** Fires at a signal, and when nobody reads our output any more. */
  readonly abortSignal: AbortSignal;
  /** The exit status that the end of our time asks for; null while nothing has ended it. */
  readonly exitCode: number | null;
}

/** Watches for signals until it is disposed. */
export function watchLifetime(): Lifetime {
  const controller = new AbortController();
  let exitCode: number | null = null;
  let signalledAt = 0;
  let deadline: NodeJS.Timeout | undefined;

  const leave = (reason: string): void => {
    printLine(`moor: CLEANUP_FAILED: ${reason}`);
    printLine("Run `moor reap` to remove what was left behind.");
    process.exit(exitCode ?? signalExit("SIGTERM"));
  };
  const end = (code: number): void => {
    exitCode ??= code;
    deadline ??= setTimeout(() => leave("Cleaning up took too long"), limits.shutdownMs);
    controller.abort();
  };
  const onSignal = (signal: NodeJS.Signals): void => {
    if (signalledAt !== 0 && performance.now() - signalledAt > SAME_SIGNAL_MS) {
      leave(`Left at a second ${signal} before everything was cleaned up`);
    }
    signalledAt ||= performance.now();
    end(signalExit(signal));
  };
  const onClosed = (): void => end(signalExit("SIGPIPE"));

  for (const signal of SIGNALS) process.on(signal, onSignal);
  outputClosed.addEventListener("abort", onClosed);
  if (outputClosed.aborted) onClosed();
  return {
    abortSignal: controller.signal,
    get exitCode() {
      return exitCode;
    },
    [Symbol.dispose]() {
      clearTimeout(deadline);
      for (const signal of SIGNALS) process.off(signal, onSignal);
      outputClosed.removeEventListener("abort", onClosed);
    },
  };
}
