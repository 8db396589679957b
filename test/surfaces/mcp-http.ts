/**
 * Serves an MCP server factory over streamable HTTP on loopback with the SDK's own handler. For test suites that
 * speak nothing else; the protocol above the transport is the one that stdio carries.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createMcpHandler, type McpServerFactory } from "@modelcontextprotocol/server";
import { fetchListener } from "../../src/mcp/http.ts";

export interface HttpBridge extends AsyncDisposable {
  readonly url: string;
}

export async function serveHttp(factory: McpServerFactory): Promise<HttpBridge> {
  const handler = createMcpHandler(factory);
  const server = createServer(fetchListener((request) => handler.fetch(request), console.error));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  // It listens on a port, so its address is not a path.
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    async [Symbol.asyncDispose]() {
      await handler.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
