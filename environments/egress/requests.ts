/**
 * Plain HTTP through the proxy. Each request is read by Node's strict parser, judged by its own target and written
 * anew towards the address that was judged, on a connection of its own: nothing of its framing is handed on, so
 * nothing can be smuggled in it.
 */
import { request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { limits } from "../../src/limits.ts";
import { type Credential, credentialFor } from "./credentials.ts";
import { type Decision, type DecisionLog, denialText } from "./decisions.ts";
import { type Connect, dial, type Lookup } from "./dial.ts";
import { type Authority, formatHost, type Host, MalformedHost, parseAuthority } from "./host.ts";
import type { CompiledPolicy } from "./policy.ts";

export interface Target {
  readonly host: Host;
  readonly port: number;
}

export interface RequestContext {
  readonly policy: () => CompiledPolicy;
  readonly lookup: Lookup;
  readonly connect: Connect;
  readonly log: DecisionLog;
  readonly credentials: readonly Credential[];
  readonly authorities: readonly string[] | undefined;
  /** What is open, so that a change of policy can close it. */
  readonly track: (socket: Socket, server: Socket, target: Target, address: string) => void;
}

/** Named in a refusal, for machines. */
export interface Refusal {
  readonly status: 400 | 403 | 502 | 503;
  readonly code: "EGRESS_DENIED" | "EGRESS_MALFORMED" | "EGRESS_UNREACHABLE" | "EGRESS_BUSY";
  readonly message: string;
  readonly rule: string | null;
  readonly allowWith: string | null;
}

/** Headers that speak of one connection, not of the message. */
const HOP_BY_HOP = new Set([
  "connection",
  "proxy-connection",
  "keep-alive",
  "proxy-authorization",
  "proxy-authenticate",
  "te",
  "trailer",
  "upgrade",
  "host",
  "transfer-encoding",
]);

/**
 * Answers one request.
 *
 * @param tunnel the target of the tunnel that the request came through; null when it was sent to the proxy itself
 */
export async function answerRequest(
  context: RequestContext,
  request: IncomingMessage,
  response: ServerResponse,
  tunnel: Target | null,
): Promise<void> {
  const wrong = framingProblem(request);
  const target = wrong ?? readTarget(request, tunnel);
  if (typeof target === "string") {
    context.log.add({
      ...asDecision("http", hostShown(request, tunnel), 0),
      rule: `malformed request: ${target}`,
    });
    return refuseRequest(response, malformedRequest(target));
  }
  const { host, path } = target;
  const credential = credentialFor(context.credentials, target);
  // Its answer is the request itself.
  if (credential && request.method === "TRACE") {
    const rule = "TRACE would show the credential of its host";
    context.log.add({ ...asDecision("http", formatHost(host), target.port), rule });
    return refuseRequest(response, malformedRequest(rule));
  }
  const secure = credential?.tls === true;
  const port = secure && target.port === 80 ? 443 : target.port;
  const verdict = context.policy().judge(host, port);
  const entry = { ...asDecision("http", formatHost(host), port), ...verdict };
  if (!verdict.allowed) {
    context.log.add(entry);
    return refuseRequest(response, denied(entry));
  }
  const dialled = await dial(context.policy, { host, port }, context.lookup, context.connect);
  if (dialled.outcome === "unreachable") {
    context.log.add(entry);
    return refuseRequest(response, unreachable(dialled.reason));
  }
  const final = { ...entry, ...dialled.verdict, address: dialled.address };
  context.log.add(final);
  if (dialled.outcome === "denied") return refuseRequest(response, denied(final));
  const { socket } = dialled;
  context.track(request.socket, socket, { host, port }, dialled.address);
  try {
    const outward = secure ? await overTls(socket, host, context.authorities) : socket;
    // Whoever asked may have left meanwhile, and nobody would hear of the answer's end.
    if (request.socket.destroyed) return void socket.destroy();
    forward(request, response, outward, { host, port: target.port, path }, credential);
  } catch (error) {
    socket.destroy();
    refuseRequest(response, unreachable(`${formatHost(host)} cannot be trusted: ${messageOf(error)}`));
  }
}

/** Speaks TLS over a connection, to the host that it was made for and no other. */
function overTls(socket: Socket, { kind, host }: Host, ca: readonly string[] | undefined): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const secure = connectTls({
      socket,
      host,
      ALPNProtocols: ["http/1.1"],
      ...(kind === "name" && { servername: host }),
      ...(ca && { ca: [...ca] }),
    });
    const patience = setTimeout(
      () => secure.destroy(new Error(`no handshake within ${limits.egressConnectMs} ms`)),
      limits.egressConnectMs,
    );
    // A break after the handshake is the request's to tell.
    secure.on("error", (error) => reject(error));
    secure.once("close", () => {
      clearTimeout(patience);
      reject(new Error("it broke off the handshake"));
    });
    secure.once("secureConnect", () => {
      clearTimeout(patience);
      resolve(secure);
    });
  });
}

export function asDecision(way: Decision["way"], host: string, port: number): Omit<Decision, "at"> {
  return { way, host, port, address: null, allowed: false, rule: "", allowWith: null };
}

export function denied(
  decision: Pick<Decision, "host" | "port" | "address" | "rule" | "allowWith">,
): Refusal {
  const { rule, allowWith } = decision;
  return { status: 403, code: "EGRESS_DENIED", message: denialText(decision), rule, allowWith };
}

export function unreachable(reason: string): Refusal {
  return {
    status: 502,
    code: "EGRESS_UNREACHABLE",
    message: `Allowed by policy, but ${reason}`,
    rule: null,
    allowWith: null,
  };
}

export function malformedRequest(reason: string): Refusal {
  const message = `Blocked by policy: the request is refused since ${reason}. Do not retry it as it is`;
  return { status: 400, code: "EGRESS_MALFORMED", message, rule: null, allowWith: null };
}

/** For what is over a limit of the proxy's; only this is worth another try. */
export const BUSY: Refusal = {
  status: 503,
  code: "EGRESS_BUSY",
  message: `The egress proxy answers ${limits.egressMaxConnections} requests at once and no more`,
  rule: null,
  allowWith: null,
};

const REASONS = {
  400: "Malformed for egress proxy",
  403: "Blocked by egress policy",
  502: "Bad Gateway",
  503: "Busy",
};

/** The head and body of a refusal; the reason phrase is what curl shows of a refused tunnel. */
export function refusalParts({ status, code, message, rule, allowWith }: Refusal) {
  const retryable = status > 500;
  const body = `${JSON.stringify({ error: { code, message, rule, allow_with: allowWith, retryable } })}\n`;
  const headers = {
    "Content-Type": "application/json",
    "Content-Length": String(Buffer.byteLength(body)),
    "X-Moorage-Egress": code,
    Connection: "close",
  };
  return { status, reason: REASONS[status], headers, body };
}

export function refuseRequest(response: ServerResponse, refusal: Refusal): void {
  const { status, reason, headers, body } = refusalParts(refusal);
  if (response.destroyed) return;
  response.writeHead(status, reason, headers).end(body);
}

function hostShown(request: IncomingMessage, tunnel: Target | null): string {
  return tunnel ? formatHost(tunnel.host) : (request.url ?? "");
}

/** What a lenient server could read as the end of this request and the beginning of another. */
function framingProblem({ rawHeaders, httpVersion }: IncomingMessage): string | null {
  if (httpVersion !== "1.1" && httpVersion !== "1.0") return "its HTTP version is unknown";
  const names = rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
  const count = (wanted: string) => names.filter((name) => name === wanted).length;
  const value = (wanted: string) => rawHeaders[names.indexOf(wanted) * 2 + 1] ?? "";
  if (count("host") > 1) return "it has more than one Host";
  if (count("content-length") > 1) return "it has more than one Content-Length";
  if (count("content-length") === 1 && !/^\d{1,15}$/.test(value("content-length")))
    return "its Content-Length is no number";
  if (count("transfer-encoding") === 0) return null;
  if (count("content-length") > 0) return "it has both Content-Length and Transfer-Encoding";
  if (count("transfer-encoding") > 1 || value("transfer-encoding").toLowerCase() !== "chunked")
    return "its Transfer-Encoding is not chunked alone";
  return httpVersion === "1.0" ? "HTTP/1.0 has no Transfer-Encoding" : null;
}

/** Where a request goes and with which path, or what is wrong with it. */
function readTarget(
  request: IncomingMessage,
  tunnel: Target | null,
): (Target & { readonly path: string }) | string {
  const url = request.url ?? "";
  if (/[^\x21-\x7e]/.test(url)) return "its target holds an odd byte";
  try {
    if (tunnel) {
      if (!/^\/|^\*$/.test(url)) return "its target is not a path";
      const named = request.headers.host;
      if (named === undefined) return "it has no Host";
      const { host, port } = parseAuthority(named);
      const same = host.host === tunnel.host.host && (port ?? 80) === tunnel.port;
      return same ? { ...tunnel, path: url } : "its Host is not the tunnel's";
    }
    const [, scheme, authority = "", path = ""] =
      /^([a-z][a-z0-9+.-]*):\/\/([^/?#]*)([/?][^#]*)?$/i.exec(url) ?? [];
    if (scheme === undefined) return "its target is no absolute URL";
    if (scheme.toLowerCase() !== "http") return "only http goes without a tunnel";
    const { host, port }: Authority = parseAuthority(authority);
    return { host, port: port ?? 80, path: path.startsWith("/") ? path : `/${path}` };
  } catch (error) {
    if (error instanceof MalformedHost) return `its host is malformed: ${error.message}`;
    throw error;
  }
}

function forwardedHeaders(request: IncomingMessage, target: Target, credential: Credential | null): string[] {
  const named = (request.headers.connection ?? "").split(",").map((name) => name.trim().toLowerCase());
  const drop = new Set([...HOP_BY_HOP, ...named]);
  // The body's length is said by Node when it is chunked; a client cannot have it left out.
  drop.delete("content-length");
  if (credential) drop.add(credential.header.toLowerCase());
  const authority =
    target.port === 80 ? formatHost(target.host) : `${formatHost(target.host)}:${target.port}`;
  const headers = ["Host", authority, "Connection", "close"];
  for (let index = 0; index < request.rawHeaders.length; index += 2) {
    const [name = "", value = ""] = request.rawHeaders.slice(index, index + 2);
    if (!drop.has(name.toLowerCase())) headers.push(name, value);
  }
  if (credential) headers.push(credential.header, credential.value);
  if (request.headers["transfer-encoding"] !== undefined) headers.push("Transfer-Encoding", "chunked");
  return headers;
}

function forward(
  request: IncomingMessage,
  response: ServerResponse,
  socket: Socket,
  target: Target & { readonly path: string },
  credential: Credential | null,
): void {
  const upstream = httpRequest({
    createConnection: () => socket,
    method: request.method ?? "GET",
    path: target.path,
    headers: forwardedHeaders(request, target, credential),
    setHost: false,
  });
  // None is left out of what is looked at; their bytes have a limit.
  upstream.maxHeadersCount = 0;
  const fail = (reason: string) => {
    if (!response.headersSent) refuseRequest(response, unreachable(reason));
    // A body that broke off must not look whole.
    else response.destroy();
    socket.destroy();
  };
  upstream.on("error", (error) => fail(`${formatHost(target.host)} broke off: ${error.message}`));
  // Never asked for: what was said of it is not handed on.
  upstream.on("upgrade", () => fail(`${formatHost(target.host)} went over to another protocol`));
  upstream.on("response", (answer) => {
    const named = (answer.headers.connection ?? "").split(",").map((name) => name.trim().toLowerCase());
    const headers: string[] = [];
    for (let index = 0; index < answer.rawHeaders.length; index += 2) {
      const [name = "", value = ""] = answer.rawHeaders.slice(index, index + 2);
      const lower = name.toLowerCase();
      if (!HOP_BY_HOP.has(lower) && !named.includes(lower)) headers.push(name, value);
    }
    try {
      response.writeHead(answer.statusCode ?? 0, answer.statusMessage ?? "", headers);
    } catch (error) {
      // A server may send what Node reads and does not write: a status of 000, control characters in its reason.
      return fail(`${formatHost(target.host)} has a malformed answer: ${messageOf(error)}`);
    }
    answer.on("error", () => fail("the answer broke off"));
    answer.pipe(response);
    return undefined;
  });
  response.once("close", () => socket.destroy());
  request.pipe(upstream);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
