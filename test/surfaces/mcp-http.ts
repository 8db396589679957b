/**
 * Serves an MCP server factory over streamable HTTP on loopback with the SDK's own handler. For test suites that
 * speak nothing else; the protocol above the transport is the one that stdio carries.
 */
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { createMcpHandler, type McpServerFactory } from "@modelcontextprotocol/server";

export interface HttpBridge extends AsyncDisposable {
  readonly url: string;
}

export async function serveHttp(factory: McpServerFactory): Promise<HttpBridge> {
  const handler = createMcpHandler(factory);
  const server = createServer(async (request, response) => {
    const answer = await handler.fetch(toWebRequest(request));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) Readable.fromWeb(answer.body as never).pipe(response);
    else response.end();
  });
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

function toWebRequest(request: IncomingMessage): Request {
  const { method = "GET", headers, url = "/" } = request;
  const hasBody = method !== "GET" && method !== "HEAD";
  return new Request(new URL(url, `http://${headers.host}`), {
    method,
    headers: Object.entries(headers).flatMap(([name, value]) =>
      [value ?? []].flat().map((item): [string, string] => [name, item]),
    ),
    ...(hasBody && { body: Readable.toWeb(request) as ReadableStream<Uint8Array>, duplex: "half" }),
  });
}
