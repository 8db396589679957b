/**
 * The only way out of a place with a policy. One listener speaks HTTP, CONNECT and SOCKS5, told apart by the first
 * byte, and asks the same judgement for all of them. When it is closed, or its process ends, nothing gets out.
 */
import { createServer as createHttpServer, type Server as HttpServer, type IncomingMessage } from "node:http";
import { createServer, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { limits } from "../../src/limits.ts";
import type { EgressCredential, EgressPolicy } from "../base.ts";
import { type Credential, readCredential } from "./credentials.ts";
import { type Decision, type DecisionCounts, DecisionLog } from "./decisions.ts";
import { type Connect, connectDirectly, dial, type Lookup, resolveWithSystem } from "./dial.ts";
import { Flow } from "./flow.ts";
import { formatHost, MalformedHost, parseAuthority } from "./host.ts";
import { type CompiledPolicy, compilePolicy } from "./policy.ts";
import {
  answerRequest,
  asDecision,
  BUSY,
  denied,
  malformedRequest,
  type Refusal,
  refusalParts,
  refuseRequest,
  type Target,
  unreachable,
} from "./requests.ts";
import {
  NO_ACCEPTABLE_METHOD,
  NO_AUTHENTICATION,
  REPLY,
  readGreeting,
  readSocksRequest,
  replyFrame,
  SOCKS_VERSION,
} from "./socks.ts";
import { judgeFirstBytes, tunnel } from "./tunnel.ts";

export type ListenOn = { readonly path: string } | { readonly port: number };

export interface EgressProxyOptions {
  readonly policy: EgressPolicy;
  /** A unix socket's path, or a port of 127.0.0.1 (0 for any). @default nowhere yet */
  readonly listen?: ListenOn;
  readonly credentials?: readonly EgressCredential[];
  /** Certificates, PEM, by which servers are trusted that a credential goes to over TLS. @default Node's own */
  readonly authorities?: readonly string[];
  /** @default this machine's resolver */
  readonly lookup?: Lookup;
  /** How an address is reached, for a network that has another way out. @default directly */
  readonly connect?: Connect;
  readonly onDecision?: (decision: Decision) => void;
}

export interface EgressProxy extends AsyncDisposable {
  /** Port of 127.0.0.1; null on a unix socket. */
  readonly port: number | null;
  readonly counts: DecisionCounts;
  /** The last decisions, oldest first. */
  readonly decisions: readonly Decision[];
  /**
   * Changes the policy while running; connections that the new one denies are closed.
   * @throws {MoorageError} INVALID_SPEC, and the old policy stays
   */
  setPolicy(policy: EgressPolicy): void;
  /** Listens, once. @throws {Error} when the place is taken */
  listen(where: ListenOn): Promise<void>;
  /**
   * Takes connections from a listener that another process made, in a network namespace of its own for example. An
   * earlier one is closed: its place is gone, and must not be held by it.
   */
  adopt(listener: Server): void;
  /** Closes every listener and every connection. Idempotent. */
  close(): Promise<void>;
}

/** How a refusal and an acceptance are said to a client. */
interface Speech {
  accept(): void;
  refuse(refusal: Refusal): void;
}

interface OpenConnection {
  readonly server: Socket;
  readonly client: Socket;
  readonly target: Target;
  readonly address: string;
  /** Whether it is of no use without its client, as an answer is; a tunnel has bytes of its own to bring to an end. */
  readonly forAnswer: boolean;
}

class RunningProxy implements EgressProxy {
  readonly #log: DecisionLog;
  readonly #lookup: Lookup;
  readonly #connect: Connect;
  readonly #credentials: readonly Credential[];
  readonly #authorities: readonly string[] | undefined;
  readonly #listener: Server;
  readonly #http: HttpServer;
  #adopted: Server | null = null;
  readonly #clients = new Set<Socket>();
  readonly #open = new Set<OpenConnection>();
  /** Where the requests on a socket go, when it is a tunnel to a web server without TLS. */
  readonly #tunnels = new WeakMap<Duplex, Target>();
  /** When what follows on a connection must be a whole head. */
  readonly #heads = new WeakMap<Duplex, { readonly timer: NodeJS.Timeout; running: number }>();
  /** How many requests of a connection are not answered yet: it can ask for many at once. */
  readonly #unanswered = new Map<Duplex, number>();
  #policy: CompiledPolicy;

  constructor(options: EgressProxyOptions) {
    this.#policy = compilePolicy(options.policy);
    this.#credentials = (options.credentials ?? []).map(readCredential);
    this.#authorities = options.authorities;
    this.#log = new DecisionLog(options.onDecision);
    this.#lookup = options.lookup ?? resolveWithSystem;
    this.#connect = options.connect ?? connectDirectly;
    this.#listener = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#accept(socket));
    this.#http = this.#makeHttp();
  }

  adopt(listener: Server): void {
    // It was made without our options.
    Object.assign(listener, { allowHalfOpen: true, noDelay: true });
    listener.on("connection", (socket: Socket) => this.#accept(socket));
    listener.on("error", () => {});
    this.#adopted?.close();
    this.#adopted = listener;
  }

  async listen(where: ListenOn): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#listener.once("error", reject);
      this.#listener.listen(
        "path" in where ? { path: where.path } : { host: "127.0.0.1", port: where.port },
        () => {
          this.#listener.off("error", reject);
          resolve();
        },
      );
    });
  }

  get port(): number | null {
    const address = this.#listener.address();
    return address === null || typeof address === "string" ? null : address.port;
  }

  get counts(): DecisionCounts {
    return this.#log.counts;
  }

  get decisions(): readonly Decision[] {
    return this.#log.kept;
  }

  setPolicy(policy: EgressPolicy): void {
    this.#policy = compilePolicy(policy);
    for (const { client, server, target, address } of this.#open) {
      const still = this.#policy.judge(target.host, target.port).allowed;
      if (still && this.#policy.judgeAddress(address, target.port).allowed) continue;
      client.destroy();
      server.destroy();
    }
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => {
      if (this.#listener.listening) this.#listener.close(() => resolve());
      else resolve();
    });
    this.#adopted?.close();
    for (const client of this.#clients) client.destroy();
    for (const { server } of this.#open) server.destroy();
    this.#http.close();
    await closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #makeHttp(): HttpServer {
    const server = createHttpServer({
      insecureHTTPParser: false,
      requireHostHeader: false,
      keepAliveTimeout: limits.egressHeadMs,
      requestTimeout: 0,
      noDelay: true,
    });
    // Bodies take as long as they move.
    server.timeout = limits.egressIdleMs;
    // None is left out of what is looked at, as those behind the first thousand would be; their bytes have a limit.
    server.maxHeadersCount = 0;
    server.on("request", (request: IncomingMessage, response) => {
      const context = {
        policy: () => this.#policy,
        lookup: this.#lookup,
        connect: this.#connect,
        log: this.#log,
        credentials: this.#credentials,
        authorities: this.#authorities,
        track: (client: Socket, upstream: Socket, target: Target, address: string) =>
          this.#track({ client, server: upstream, target, address, forAnswer: true }),
      };
      this.#countRequests(request.socket, 1);
      response.once("close", () => {
        this.#countRequests(request.socket, -1);
        this.#countUnanswered(request.socket, -1);
      });
      if (!this.#countUnanswered(request.socket, 1)) {
        this.#log.add({ ...asDecision("http", "", 0), rule: "too many requests at once" });
        return refuseRequest(response, BUSY);
      }
      answerRequest(context, request, response, this.#tunnels.get(request.socket) ?? null).catch(() => {
        // A fault of ours must not open anything: the client is cut off.
        request.socket.destroy();
      });
      return undefined;
    });
    server.on("connect", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      // What is said of the tunnel would stand in the midst of an answer.
      if (this.#unanswered.has(socket)) return void socket.destroy();
      this.#countRequests(socket, 1);
      // The listener hands on net sockets only; the event's type is wider.
      this.#connectRequest(request, socket as Socket, head);
      return undefined;
    });
    server.on("clientError", (error: Error, socket: Duplex) => {
      if (!socket.writable || socket.destroyed) return void socket.destroy();
      this.#log.add({ ...asDecision("http", "", 0), rule: `malformed request: ${error.message}` });
      socket.end(headText(malformedRequest("it is no valid HTTP")), () => socket.destroy());
      return undefined;
    });
    return server;
  }

  #accept(socket: Socket): void {
    if (this.#clients.size >= limits.egressMaxConnections) {
      this.#log.add({ ...asDecision("connect", "", 0), rule: "too many connections" });
      socket.on("error", () => {});
      socket.destroy();
      return;
    }
    this.#clients.add(socket);
    socket.once("close", () => {
      this.#clients.delete(socket);
      this.#unanswered.delete(socket);
      for (const { client, server, forAnswer } of this.#open) {
        if (forAnswer && client === socket) server.destroy();
      }
    });
    // Whoever handles the socket hears of its end by `close`.
    socket.on("error", () => {});
    const timer = setTimeout(() => socket.destroy(), limits.egressHeadMs);
    timer.unref();
    socket.once("close", () => clearTimeout(timer));
    const silent = () => socket.destroy();
    socket.once("end", silent);
    socket.once("data", (chunk: Buffer) => {
      clearTimeout(timer);
      socket.off("end", silent);
      socket.pause();
      if (chunk[0] === SOCKS_VERSION) this.#socks(socket, chunk);
      else this.#asHttp(socket, chunk, null);
    });
  }

  #asHttp(socket: Socket, first: Buffer, target: Target | null): void {
    if (target) this.#tunnels.set(socket, target);
    if (first.length > 0) socket.unshift(first);
    this.#expectHead(socket);
    this.#http.emit("connection", socket);
    socket.resume();
  }

  /** Node times heads only on a server that listens itself, and this one is handed its connections. */
  #expectHead(socket: Duplex): void {
    const timer = setTimeout(() => socket.destroy(), limits.egressHeadMs);
    timer.unref();
    this.#heads.set(socket, { timer, running: 0 });
  }

  /** While requests run the next head has time. @param more 1 when one begins, -1 when one is answered */
  #countRequests(socket: Duplex, more: 1 | -1): void {
    const head = this.#heads.get(socket);
    if (!head) return;
    clearTimeout(head.timer);
    head.running += more;
    if (head.running === 0 && !socket.destroyed) this.#expectHead(socket);
  }

  /** @param more 1 when a request begins, -1 when it is answered @returns whether it may begin */
  #countUnanswered(socket: Duplex, more: 1 | -1): boolean {
    const own = this.#unanswered.get(socket) ?? 0;
    let all = more;
    for (const count of this.#unanswered.values()) all += count;
    if (own + more > 0) this.#unanswered.set(socket, own + more);
    else this.#unanswered.delete(socket);
    return all <= limits.egressMaxConnections;
  }

  #connectRequest(request: IncomingMessage, socket: Socket, head: Buffer): void {
    socket.on("error", () => {});
    const speech: Speech = {
      accept: () => socket.write("HTTP/1.1 200 Connection established\r\n\r\n"),
      refuse: (refusal) => socket.end(headText(refusal), () => socket.destroy()),
    };
    const text = request.url ?? "";
    try {
      if (this.#tunnels.has(socket)) throw new MalformedHost("a tunnel holds no other tunnel");
      const { host, port } = parseAuthority(text);
      if (port === null) throw new MalformedHost("CONNECT needs a port");
      this.#openTunnel("connect", socket, { host, port }, head, speech).catch(() => socket.destroy());
    } catch (error) {
      if (!(error instanceof MalformedHost)) throw error;
      this.#log.add({ ...asDecision("connect", text, 0), rule: `malformed host: ${error.message}` });
      speech.refuse({ ...malformedRequest(`its host is malformed: ${error.message}`), status: 403 });
    }
  }

  /** Judges and dials at once, and says so before anything else is read. */
  async #openTunnel(
    way: "connect" | "socks5",
    client: Socket,
    target: Target,
    head: Buffer,
    speech: Speech,
  ): Promise<void> {
    const { host, port } = target;
    const verdict = this.#policy.judge(host, port);
    const entry = { ...asDecision(way, formatHost(host), port), ...verdict };
    if (!verdict.allowed) {
      this.#log.add(entry);
      return speech.refuse(denied(entry));
    }
    if (port === 80) {
      // Judged, resolved and dialled for each request in it.
      speech.accept();
      return this.#asHttp(client, head, target);
    }
    let flow = new Flow();
    const dialled = await dial(
      () => this.#policy,
      target,
      this.#lookup,
      (to, at) => {
        // Each attempt reads by itself, and nothing before it is known that the client goes where it said.
        flow = new Flow();
        return this.#connect(to, at, flow.onread).pause();
      },
    );
    if (dialled.outcome === "unreachable") {
      this.#log.add(entry);
      return speech.refuse(unreachable(dialled.reason));
    }
    const final = { ...entry, ...dialled.verdict, address: dialled.address };
    if (dialled.outcome === "denied") {
      this.#log.add(final);
      return speech.refuse(denied(final));
    }
    const { socket: server, address } = dialled;
    if (client.destroyed) return void server.destroy();
    this.#track({ client, server, target, address, forAnswer: false });
    speech.accept();
    const clientFirst = port === 443;
    // What is not known before the first bytes is said of them; what passes is one decision, not two.
    if (!clientFirst) this.#log.add(final);
    let judged = !clientFirst;
    const judge = (bytes: Buffer) => {
      const answer = judgeFirstBytes(bytes, target, this.#policy);
      if (answer === null && !judged) {
        judged = true;
        this.#log.add(final);
      }
      return answer;
    };
    const onRefused = (rule: string) => this.#log.add({ ...final, allowed: false, rule, allowWith: null });
    tunnel(client, { socket: server, flow }, { head, clientFirst, judge, onRefused });
  }

  #socks(socket: Socket, first: Buffer): void {
    let bytes = first;
    let greeted = false;
    const stop = () => {
      clearTimeout(timer);
      socket.off("data", onData);
      socket.pause();
    };
    const refuse = (frame: Buffer) => {
      stop();
      socket.end(frame, () => socket.destroy());
      // What still comes is not read; the end is.
      socket.resume();
    };
    const timer = setTimeout(() => socket.destroy(), limits.egressHeadMs);
    timer.unref();
    const step = () => {
      if (!greeted) {
        const greeting = readGreeting(bytes);
        if (!greeting) return;
        if (!greeting.acceptable) return refuse(NO_ACCEPTABLE_METHOD);
        greeted = true;
        bytes = bytes.subarray(greeting.size);
        socket.write(NO_AUTHENTICATION);
      }
      const request = readSocksRequest(bytes);
      if (!request) return;
      if ("reply" in request) {
        this.#log.add({ ...asDecision("socks5", request.host, request.port), rule: request.reason });
        return refuse(replyFrame(request.reply));
      }
      stop();
      const speech: Speech = {
        accept: () => socket.write(replyFrame(REPLY.succeeded)),
        refuse: ({ status }) => refuse(replyFrame(status === 403 ? REPLY.notAllowed : REPLY.unreachable)),
      };
      this.#openTunnel("socks5", socket, request, bytes.subarray(request.size), speech).catch(() =>
        socket.destroy(),
      );
    };
    const onData = (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      step();
    };
    socket.once("close", () => clearTimeout(timer));
    socket.once("end", () => {
      if (!greeted || socket.listeners("data").includes(onData)) socket.destroy();
    });
    socket.on("data", onData);
    socket.resume();
    step();
  }

  #track(connection: OpenConnection): void {
    this.#open.add(connection);
    connection.server.once("close", () => this.#open.delete(connection));
    connection.server.on("error", () => {});
  }
}

function headText(refusal: Refusal): string {
  const { status, reason, headers, body } = refusalParts(refusal);
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${reason}\r\n${lines.join("")}\r\n${body}`;
}

/**
 * Starts a proxy.
 *
 * @throws {MoorageError} INVALID_SPEC when the policy or a credential is malformed
 */
export async function createEgressProxy(options: EgressProxyOptions): Promise<EgressProxy> {
  const proxy = new RunningProxy(options);
  if (options.listen) await proxy.listen(options.listen);
  return proxy;
}
