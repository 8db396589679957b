/**
 * Stands between the official client and the network. The client sends a command's request again after a 5xx or a
 * broken connection, which would run the command twice, and keeps all output in memory: here such a request is sent
 * once, and its output goes to whoever waits for it, as fast as they take it; the client sees the rest.
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
  const send: typeof fetch = async (input, init) => {
    const address = String(input);
    const url = base === undefined ? address : address.replace(OFFICIAL_BASE, base);
    const tap = taps.getStore();
    const isCommand = init?.method === "POST" && /\/cmd$/.test(new URL(url).pathname);
    return tap && isCommand ? sendCommand(url, init, tap, answerTimeoutMs) : fetch(url, init);
  };
  return { fetch: send, tapped: (tap, request) => taps.run(tap, request) };
}

async function sendCommand(
  url: string,
  init: RequestInit,
  tap: CommandTap,
  answerTimeoutMs: number,
): Promise<Response> {
  tap.mayHaveRun = true;
  const silence = new AbortController();
  const answered = setDeadline(answerTimeoutMs, () => silence.abort());
  let response: Response;
  try {
    const signal = AbortSignal.any([silence.signal, ...(tap.abortSignal ? [tap.abortSignal] : [])]);
    response = await fetch(url, { ...init, signal });
  } catch (error) {
    if (NEVER_SENT.has(causeCode(error))) tap.mayHaveRun = false;
    throw giveUp(tap, silence.signal.aborted ? `no answer within ${answerTimeoutMs} ms` : textOf(error));
  } finally {
    answered();
  }
  if (REFUSALS.has(response.status)) {
    tap.mayHaveRun = false;
    return response;
  }
  if (!response.ok || response.body === null) {
    await response.body?.cancel();
    throw giveUp(tap, `the server answered ${response.status}`);
  }
  const onLost = (why: string): void => silence.abort(new Error(why));
  const watch = (commandId: string): SilenceWatch =>
    new SilenceWatch({
      everyMs: answerTimeoutMs,
      ask: () => askAfter(url, init, commandId, answerTimeoutMs),
      onLost,
    });
  // Until its id is told there is nothing to ask after.
  const named = setDeadline(answerTimeoutMs, () => onLost(`no word on it within ${answerTimeoutMs} ms`));
  const body = ReadableStream.from(controlLines(response.body, tap, watch, named));
  // Some proxies add a charset, which the client takes for another type.
  return new Response(body, { status: 200, headers: { "content-type": "application/x-ndjson" } });
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
 * Hands output on and lets through what the client must see: the command as it began, as it ended, and what went wrong.
 * Other news are none that it knows. What is no such stream becomes an error line, which the client tells.
 *
 * @param onNamed called once, when the command's id is known or will never be
 */
async function* controlLines(
  body: ReadableStream<Uint8Array>,
  tap: CommandTap,
  watch: (commandId: string) => SilenceWatch,
  onNamed: () => void,
): AsyncGenerator<Uint8Array> {
  let watching: SilenceWatch | null = null;
  try {
    for await (const line of linesOf(body, () => watching)) {
      const text = line.toString("utf8");
      if (text.trim() === "") continue;
      const value: unknown = JSON.parse(text);
      const commandId = commandIdOf(value);
      const isFirst = watching === null && commandId !== null;
      if (isFirst) {
        onNamed();
        watching = watch(commandId);
      }
      const output = outputOf(value);
      if (output) await tap.onData(output.stream, Buffer.from(output.data, "utf8"));
      else if (isFirst || isTold(value)) yield Buffer.concat([line, Buffer.from("\n")]);
    }
  } catch (error) {
    tap.failure = textOf(error);
    const data = { code: "stream_broken", message: tap.failure };
    yield Buffer.from(`${JSON.stringify({ stream: "error", data })}\n`);
  } finally {
    onNamed();
    watching?.close();
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

async function* linesOf(
  body: ReadableStream<Uint8Array>,
  watching: () => SilenceWatch | null,
): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let bytes = 0;
  const chunks = body.values();
  const next = (): ReturnType<typeof chunks.next> => {
    watching()?.waits();
    return chunks.next().finally(() => watching()?.hears());
  };
  try {
    for (let { value: chunk, done } = await next(); !done && chunk; { value: chunk, done } = await next()) {
      let rest = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
      for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
        const line = Buffer.concat([...parts, rest.subarray(0, end)]);
        parts = [];
        bytes = 0;
        if (line.length > 0) yield line;
        rest = rest.subarray(end + 1);
      }
      bytes += rest.length;
      if (bytes > limits.vercelLineMaxBytes) throw new Error("the server sends no lines");
      if (rest.length > 0) parts.push(rest);
    }
    if (bytes > 0) yield Buffer.concat(parts);
  } finally {
    // Left in the middle, it would hold its connection; one that failed has none.
    await chunks.return?.().catch(() => {});
  }
}
