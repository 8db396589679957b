/**
 * MCP over streamable HTTP. Clients of the earlier protocols get a session each, and with it a shell session of their
 * own and news of the list; those of the 2026-07-28 protocol send requests that stand alone, and share one.
 *
 * A page in a browser must not get at it: the Host is ours, an Origin is this machine, and every request carries the
 * token.
 */
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import {
  createMcpHandler,
  hostHeaderValidationResponse,
  isLegacyRequest,
  localhostAllowedHostnames,
  localhostAllowedOrigins,
  originValidationResponse,
  type Server,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import { grantOf } from "../bearer.ts";
import { MoorageError } from "../errors.ts";
import { limits } from "../limits.ts";

export interface McpHttpOptions {
  /** Makes the server of one connection. @param caller whose shell session its calls use */
  readonly makeServer: (caller: string) => Server;
  /** Told when a caller is gone for good. */
  readonly onGone: (caller: string) => void;
  /** Address, or the name that clients use for it; requests for another Host are refused. */
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  readonly token: string;
  readonly onError: (error: Error) => void;
}

export interface McpHttpServer {
  readonly url: string;
  /** Tells clients without a session that the list of tools is another one. */
  toolsChanged(): void;
  /** Ends sessions, their calls and connections. */
  close(): Promise<void>;
}

/** The path that answers; all others do not exist. */
const PATH = "/mcp";
/** Callers that have no session of the protocol's own. */
const SHARED = "mcp-http";

/**
 * Listens until it is closed.
 *
 * @throws {MoorageError} INVALID_ARGUMENTS when it cannot listen there
 */
export async function serveMcpHttp(options: McpHttpOptions): Promise<McpHttpServer> {
  const { makeServer, host, port, token, onError } = options;
  const sessions = new HttpSessions(options);
  const modern = createMcpHandler(() => makeServer(SHARED), {
    legacy: "reject",
    onerror: onError,
    maxRequestBodySize: limits.mcpMessageMaxBytes,
  });
  const hostnames = [...localhostAllowedHostnames(), host.includes(":") ? `[${host}]` : host];
  const listener = fetchListener(async (request) => {
    const misled =
      hostHeaderValidationResponse(request, hostnames) ??
      originValidationResponse(request, [...localhostAllowedOrigins(), host]);
    if (misled) return misled;
    if (new URL(request.url).pathname !== PATH) return new Response(null, { status: 404 });
    const legacy = await isLegacyRequest(request, undefined, {
      maxRequestBodySize: limits.mcpMessageMaxBytes,
    });
    return legacy ? sessions.answer(request) : modern.fetch(request);
  }, onError);
  const server = createServer((request, response) => {
    if (!grantOf(request, [{ token }])) {
      response.writeHead(401, { "www-authenticate": "Bearer" }).end();
      return;
    }
    listener(request, response);
  });
  const listening = Promise.withResolvers<void>();
  server.once("error", listening.reject).listen({ host, port }, listening.resolve);
  try {
    await listening.promise;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new MoorageError("INVALID_ARGUMENTS", `Cannot listen at ${host}:${port}: ${reason}`, {
      suggestion: "Choose an address of this machine and another port; 0 takes a free one.",
      cause: error,
    });
  }
  server.off("error", listening.reject).on("error", onError);
  // It listens on a port, so its address is not a path.
  const { port: taken } = server.address() as AddressInfo;
  return {
    url: `http://${host.includes(":") ? `[${host}]` : host}:${taken}${PATH}`,
    toolsChanged: () => modern.notify.toolsChanged(),
    async close() {
      await Promise.all([modern.close(), sessions.close()]);
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

interface HttpSession {
  readonly id: string;
  readonly transport: WebStandardStreamableHTTPServerTransport;
  /** Requests and streams that are open; without any, the session ends after a while. */
  open: number;
  idle: NodeJS.Timeout | undefined;
}

/** Sessions of the protocols with a handshake. One that nobody uses or listens to ends by itself. */
class HttpSessions {
  readonly #options: McpHttpOptions;
  readonly #sessions = new Map<string, HttpSession>();

  constructor(options: McpHttpOptions) {
    this.#options = options;
  }

  async answer(request: Request): Promise<Response> {
    const id = request.headers.get("mcp-session-id");
    const known = id === null ? await this.#begin() : this.#sessions.get(id);
    // Clients begin anew upon this, as the protocol says.
    if (!known) return Response.json({ error: "There is no such session" }, { status: 404 });
    known.open += 1;
    clearTimeout(known.idle);
    const done = (): void => this.#release(known);
    try {
      const response = await known.transport.handleRequest(request);
      if (!response.body) {
        done();
        return response;
      }
      return new Response(whenOver(response.body, done), response);
    } catch (error) {
      done();
      throw error;
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#sessions.values()].map(({ transport }) => transport.close()));
  }

  async #begin(): Promise<HttpSession> {
    const { makeServer, onGone } = this.#options;
    const id = crypto.randomUUID();
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => id,
      onsessioninitialized: () => void this.#sessions.set(id, session),
      maxRequestBodySize: limits.mcpMessageMaxBytes,
    });
    const session: HttpSession = { id, transport, open: 0, idle: undefined };
    const server = makeServer(id);
    const { onclose } = server;
    server.onclose = () => {
      onclose?.();
      clearTimeout(session.idle);
      if (this.#sessions.delete(id)) onGone(id);
    };
    await server.connect(transport);
    return session;
  }

  #release(session: HttpSession): void {
    session.open -= 1;
    if (session.open > 0) return;
    // A first request that was no handshake began nothing.
    if (!this.#sessions.has(session.id)) return void session.transport.close();
    session.idle = setTimeout(() => void session.transport.close(), limits.mcpSessionIdleMs);
    session.idle.unref();
  }
}

/** The same bytes, and a word when they have ended or nobody wants them any more. */
function whenOver(body: ReadableStream<Uint8Array>, done: () => void): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { value, done: ended } = await reader.read();
        if (!ended) return controller.enqueue(value);
        controller.close();
      } catch (error) {
        controller.error(error);
      }
      done();
    },
    async cancel(reason) {
      done();
      await reader.cancel(reason);
    },
  });
}

/** Serves a function from request to response over Node's HTTP; a client that leaves cancels its response. */
export function fetchListener(
  answer: (request: Request) => Promise<Response>,
  onError: (error: Error) => void,
): RequestListener {
  return (incoming, outgoing) => {
    serve(answer, incoming, outgoing).catch((error: unknown) => {
      // A client that went away before its answer's end is no fault.
      if (!incoming.destroyed && !outgoing.destroyed)
        onError(error instanceof Error ? error : new Error(String(error)));
      if (outgoing.headersSent) outgoing.destroy();
      else outgoing.writeHead(500).end();
    });
  };
}

async function serve(
  answer: (request: Request) => Promise<Response>,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const gone = new AbortController();
  outgoing.once("close", () => gone.abort());
  const request = toWebRequest(incoming, gone.signal);
  const response = request ? await answer(request) : new Response(null, { status: 400 });
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.flushHeaders();
  if (!response.body) return void outgoing.end();
  // The types of Node's own streams and of the web's differ in what nobody uses here.
  await pipeline(Readable.fromWeb(response.body as never), outgoing);
}

/** @returns null when the Host or the path is none */
function toWebRequest(incoming: IncomingMessage, signal: AbortSignal): Request | null {
  const { method = "GET", headers, url = "/" } = incoming;
  const address = URL.parse(url, `http://${headers.host ?? "localhost"}`);
  if (!address) return null;
  const hasBody = method !== "GET" && method !== "HEAD";
  return new Request(address, {
    method,
    signal,
    headers: Object.entries(headers).flatMap(([name, value]) =>
      [value ?? []].flat().map((item): [string, string] => [name, item]),
    ),
    ...(hasBody && { body: Readable.toWeb(incoming) as ReadableStream<Uint8Array>, duplex: "half" }),
  });
}
