/**
 * The Vercel Sandbox HTTP API over any environments: each session of a sandbox is one environment of the factory's.
 * Sandboxes, their snapshots among them, live as long as the server does.
 */
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { grantOf } from "../bearer.ts";
import { limits } from "../limits.ts";
import { ApiError, notFound, toApiError } from "./api-error.ts";
import { sendJson } from "./http.ts";
import type { PlaceFactory } from "./place.ts";
import type { Owner, Sandbox, SandboxHost, Snapshot } from "./sandbox.ts";
import { sandboxRoutes } from "./sandbox-routes.ts";
import { sessionRoutes } from "./session-routes.ts";

/** A bearer token and what it opens. */
export interface ServeGrant {
  readonly token: string;
  /** @default every team */
  readonly teamId?: string;
  /** @default every project */
  readonly projectIds?: readonly string[];
}

export interface SandboxServerOptions {
  readonly makePlace: PlaceFactory;
  readonly grants: readonly ServeGrant[];
  /** Folder on this machine for snapshots; a folder of its own is made in it and removed at the end. */
  readonly stateDir: string;
  /** Told what went wrong where no client waits for an answer. */
  readonly onProblem?: (error: unknown) => void;
}

export interface SandboxServer extends AsyncDisposable {
  /** @returns its address, for clients: `http://127.0.0.1:PORT` */
  listen(options?: { readonly host?: string; readonly port?: number }): Promise<string>;
  /** Ends every session and removes every snapshot. Idempotent. */
  close(): Promise<void>;
}

/** One request with all that a route needs. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly query: URLSearchParams;
  /** The parts of the path that the route left open. */
  readonly parts: readonly string[];
  readonly grant: ServeGrant;
}

/** What the server knows, shared by its routes. */
export interface ServerState extends SandboxHost {
  readonly sandboxes: Map<string, Sandbox>;
}

export interface Route {
  readonly method: string;
  /** Parts of the path below `/v2/sandboxes`; `*` takes any one. */
  readonly path: readonly string[];
  /** A request that must not be sent twice, since it would do its work twice. @default false */
  readonly isOnce?: boolean;
  readonly handle: (exchange: Exchange, state: ServerState) => Promise<void>;
}

const ROUTES: readonly Route[] = [...sessionRoutes, ...sandboxRoutes];

/** Whether a token opens what belongs to this owner. */
export function mayUse(grant: ServeGrant, owner: Owner): boolean {
  return (
    (grant.teamId === undefined || grant.teamId === owner.teamId) &&
    (grant.projectIds === undefined || grant.projectIds.includes(owner.projectId))
  );
}

/** Makes a server that does not listen yet. @throws {RangeError} without a token that could be asked for */
export function createSandboxServer(options: SandboxServerOptions): SandboxServer {
  if (options.grants.length === 0 || options.grants.some(({ token }) => token === "")) {
    throw new RangeError("A server needs at least one token, and none may be empty");
  }
  return new HttpSandboxServer(options);
}

class HttpSandboxServer implements SandboxServer {
  readonly #options: SandboxServerOptions;
  readonly #server: Server;
  #state: ServerState | null = null;
  #closed: Promise<void> | null = null;

  constructor(options: SandboxServerOptions) {
    this.#options = options;
    this.#server = createServer((request, response) => void this.#answer(request, response));
    // A command's answer may stay silent for as long as the command does.
    this.#server.requestTimeout = 0;
    this.#server.keepAliveTimeout = limits.serveIdleMs;
  }

  async listen({ host = "127.0.0.1", port = 0 } = {}): Promise<string> {
    const { makePlace, stateDir, onProblem = () => {} } = this.#options;
    await mkdir(stateDir, { recursive: true, mode: 0o700 });
    const snapshotFolder = await mkdtemp(join(stateDir, "serve-"));
    this.#state = {
      makePlace,
      snapshotFolder,
      onProblem,
      snapshots: new Map<string, Snapshot>(),
      sandboxes: new Map(),
      isClosing: () => this.#closed !== null,
    };
    try {
      await new Promise<void>((resolve, reject) => {
        this.#server.once("error", reject);
        this.#server.listen(port, host, () => {
          this.#server.off("error", reject);
          resolve();
        });
      });
    } catch (error) {
      await rm(snapshotFolder, { recursive: true, force: true });
      throw error;
    }
    const address = this.#server.address() as AddressInfo; // listens on TCP
    return `http://${host.includes(":") ? `[${host}]` : host}:${address.port}`;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    this.#server.close();
    this.#server.closeIdleConnections();
    const state = this.#state;
    if (!state) return;
    const sandboxes = [...state.sandboxes.values()];
    const outcomes = await Promise.allSettled(sandboxes.map((sandbox) => sandbox.remove()));
    this.#server.closeAllConnections();
    await rm(state.snapshotFolder, { recursive: true, force: true });
    const failures = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason] : []));
    if (failures.length > 0) throw failures[0];
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let isOnce = request.method !== "GET";
    response.setHeader("connection", "keep-alive");
    response.setHeader("keep-alive", `timeout=${limits.serveIdleToldMs / 1_000}`);
    try {
      const state = this.#state;
      if (!state || this.#closed) throw new ApiError(503, "closing", "The server is closing");
      const grant = grantOf(request, this.#options.grants);
      if (!grant) throw new ApiError(401, "unauthorized", "The bearer token is missing or not known here");
      const url = readAddress(request);
      const { route, parts } = findRoute(request.method ?? "GET", url.pathname);
      isOnce = route.isOnce ?? false;
      await route.handle({ request, response, query: url.searchParams, parts, grant }, state);
    } catch (error) {
      const failure = toApiError(error, !isOnce);
      if (failure.status === 500) this.#options.onProblem?.(error);
      // What the client still sends is not read, so that the connection cannot be used again.
      if (!request.complete) response.setHeader("connection", "close");
      sendJson(response, failure.status, failure.body());
    }
  }
}

/** @throws {ApiError} 400 */
function readAddress({ url = "/" }: IncomingMessage): URL {
  try {
    return new URL(url, "http://server");
  } catch (error) {
    throw malformed(error);
  }
}

function malformed(cause: unknown): ApiError {
  return new ApiError(400, "bad_request", "The address is malformed", cause);
}

function findRoute(
  method: string,
  pathname: string,
): { readonly route: Route; readonly parts: readonly string[] } {
  const [, rest] = /^(?:\/api)?\/v[23]\/sandboxes(\/.*)?$/.exec(pathname) ?? [];
  const isOurs = /^(?:\/api)?\/v[23]\/sandboxes(?:\/|$)/.test(pathname);
  if (!isOurs) throw notFound("address");
  const words = (rest ?? "")
    .split("/")
    .filter((word) => word !== "")
    .map(decodePart);
  const fitting = ROUTES.filter(
    ({ path }) =>
      path.length === words.length && path.every((part, at) => part === "*" || part === words[at]),
  );
  const route = fitting.find((candidate) => candidate.method === method);
  if (route) return { route, parts: words.filter((_, at) => route.path[at] === "*") };
  if (fitting.length > 0) throw new ApiError(405, "method_not_allowed", `${method} is not for this address`);
  throw notFound("address");
}

function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch (error) {
    throw malformed(error);
  }
}
