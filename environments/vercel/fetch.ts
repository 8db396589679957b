/**
 * Stands between the official client and the network. The client sends a command's request again after a 5xx or a
 * broken connection, which would run the command twice, and keeps all output in memory: here such a request is sent
 * once, and its output goes to whoever waits for it, as fast as they take it; the client is told the rest at the end.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { limits } from "../../src/limits.ts";
import { setDeadline } from "../deadline.ts";
import { type CommandState, SilenceWatch } from "./silence.ts";

/** What one command's request has come to. */
export interface CommandTap {
  readonly onData: (stream: "stdout" | "stderr", chunk: Buffer) => void | Promise<void>;
  /** Gives the answer up. */
  readonly abortSignal?: AbortSignal | undefined;
  /** Whether the command may have run: set before the request is sent, taken back when it provably did not. */
  mayHaveRun: boolean;
  /** Why there is no answer to the request. */
  failure: string | null;
}

const OFFICIAL_BASE = "https://vercel.com/api";
/** Answers by which a server says that it did not run the command. */
const REFUSALS: ReadonlySet<number> = new Set([400, 401, 402, 403, 404, 410, 413, 422, 429]);
/** Errors of a connection that never was. */
const NEVER_SENT: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);

export interface ClientFetch {
  readonly fetch: typeof fetch;
  /** Runs `request`, whose commands report to `tap`. */
  readonly tapped: <Result>(tap: CommandTap, request: () => Promise<Result>) => Promise<Result>;
}

/** @param baseUrl takes the place of Vercel's own */
export function createClientFetch(
  baseUrl: string | undefined,
  answerTimeoutMs: number = limits.vercelAnswerMs,
): ClientFetch {
  const taps = new AsyncLocalStorage<CommandTap>();
  const base = baseUrl?.replace(/\/+$/, "");
  const send: typeof fetch = (input, init) => {
    const address = String(input);
    const url = base === undefined ? address : address.replace(OFFICIAL_BASE, base);
    const tap = taps.getStore();
    const isCommand = tap && init?.method === "POST" && new URL(url).pathname.endsWith("/cmd");
    return isCommand ? sendCommand(url, init, tap, answerTimeoutMs) : fetch(url, init);
  };
  return { fetch: send, tapped: (tap, request) => taps.run(tap, request) };
}

/** @returns once the command's end is known, what the client must see of the answer */
async function sendCommand(
  url: string,
  init: RequestInit,
  tap: CommandTap,
  answerTimeoutMs: number,
): Promise<Response> {
  tap.mayHaveRun = true;
  const cut = new AbortController();
  const onAbort = (): void => cut.abort();
  tap.abortSignal?.addEventListener("abort", onAbort, { once: true });
  if (tap.abortSignal?.aborted) onAbort();
  const forget = (): void => tap.abortSignal?.removeEventListener("abort", onAbort);
  let isLate = false;
  const answered = setDeadline(answerTimeoutMs, () => {
    isLate = true;
    cut.abort();
  });
  let response: Response;
  try {
    response = await fetch(url, { ...init, signal: cut.signal });
  } catch (error) {
    forget();
    if (NEVER_SENT.has(causeCode(error))) tap.mayHaveRun = false;
    throw giveUp(tap, isLate ? `no answer within ${answerTimeoutMs} ms` : textOf(error));
  } finally {
    answered();
  }
  if (REFUSALS.has(response.status)) {
    forget();
    tap.mayHaveRun = false;
    return response;
  }
  if (!response.ok || response.body === null) {
    forget();
    await response.body?.cancel();
    throw giveUp(tap, `the server answered ${response.status}`);
  }
  const onLost = (why: string): void => cut.abort(new Error(why));
  // Until its id is told there is nothing to ask after.
  const named = setDeadline(answerTimeoutMs, () => onLost(`no word on it within ${answerTimeoutMs} ms`));
  const told = Promise.withResolvers<string>();
  const onNamed = (commandId: string): SilenceWatch => {
    named();
    const ask = () => askAfter(url, init, commandId, answerTimeoutMs);
    return new SilenceWatch({ everyMs: answerTimeoutMs, ask, onLost });
  };
  void follow(response.body, tap, onNamed, told.resolve).finally(() => {
    named();
    forget();
  });
  // Some proxies add a charset, which the client takes for another type.
  return new Response(await told.promise, { headers: { "content-type": "application/x-ndjson" } });
}

/** @throws when the server does not answer, or answers what says nothing */
async function askAfter(
  url: string,
  { headers = {} }: RequestInit,
  commandId: string,
  timeoutMs: number,
): Promise<CommandState> {
  const address = new URL(url);
  address.pathname += `/${encodeURIComponent(commandId)}`;
  const response = await fetch(address, { headers, signal: AbortSignal.timeout(timeoutMs) });
  if (response.status === 404 || response.status === 410) return "gone";
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return typeof commandOf(await response.json()).exitCode === "number" ? "ended" : "running";
}

/** An error of this name is the one that the client does not answer by sending again. */
function giveUp(tap: CommandTap, why: string): Error {
  tap.failure = why;
  return new DOMException(why, "AbortError");
}

function textOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  const known = cause instanceof Error ? cause : error;
  return known instanceof Error ? known.message : String(known);
}

function causeCode(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof Error && "code" in cause ? String(cause.code) : "";
}

/**
 * Reads an answer to its end and hands output on. The client is told at once, as soon as it is known how the command
 * ended: the command as it began and as it ended, or what went wrong. Other news are none that it knows. What is no such
 * answer becomes an error line, which the client tells. Never rejects.
 *
 * @param onNamed called once, when the command's id is known
 * @param onTold called with the lines for the client; later calls mean nothing
 */
async function follow(
  body: ReadableStream<Uint8Array>,
  tap: CommandTap,
  onNamed: (commandId: string) => SilenceWatch,
  onTold: (lines: string) => void,
): Promise<void> {
  const reader = body.getReader();
  const lines = new LineSplitter();
  const command: { begun: string; watch: SilenceWatch | null } = { begun: "", watch: null };
  const take = (line: string): void | Promise<void> => {
    if (line.trim() === "") return;
    const value: unknown = JSON.parse(line);
    const output = outputOf(value);
    if (output) return tap.onData(output.stream, Buffer.from(output.data, "utf8"));
    const commandId = command.watch === null ? commandIdOf(value) : null;
    if (commandId !== null) {
      command.watch = onNamed(commandId);
      command.begun = `${line}\n`;
    } else if (isTold(value)) {
      onTold(`${command.begun}${line}\n`);
    }
  };
  try {
    for (;;) {
      command.watch?.waits();
      const { value: chunk, done } = await reader.read().finally(() => command.watch?.hears());
      for (const line of done ? lines.end() : lines.push(chunk)) {
        const held = take(line);
        if (held) await held;
      }
      if (done) break;
    }
    onTold(command.begun);
  } catch (error) {
    tap.failure = textOf(error);
    const data = { code: "stream_broken", message: tap.failure };
    onTold(`${command.begun}${JSON.stringify({ stream: "error", data })}\n`);
    // Left in the middle, it would hold its connection; one that failed has none.
    await reader.cancel().catch(() => {});
  } finally {
    command.watch?.close();
  }
}

/** Whether a later message is one that decides: the command's exit code, or a failure. */
function isTold(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const isOutput = "stream" in value && ["stdout", "stderr", "error"].includes(String(value.stream));
  // Its beginning may be told again.
  return isOutput || ("command" in value && (commandOf(value).exitCode ?? null) !== null);
}

function commandIdOf(value: unknown): string | null {
  const { id } = commandOf(value);
  return typeof id === "string" ? id : null;
}

/** What a message says of its command. */
function commandOf(value: unknown): { readonly id?: unknown; readonly exitCode?: unknown } {
  const command = typeof value === "object" && value !== null && "command" in value ? value.command : null;
  return typeof command === "object" && command !== null ? command : {};
}

function outputOf(value: unknown): { readonly stream: "stdout" | "stderr"; readonly data: string } | null {
  if (typeof value !== "object" || value === null || !("stream" in value) || !("data" in value)) return null;
  const { stream, data } = value;
  if ((stream !== "stdout" && stream !== "stderr") || typeof data !== "string") return null;
  return { stream, data };
}

/** Lines of an answer, without empty ones. */
class LineSplitter {
  #parts: Buffer[] = [];
  #bytes = 0;

  /** @throws when a line takes more than `limits.vercelLineMaxBytes` */
  *push(chunk: Uint8Array): Generator<string> {
    let rest = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
      this.#parts.push(rest.subarray(0, end));
      rest = rest.subarray(end + 1);
      yield* this.end();
    }
    this.#bytes += rest.length;
    if (this.#bytes > limits.vercelLineMaxBytes) throw new Error("the server sends no lines");
    if (rest.length > 0) this.#parts.push(rest);
  }

  /** What is left when nothing follows. */
  end(): readonly string[] {
    const text = Buffer.concat(this.#parts).toString("utf8");
    this.#parts = [];
    this.#bytes = 0;
    return text === "" ? [] : [text];
  }
}
