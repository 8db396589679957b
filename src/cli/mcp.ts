/** `moor mcp`: the tools for an MCP client on our stdin and stdout, until it goes away. */
import { Console } from "node:console";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { createMcpServer } from "../mcp/server.ts";
import { StdioTransport } from "../mcp/stdio.ts";
import { EXIT } from "./exit.ts";
import { printLine } from "./output.ts";
import type { ToolOptions } from "./program.ts";
import { withMoorage } from "./runtime.ts";
import { version } from "./version.ts";

export async function mcp(options: ToolOptions): Promise<number> {
  // stdout is the protocol's alone, whatever a tool module prints.
  globalThis.console = new Console(process.stderr);
  if (process.stdin.isTTY)
    printLine("moor: An MCP client is expected on stdin; see docs/mcp.md. Ctrl-D ends this");
  return withMoorage(
    options,
    async ({ moorage, lifetime: { abortSignal } }) => {
      const transport = new StdioTransport();
      const onError = (error: Error): void => printLine(`moor: mcp: ${error.message}`);
      // Not before a client lists: some start a second server only to ask which protocol it speaks.
      const onList = (): void => startInBackground(moorage.environment());
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

/** So that the first call finds it ready. A failure is told by that call, which tries again. */
function startInBackground(environment: { start(): Promise<void> }): void {
  environment.start().catch((error: unknown) => {
    printLine(`moor: mcp: ${error instanceof Error ? error.message : String(error)}`);
  });
}
