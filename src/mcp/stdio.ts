/**
 * MCP over this process's stdin and stdout, one message per line, in place of the SDK's own transport for three
 * things. A pipe that somebody filled and closed at once (`printf … | moor mcp`) gets its answers: the end of stdin
 * ends the connection when what came before it has been answered, or after a short grace, so that a dead client's
 * calls still end soon. A line that is no message is answered as JSON-RPC asks, where the SDK drops it and leaves its
 * sender waiting. And a message of many megabytes costs its length, not its square.
 */
import type { Readable, Writable } from "node:stream";
import {
  type JSONRPCMessage,
  ProtocolErrorCode,
  parseJSONRPCMessage,
  type Transport,
} from "@modelcontextprotocol/server";
import { limits } from "../limits.ts";

const NEWLINE = 0x0a;

/** A stdio transport that answers what it was asked before it closes. It closes once, by either side. */
export class StdioTransport implements Transport {
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  onmessage?: Transport["onmessage"];

  /** Resolves when the connection is over. */
  readonly closed: Promise<void>;
  readonly #resolveClosed: () => void;
  readonly #input: Readable;
  readonly #output: Writable;
  readonly #unanswered = new Set<string | number>();
  readonly #onData = (chunk: Buffer): void => this.#take(chunk);
  /** What came of a line whose end has not come; null inside one that is too long. */
  #line: Buffer[] | null = [];
  #lineBytes = 0;
  #timer: NodeJS.Timeout | undefined;
  #inputEnded = false;
  #isClosed = false;

  constructor(input: Readable = process.stdin, output: Writable = process.stdout) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    this.#resolveClosed = resolve;
    this.#input = input;
    this.#output = output;
  }

  async start(): Promise<void> {
    this.#output.on("error", (error: Error) => {
      if (this.#isClosed) return;
      this.onerror?.(error);
      void this.close();
    });
    for (const end of ["end", "error", "close"]) this.#input.once(end, () => this.#onInputEnd());
    this.#input.on("data", this.#onData);
  }

  async send(message: JSONRPCMessage): Promise<void> {
    await this.#write(message);
    if ("id" in message && message.id !== undefined && !("method" in message)) this.#settle(message.id);
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#input.off("data", this.#onData);
    this.#input.pause();
    this.onclose?.();
    this.#resolveClosed();
  }

  /** Resolves when the reader has taken it. */
  #write(message: unknown): Promise<void> {
    if (this.#isClosed) return Promise.reject(new Error("The connection is closed"));
    return new Promise((resolve, reject) => {
      this.#output.write(`${JSON.stringify(message)}\n`, (error) => (error ? reject(error) : resolve()));
    });
  }

  #take(chunk: Buffer): void {
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      this.#keep(chunk.subarray(from, end));
      this.#endLine();
      from = end + 1;
    }
    this.#keep(chunk.subarray(from));
  }

  #keep(part: Buffer): void {
    this.#lineBytes += part.length;
    if (this.#lineBytes > limits.mcpMessageMaxBytes) this.#line = null;
    this.#line?.push(part);
  }

  #endLine(): void {
    const line = this.#line;
    this.#line = [];
    this.#lineBytes = 0;
    if (line === null) {
      this.#refuse(ProtocolErrorCode.InvalidRequest, null, `longer than ${limits.mcpMessageMaxBytes} bytes`);
      return;
    }
    const text = new TextDecoder().decode(line.length === 1 ? line[0] : Buffer.concat(line));
    if (!this.#isClosed && text.trim() !== "") this.#onLine(text);
  }

  #onLine(text: string): void {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.#refuse(ProtocolErrorCode.ParseError, null, `no JSON: ${reason}`);
      return;
    }
    let message: JSONRPCMessage;
    try {
      message = parseJSONRPCMessage(value);
    } catch {
      // The schema's own words are a page long, and say less.
      this.#refuse(ProtocolErrorCode.InvalidRequest, value, "not one JSON-RPC 2.0 message");
      return;
    }
    this.#note(message);
    this.onmessage?.(message);
  }

  /** Answers a line that is no message, with its id where it has one; what claims to be an answer gets none. */
  #refuse(code: number, value: unknown, reason: string): void {
    this.onerror?.(new Error(`A line came that is ${reason}`));
    const { id = null, ...rest } = typeof value === "object" && value !== null ? { id: null, ...value } : {};
    if (!("method" in rest) && ("result" in rest || "error" in rest)) return;
    const known = typeof id === "string" || Number.isInteger(id) ? id : null;
    const error = { code, message: `Cannot read this message: it is ${reason}` };
    this.#write({ jsonrpc: "2.0", id: known, error }).catch((cause: unknown) => {
      this.onerror?.(cause instanceof Error ? cause : new Error(String(cause)));
    });
  }

  #note(message: JSONRPCMessage): void {
    if (!("method" in message)) return;
    if ("id" in message) {
      this.#unanswered.add(message.id);
    } else if (message.method === "notifications/cancelled") {
      const id = message.params?.requestId;
      if (typeof id === "string" || typeof id === "number") this.#settle(id);
    }
  }

  #settle(id: string | number): void {
    this.#unanswered.delete(id);
    if (this.#inputEnded && this.#unanswered.size === 0) void this.close();
  }

  #onInputEnd(): void {
    if (this.#inputEnded) return;
    this.#inputEnded = true;
    // A last line may lack its newline.
    this.#endLine();
    if (this.#unanswered.size === 0) void this.close();
    else this.#timer = setTimeout(() => void this.close(), limits.mcpDrainMs);
  }
}
