/**
 * MCP over this process's stdin and stdout, which may be a pipe that somebody filled and closed at once
 * (`printf … | moor mcp`). The end of stdin is passed on when what came before it has been answered, or after a
 * short grace, so that such a client gets its answers and a dead client's calls still end soon.
 */
import { PassThrough, type Readable, type Writable } from "node:stream";
import type { JSONRPCMessage, Transport } from "@modelcontextprotocol/server";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { limits } from "../limits.ts";

/** A stdio transport that answers what it was asked before it closes. It closes once, by either side. */
export class StdioTransport implements Transport {
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  onmessage?: Transport["onmessage"];

  /** Resolves when the connection is over. */
  readonly closed: Promise<void>;
  readonly #resolveClosed: () => void;
  readonly #input: Readable;
  /** What the SDK reads; ends later than the input does. */
  readonly #gate = new PassThrough();
  readonly #inner: StdioServerTransport;
  readonly #unanswered = new Set<string | number>();
  #timer: NodeJS.Timeout | undefined;
  #inputEnded = false;

  constructor(input: Readable = process.stdin, output: Writable = process.stdout) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    this.#resolveClosed = resolve;
    this.#input = input;
    this.#inner = new StdioServerTransport(this.#gate, output, { maxBufferSize: limits.mcpMessageMaxBytes });
  }

  async start(): Promise<void> {
    this.#inner.onclose = () => {
      clearTimeout(this.#timer);
      this.#input.unpipe(this.#gate);
      this.#input.pause();
      this.onclose?.();
      this.#resolveClosed();
    };
    this.#inner.onerror = (error) => this.onerror?.(error);
    this.#inner.onmessage = (message) => {
      this.#note(message);
      this.onmessage?.(message);
    };
    this.#input.once("end", () => this.#onInputEnd());
    this.#input.once("error", () => this.#onInputEnd());
    this.#input.once("close", () => this.#onInputEnd());
    await this.#inner.start();
    this.#input.pipe(this.#gate, { end: false });
  }

  async send(message: JSONRPCMessage): Promise<void> {
    await this.#inner.send(message);
    if ("id" in message && message.id !== undefined && !("method" in message)) this.#settle(message.id);
  }

  close(): Promise<void> {
    return this.#inner.close();
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
    if (this.#inputEnded && this.#unanswered.size === 0) this.#gate.end();
  }

  #onInputEnd(): void {
    if (this.#inputEnded) return;
    this.#inputEnded = true;
    // What the gate still holds is read first: its messages come before this callback.
    setImmediate(() => {
      if (this.#unanswered.size === 0) this.#gate.end();
      else this.#timer = setTimeout(() => this.#gate.end(), limits.mcpDrainMs);
    });
  }
}
