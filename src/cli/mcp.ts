/** `moor mcp`: the tools for an MCP client on our stdin and stdout until it goes away, or over HTTP until a signal. */
import { Console } from "node:console";
import { randomBytes } from "node:crypto";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { createMcpServer } from "../mcp/server.ts";
import { StdioTransport } from "../mcp/stdio.ts";
import { EXIT } from "./exit.ts";
import type { ToolOptions } from "./options.ts";
import { printLine } from "./output.ts";
import { withMoorage } from "./runtime.ts";
import { version } from "./version.ts";

export interface McpOptions extends ToolOptions {
  /** Port; undefined for stdin and stdout. */
  readonly http?: number;
  readonly host: string;
  readonly tokenEnv: string;
}

export async function mcp(options: McpOptions): Promise<number> {
  if (options.http !== undefined) return overHttp(options, options.http);
  // stdout is the protocol's alone, whatever a tool module prints.
  globalThis.console = new Console(process.stderr);
  if (process.stdin.isTTY)
    printLine("moor: An MCP client is expected on stdin; see docs/mcp.md. Ctrl-D ends this");
  return withMoorage(
    options,
    async ({ moorage, lifetime: { abortSignal }, start }) => {
      const transport = new StdioTransport();
      const onError = (error: Error): void => printLine(`moor: mcp: ${error.message}`);
      // Not before a client lists: some start a second server only to ask which protocol it speaks.
      const onList = (): void => startInBackground(start);
      const connection = serveStdio(() => createMcpServer(moorage, { version: version(), onError, onList }), {
        transport,
        onerror: onError,
      });
      const leave = (): void => void connection.close();
      abortSignal.addEventListener("abort", leave, { once: true });
      if (abortSignal.aborted) leave();
      await transport.closed;
      return EXIT.ok;
    },
    { watches: true },
  );
}

/** Ends with a signal; clients come and go. */
async function overHttp(options: McpOptions, port: number): Promise<number> {
  const given = process.env[options.tokenEnv] ?? "";
  const token = given === "" ? randomBytes(24).toString("base64url") : given;
  return withMoorage(
    options,
    async ({ moorage, lifetime: { abortSignal }, start }) => {
      const { serveMcpHttp } = await import("../mcp/http.ts");
      const onError = (error: Error): void => printLine(`moor: mcp: ${error.message}`);
      const onList = (): void => startInBackground(start);
      const server = await serveMcpHttp({
        makeServer: (caller) => createMcpServer(moorage, { version: version(), caller, onError, onList }),
        onGone: (caller) => void moorage.forget(caller).catch(onError),
        host: options.host,
        port,
        token,
        onError,
      });
      const unlisten = moorage.onEvent(({ type }) => {
        if (type === "tools-changed") server.toolsChanged();
      });
      try {
        printLine(`moor: Serving MCP at ${server.url}`);
        if (given === "") printLine(`moor: Clients send the header "Authorization: Bearer ${token}"`);
        await new Promise<void>((resolve) => {
          abortSignal.addEventListener("abort", () => resolve(), { once: true });
          if (abortSignal.aborted) resolve();
        });
      } finally {
        unlisten();
        await server.close();
      }
      return EXIT.ok;
    },
    { watches: true },
  );
}

/** So that the first call finds it ready. A failure is told by that call, which tries again. */
function startInBackground(start: () => Promise<void>): void {
  start().catch((error: unknown) => {
    printLine(`moor: mcp: ${error instanceof Error ? error.message : String(error)}`);
  });
}
