/** Passes bytes between two sockets, once the first of them have shown that they go where they said. */
import type { Socket } from "node:net";
import { limits } from "../../src/limits.ts";
import { readClientHello } from "./client-hello.ts";
import type { Flow } from "./flow.ts";
import { type Host, MalformedHost, parseHost } from "./host.ts";
import type { CompiledPolicy } from "./policy.ts";

/** A server that was dialled, and what reads it. */
export interface TunnelServer {
  readonly socket: Socket;
  readonly flow: Flow;
}

/**
 * Ends both when either breaks, and when neither moves for `limits.egressIdleMs`.
 * @returns to be called when one moves
 */
function watch(client: Socket, server: Socket): () => void {
  const end = () => {
    clearTimeout(timer);
    client.destroy();
    server.destroy();
  };
  const timer = setTimeout(end, limits.egressIdleMs);
  timer.unref();
  for (const [from, to] of [
    [client, server],
    [server, client],
  ] as const) {
    from.on("error", end);
    from.once("close", () => {
      // What was read still goes out; a break is passed on as one.
      if (!from.readableEnded) end();
      else if (to.destroyed) clearTimeout(timer);
    });
  }
  return () => timer.refresh();
}

/**
 * Why the first bytes of a tunnel are refused; null when they are fine; `more` when they do not tell yet.
 *
 * On port 443 they must be a ClientHello. On other ports, which a rule names, whatever is no TLS passes.
 */
export function judgeFirstBytes(
  bytes: Buffer,
  target: { readonly host: Host; readonly port: number },
  policy: CompiledPolicy,
): string | null | "more" {
  if (target.port !== 443 && bytes.length > 0 && bytes[0] !== 22) return null;
  const hello = readClientHello(bytes);
  if (hello.state === "incomplete") return "more";
  if (hello.state === "malformed") return `the tunnel does not carry TLS: ${hello.reason}`;
  if (hello.encrypted) return "the TLS server name is encrypted";
  if (hello.serverName === null) {
    return target.host.kind === "address" ? null : "the TLS handshake has no server name";
  }
  let name: Host;
  try {
    name = parseHost(hello.serverName);
  } catch (error) {
    if (error instanceof MalformedHost) return `the TLS server name is malformed: ${error.message}`;
    throw error;
  }
  if (target.host.kind === "address") {
    if (name.kind === "name" && policy.judge(name, target.port).allowed) return null;
  } else if (name.host === target.host.host) return null;
  return `the TLS server name is ${JSON.stringify(name.host)}`;
}

export interface TunnelOptions {
  /** What the client has sent already. */
  readonly head: Buffer;
  /** Whether the client speaks first, so that the server's bytes wait for the judgement. */
  readonly clientFirst: boolean;
  /** Why the client's first bytes are refused, null when they are not, or `more` when it takes more of them to tell. */
  readonly judge: (bytes: Buffer) => string | null | "more";
  /** Told why before both ends are closed. */
  readonly onRefused: (reason: string) => void;
}

/**
 * Connects a client to a server that was dialled for it. The client's bytes flow after they were judged; the server's
 * at once unless the client speaks first.
 */
export function tunnel(
  client: Socket,
  { socket: server, flow }: TunnelServer,
  { head, clientFirst, judge, onRefused }: TunnelOptions,
): void {
  let seen = head;
  let moved = () => {};
  const cleanUp = () => {
    clearTimeout(timer);
    client.off("data", onData);
    client.off("end", onEnd);
    client.off("close", close);
    server.off("close", close);
    client.off("error", close);
    server.off("error", close);
  };
  const close = () => {
    cleanUp();
    client.destroy();
    server.destroy();
  };
  const refuse = (reason: string) => {
    onRefused(reason);
    close();
  };
  const look = (): boolean => {
    if (seen.length === 0) return false;
    const answer = judge(seen);
    if (answer === "more") return false;
    if (answer !== null) {
      refuse(answer);
      return true;
    }
    cleanUp();
    client.pause();
    client.unshift(seen);
    moved = watch(client, server);
    client.on("data", () => moved());
    client.pipe(server);
    if (clientFirst) flow.start(server, client, () => moved());
    return true;
  };
  const onData = (chunk: Buffer) => {
    seen = Buffer.concat([seen, chunk]);
    look();
  };
  const onEnd = () => refuse("the tunnel ended before it began");
  const patienceMs = clientFirst ? limits.egressHeadMs : limits.egressIdleMs;
  const timer = setTimeout(() => refuse("the tunnel stayed silent"), patienceMs);
  timer.unref();
  client.on("data", onData);
  client.once("end", onEnd);
  for (const socket of [client, server]) {
    socket.once("close", close);
    socket.once("error", close);
  }
  if (!clientFirst) flow.start(server, client, () => moved());
  // Whoever read the socket before may have paused it.
  if (!look()) client.resume();
}
