/**
 * Progress of one MCP call: at most one message per `limits.mcpProgressEveryMs`, a sign of life when the call is
 * silent, and a number that only grows, as the protocol asks: the seconds since the call began.
 */
import { limits } from "../limits.ts";

export interface ProgressMessage {
  /** Seconds since the start, strictly growing. */
  readonly progress: number;
  readonly message: string;
}

/** Reports of one call; dispose it when the call ends, and nothing is sent any more. */
export interface ProgressReporter extends Disposable {
  /** Cheap; only the latest message of each interval is sent. */
  report(message: string): void;
}

/**
 * @param send may fail, then this client gets no more of this call's progress
 */
export function createProgressReporter(send: (message: ProgressMessage) => Promise<void>): ProgressReporter {
  const startedAt = performance.now();
  let latest = "running";
  let sentAt = Number.NEGATIVE_INFINITY;
  let progress = 0;
  let waiting: NodeJS.Timeout | undefined;
  let sending = false;
  let ended = false;

  const flush = async (): Promise<void> => {
    waiting = undefined;
    if (ended) return;
    // A client that does not read holds this call's reports back, not the call.
    if (sending) {
      plan();
      return;
    }
    sending = true;
    sentAt = performance.now();
    progress = Math.max(progress + 0.001, Math.round(sentAt - startedAt) / 1000);
    try {
      await send({ progress, message: latest });
    } catch {
      // The connection is gone; its own close ends the call.
      ended = true;
    }
    sending = false;
  };
  const plan = (): void => {
    if (waiting || ended) return;
    const inMs = Math.max(0, sentAt + limits.mcpProgressEveryMs - performance.now());
    waiting = setTimeout(flush, inMs);
  };
  const heartbeat = setInterval(() => {
    if (performance.now() - sentAt >= limits.mcpHeartbeatMs) plan();
  }, limits.mcpHeartbeatMs / 4);

  return {
    report(message) {
      if (message !== "") latest = message;
      plan();
    },
    [Symbol.dispose]() {
      ended = true;
      clearTimeout(waiting);
      clearInterval(heartbeat);
    },
  };
}
