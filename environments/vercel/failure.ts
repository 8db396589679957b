/** Failures of the official client as ours. */
import { APIError } from "@vercel/sandbox";
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { setDeadline } from "../deadline.ts";

/** Any failure of the client as one of ours. */
export function toSandboxError(error: unknown, action: string): MoorageError {
  if (error instanceof MoorageError) return error;
  const say = (code: ConstructorParameters<typeof MoorageError>[0]): MoorageError =>
    new MoorageError(code, `${action}: ${textOf(error)}`, { cause: error });
  if (!(error instanceof APIError)) return say("ENVIRONMENT_UNAVAILABLE");
  switch (error.response.status) {
    case 404:
    case 410:
    case 422:
      return say("ENVIRONMENT_LOST");
    case 400:
    case 401:
    case 402:
    case 403:
      return say("VERCEL_REFUSED");
    default:
      return say("ENVIRONMENT_UNAVAILABLE");
  }
}

/** In the server's own words, where it has any; else with what the network said. */
export function textOf(error: unknown): string {
  if (error instanceof APIError) {
    const body: unknown = error.json;
    const isTold = typeof body === "object" && body !== null && "error" in body;
    const told: unknown = isTold ? body.error : null;
    if (typeof told === "object" && told !== null && "message" in told) return String(told.message);
  }
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  return cause instanceof Error && cause.message !== ""
    ? `${error.message} (${cause.message})`
    : error.message;
}

/** Whether the API says that there is no such thing, or that its session has ended. */
export function hasStatus(error: unknown, ...statuses: readonly number[]): boolean {
  return error instanceof APIError && statuses.includes(error.response.status);
}

interface Bounds {
  /** @default a bit less than a health probe may take */
  readonly timeoutMs?: number;
  readonly abortSignal?: AbortSignal | undefined;
}

/**
 * Asks a server and gives up in time.
 *
 * @throws {MoorageError} ENVIRONMENT_UNAVAILABLE after `timeoutMs`; ABORTED; what `ask` throws
 */
export async function bounded<Answer>(
  ask: (signal: AbortSignal) => Promise<Answer>,
  { timeoutMs = limits.probeTimeoutMs - 200, abortSignal }: Bounds = {},
): Promise<Answer> {
  const late = new AbortController();
  const why = `The sandbox server does not answer within ${timeoutMs} ms`;
  // An error of this name is the one that the client does not answer by sending again.
  const answered = setDeadline(timeoutMs, () => late.abort(new DOMException(why, "AbortError")));
  const onAbort = (): void => late.abort(new DOMException("Nobody waits for it", "AbortError"));
  abortSignal?.addEventListener("abort", onAbort, { once: true });
  if (abortSignal?.aborted) onAbort();
  try {
    return await ask(late.signal);
  } catch (error) {
    if (abortSignal?.aborted) {
      throw new MoorageError("ABORTED", "Cannot finish: the caller cancelled", { cause: error });
    }
    if (late.signal.aborted) throw new MoorageError("ENVIRONMENT_UNAVAILABLE", why, { cause: error });
    throw error;
  } finally {
    answered();
    abortSignal?.removeEventListener("abort", onAbort);
  }
}
