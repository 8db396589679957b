/** A small engine on a unix socket, for faults that a real one does not show on demand. */
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import type { DockerEndpoint } from "../../../environments/docker/endpoint.ts";

export interface FakeRequest {
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: Readonly<Record<string, unknown>>;
}

export interface FakeAnswer {
  readonly status?: number;
  readonly json?: unknown;
}

/** Answers, or takes over the response and returns nothing. */
export type FakeRoute = (
  request: FakeRequest,
  response: ServerResponse,
  match: RegExpExecArray,
) => FakeAnswer | undefined | Promise<FakeAnswer | undefined>;

export interface FakeExec {
  readonly id: string;
  readonly config: Readonly<Record<string, unknown>>;
  /** The raw connection after the upgrade. */
  readonly socket: Duplex;
  /** What exec inspect answers from now on. */
  report(state: { Running?: boolean; ExitCode?: number | null; Pid?: number }): void;
}

export const CONTAINER_ID = "c0ffee".padEnd(64, "0");

export function frame(kind: number, payload: string | Uint8Array): Buffer {
  const bytes = Buffer.from(payload as string); // either form is taken; the overloads want one
  const header = Buffer.alloc(8);
  header.writeUInt8(kind, 0);
  header.writeUInt32BE(bytes.length, 4);
  return Buffer.concat([header, bytes]);
}

export class FakeDaemon implements AsyncDisposable {
  readonly socketPath: string;
  readonly requests: FakeRequest[] = [];
  readonly connections = new Set<Socket>();
  /** What the program does; by default it says nothing and exits 0. */
  onExec: (exec: FakeExec) => void = ({ socket, report }) => {
    report({ Running: false, ExitCode: 0, Pid: 0 });
    socket.end();
  };
  /** What container inspect answers. */
  hostConfig: object = { Privileged: false, PidMode: "" };
  state = { Running: true, Paused: false, Status: "running" };
  /** Inspects that still say Running and no exit code after the program ended. */
  staleInspects = 0;
  readonly #dir: string;
  readonly #server: Server;
  readonly #routes: { method: string; path: RegExp; route: FakeRoute }[] = [];
  readonly #execs = new Map<string, { config: Record<string, unknown>; state: Record<string, unknown> }>();
  readonly #events = new Set<ServerResponse>();

  private constructor() {
    this.#dir = mkdtempSync(join(tmpdir(), "moorage-fake-"));
    this.socketPath = join(this.#dir, "engine.sock");
    this.#server = createServer((request, response) => void this.#serve(request, response));
    this.#server.on("connection", (socket) => {
      this.connections.add(socket);
      socket.on("error", () => {}); // clients leave as they like
      socket.on("close", () => this.connections.delete(socket));
    });
    this.#server.on("upgrade", (request, socket, head) => {
      if (head.length > 0) socket.unshift(head);
      this.#startExec(request, socket);
    });
    this.#defaults();
  }

  static async listen(): Promise<FakeDaemon> {
    const daemon = new FakeDaemon();
    await new Promise<void>((resolve) => daemon.#server.listen(daemon.socketPath, resolve));
    return daemon;
  }

  get endpoint(): DockerEndpoint {
    return {
      url: `unix://${this.socketPath}`,
      source: "the test",
      socketPath: this.socketPath,
      host: null,
      port: null,
      tls: null,
      apiVersion: null,
      local: true,
    };
  }

  /** Later routes win over earlier ones and over the defaults. */
  on(method: string, path: RegExp, route: FakeRoute): void {
    this.#routes.unshift({ method, path, route });
  }

  asked(method: string, path: RegExp): FakeRequest[] {
    return this.requests.filter((request) => request.method === method && path.test(request.path));
  }

  /** Tells every watcher of events. @param atMs when it happened, as Date.now counts */
  emit(action: string, attributes: Record<string, string> = {}, atMs?: number): void {
    const event = {
      Type: "container",
      Action: action,
      Actor: { ID: CONTAINER_ID, Attributes: attributes },
      ...(atMs !== undefined && { timeNano: atMs * 1e6 }),
    };
    for (const response of this.#events) response.write(`${JSON.stringify(event)}\n`);
  }

  /** Breaks the connections of the watchers of events. */
  dropWatchers(): void {
    for (const response of this.#events) response.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.connections) socket.destroy(); // a server waits for its last connection
    await new Promise((resolve) => this.#server.close(resolve));
    rmSync(this.#dir, { recursive: true });
  }

  #defaults(): void {
    this.on("GET", /^\/_ping$/, () => ({ json: "OK" }));
    this.on("GET", /^\/containers\/json$/, () => ({ json: [] }));
    this.on("POST", /^\/containers\/create$/, () => ({
      status: 201,
      json: { Id: CONTAINER_ID, Warnings: [] },
    }));
    this.on("HEAD", /^\/containers\/[^/]+\/archive$/, () => ({}));
    this.on("POST", /^\/containers\/[^/]+\/start$/, () => ({ status: 204 }));
    this.on("DELETE", /^\/containers\/[^/]+$/, () => ({ status: 204 }));
    this.on("GET", /^\/containers\/[^/]+\/json$/, () => ({ json: this.#inspection() }));
    this.on("GET", /^\/containers\/[^/]+\/stats$/, () => ({
      json: { pids_stats: { current: 2, limit: 512 } },
    }));
    this.on("GET", /^\/images\/.*\/json$/, () => ({ json: { Id: "sha256:1", Config: { User: "" } } }));
    this.on("GET", /^\/events$/, (_request, response) => {
      response.writeHead(200, { "Content-Type": "application/json" });
      response.flushHeaders();
      this.#events.add(response);
      response.on("close", () => this.#events.delete(response));
      return undefined;
    });
    this.on("POST", /^\/containers\/[^/]+\/exec$/, ({ body }) => {
      const id = `exec${this.#execs.size}`;
      this.#execs.set(id, { config: { ...body }, state: { Running: true, ExitCode: null, Pid: 4242 } });
      return { status: 201, json: { Id: id } };
    });
    this.on("GET", /^\/exec\/([^/]+)\/json$/, (_request, _response, match) => {
      const exec = this.#execs.get(match[1] ?? "");
      if (!exec) return { status: 404, json: { message: `No such exec instance: ${match[1]}` } };
      const stale = exec.state.Running === false && this.staleInspects > 0;
      if (stale) this.staleInspects -= 1;
      return { json: stale ? { Running: true, ExitCode: null, Pid: 4242 } : exec.state };
    });
  }

  #inspection() {
    return {
      Id: CONTAINER_ID,
      Image: "sha256:1",
      Name: "/fake",
      Config: { User: "", WorkingDir: "/workspace", Image: "fake" },
      State: this.state,
      HostConfig: this.hostConfig,
      Mounts: [],
    };
  }

  async #serve(raw: IncomingMessage, response: ServerResponse): Promise<void> {
    const request = await this.#read(raw);
    for (const { method, path, route } of this.#routes) {
      const match = path.exec(request.path);
      if (request.method !== method || !match) continue;
      const answer = await route(request, response, match);
      if (answer) reply(response, answer);
      return;
    }
    reply(response, {
      status: 501,
      json: { message: `the fake knows no ${request.method} ${request.path}` },
    });
  }

  async #read(raw: IncomingMessage): Promise<FakeRequest> {
    const chunks: Buffer[] = [];
    for await (const chunk of raw) chunks.push(chunk);
    const url = new URL(raw.url ?? "/", "http://engine");
    const text = Buffer.concat(chunks).toString("utf8");
    const body = text ? JSON.parse(text) : {};
    const request = { method: raw.method ?? "", path: url.pathname, query: url.searchParams, body };
    this.requests.push(request);
    return request;
  }

  #startExec(raw: IncomingMessage, socket: Duplex): void {
    const path = raw.url ?? "";
    this.requests.push({ method: "POST", path, query: new URLSearchParams(), body: {} });
    const id = /^\/exec\/([^/]+)\/start$/.exec(path)?.[1] ?? "";
    const exec = this.#execs.get(id);
    socket.on("error", () => {}); // clients leave as they like
    if (!exec) {
      socket.end("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}");
      return;
    }
    socket.write("HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
    const report: FakeExec["report"] = (state) => Object.assign(exec.state, state);
    // The body of the start request comes first on the upgraded connection.
    const length = Number(raw.headers["content-length"] ?? 0);
    skipBytes(socket, length, () => this.onExec({ id, config: exec.config, socket, report }));
  }
}

function skipBytes(socket: Duplex, count: number, then: () => void): void {
  const skip = (): void => {
    if (count > 0 && socket.read(count) === null) {
      socket.once("readable", skip);
      return;
    }
    then();
  };
  skip();
}

function reply(response: ServerResponse, { status = 200, json }: FakeAnswer): void {
  response.writeHead(status, { "Content-Type": "application/json" });
  response.end(json === undefined ? "" : JSON.stringify(json));
}
