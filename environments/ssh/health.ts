/** Whether a host could be connected to, asked without staying. */
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { Health } from "../base.ts";
import type { Route } from "./config.ts";
import type { Connection } from "./connection.ts";
import { openSocket, place } from "./dial.ts";

/**
 * Reads the banner of the first hop. Where the last attempt was refused, the refusal still holds until a whole
 * connection succeeds, so that is tried instead.
 *
 * @throws {MoorageError} SSH_* when it could not
 */
export async function probeHost(
  route: Route,
  failure: MoorageError | null,
  connect: () => Promise<Connection>,
): Promise<Health> {
  const [first] = route.hops;
  if (!first) throw new MoorageError("INTERNAL", "Cannot probe: the route has no hop");
  if (failure && failure.code !== "SSH_UNREACHABLE" && failure.code !== "SSH_HANDSHAKE_FAILED") {
    const attempt = connect().then((connection) => connection.close());
    await withLimit(attempt, failure);
    return { healthy: true, detail: `${place(first)} lets in` };
  }
  const timeoutMs = limits.probeTimeoutMs - 200;
  const startedAt = performance.now();
  const socket = await openSocket(first, undefined, timeoutMs);
  const leftMs = Math.max(1, timeoutMs - (performance.now() - startedAt));
  try {
    await new Promise<void>((resolve, reject) => {
      const fail = (reason: string) =>
        reject(new MoorageError("SSH_HANDSHAKE_FAILED", `Cannot connect to ${place(first)}: ${reason}`));
      const timer = setTimeout(() => fail("it accepts and says nothing"), leftMs);
      let head = "";
      socket.on("data", (chunk: Buffer) => {
        head = (head + chunk.toString("latin1")).slice(0, 2_000);
        if (/(?:^|\n)SSH-/.test(head)) resolve();
      });
      socket.once("close", () => fail(head === "" ? "it closes at once" : "what answers is no SSH server"));
      socket.once("close", () => clearTimeout(timer));
    });
  } finally {
    socket.destroy();
  }
  const detail =
    route.hops.length > 1 ? `the first host on the way, ${place(first)}, answers` : `${place(first)} answers`;
  return { healthy: true, detail };
}

/** An attempt that takes too long changes nothing about what is known; it ends by its own limits. */
async function withLimit(attempt: Promise<void>, failure: MoorageError): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((_, reject) => {
    timer = setTimeout(() => reject(failure), limits.probeTimeoutMs - 200);
  });
  attempt.catch(() => undefined);
  try {
    await Promise.race([attempt, late]);
  } finally {
    clearTimeout(timer);
  }
}
