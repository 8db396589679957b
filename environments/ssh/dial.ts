/** From nothing to an authenticated client, one hop at a time; every failure says which hop, which phase and why. */
import { connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Client } from "ssh2";
import { type ErrorCode, MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { Authentication, type Secrets } from "./authenticate.ts";
import type { HostSettings } from "./config.ts";
import { hostKeyAlgorithms, judgeHostKey, recordHostKey } from "./host-key.ts";
import { findKnown } from "./known-hosts.ts";
import { ssh2 } from "./library.ts";
import { gatherWrites, type Writes } from "./writes.ts";

export interface DialOptions {
  readonly secrets: Secrets;
  readonly onNote: (note: string) => void;
  readonly abortSignal?: AbortSignal;
}

/** An authenticated hop. `transport` carries it: a socket, or a channel of the hop before. */
export interface Dialled {
  readonly client: Client;
  readonly transport: Duplex;
  readonly writes: Writes;
  /** What the server calls itself: `OpenSSH_9.2p1`. */
  readonly software: string;
}

/**
 * @param via the hop before; null connects directly
 * @throws {MoorageError} SSH_*
 */
export async function dial(
  settings: HostSettings,
  via: Client | null,
  options: DialOptions,
): Promise<Dialled> {
  const known = await findKnown(settings);
  const authentication = await Authentication.prepare(settings, options.secrets);
  const transport = await (via ? forward(via, settings) : openSocket(settings, options.abortSignal));
  const writes = gatherWrites(transport);
  const client = new ssh2.Client();
  try {
    const software = await handshake();
    return { client, transport, writes, software };
  } catch (error) {
    client.destroy();
    transport.destroy();
    throw error;
  }

  function handshake(): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    let phase: Phase = "banner";
    let head = Buffer.alloc(0);
    let banner: string | null = null;
    let newKey: Buffer | null = null;
    let recorded: Promise<void> | null = null;
    let timer: NodeJS.Timeout;
    const fail = (code: ErrorCode, reason: string, cause?: unknown) =>
      reject(
        new MoorageError(code, `Cannot connect to ${place(settings)}: ${reason}`, {
          details: { host: settings.host, port: settings.port, phase },
          ...(cause === undefined ? {} : { cause }),
        }),
      );
    const handshakeMs = settings.connectTimeoutMs ?? limits.sshHandshakeTimeoutMs;
    const enter = (next: Phase, limitMs: number) => {
      phase = next;
      clearTimeout(timer);
      timer = setTimeout(() => onBroken(`no answer within ${limitMs} ms`, undefined, false), limitMs);
    };
    enter("banner", handshakeMs);
    const onData = (chunk: Buffer) => {
      if (phase === "banner") head = Buffer.concat([head, chunk]).subarray(0, 512);
      // Lines may come before the banner, but those of a web server are not of that kind.
      if (phase !== "banner") return;
      if (/(?:^|\n)SSH-/.test(head.toString("latin1"))) enter("key exchange", handshakeMs);
      else if (head.toString("latin1").startsWith("HTTP/")) onBroken("it speaks HTTP");
    };
    const onBroken = (reason: string, cause?: unknown, mayRefuse = true) => {
      clearTimeout(timer);
      // Silence is no refusal, and neither is a network that fails, or an end before anything was offered.
      if (phase === "authentication" && mayRefuse && authentication.begun) {
        reject(authentication.refusal(reason, banner));
      } else if (phase === "banner" && head.length > 0) {
        const said = head.toString("latin1").split(/\r?\n/, 1)[0]?.slice(0, 120);
        fail("SSH_HANDSHAKE_FAILED", `what answers is no SSH server; it said ${JSON.stringify(said)}`, cause);
      } else {
        fail("SSH_HANDSHAKE_FAILED", `${reason} in the phase "${phase}"`, cause);
      }
    };
    const onAbort = () => fail("ENVIRONMENT_STOPPED", "it was stopped");
    client
      .once("handshake", () => {
        // The library tells of the agreed keys once the host has proved that it holds its own.
        if (newKey)
          recorded = recordHostKey(settings, newKey).catch((error: unknown) =>
            options.onNote(`The new host key of ${settings.name} could not be recorded: ${String(error)}`),
          );
        enter("authentication", limits.sshAuthenticationTimeoutMs);
      })
      .on("banner", (text) => {
        banner = `${banner ?? ""}${text}`.slice(0, 2_000);
      })
      .on("change password", (prompt) => reject(authentication.expired(prompt)))
      .on("error", (error) => {
        // One attempt failed on our side; the next one follows by itself.
        if (error.level === "agent" || (phase === "authentication" && /signing/i.test(error.message))) return;
        onBroken(
          /methods failed/.test(error.message) ? "no method is left" : error.message,
          error,
          error.level !== "client-socket",
        );
      })
      .once("close", () => onBroken("the server closed the connection"))
      .once("ready", () => resolve(/(?:^|\n)SSH-[^-]*-(\S*)/.exec(head.toString("latin1"))?.[1] ?? ""));
    options.abortSignal?.addEventListener("abort", onAbort, { once: true });
    if (options.abortSignal?.aborted) onAbort();
    client.connect({
      sock: transport,
      username: settings.user,
      readyTimeout: 0,
      // Who lives is judged by all that comes in, not only by answers to this.
      keepaliveInterval: limits.sshKeepaliveMs,
      keepaliveCountMax: Number.MAX_SAFE_INTEGER,
      algorithms: { serverHostKey: hostKeyAlgorithms(known) },
      authHandler: authentication.handler,
      hostVerifier: (key: Buffer, verify: (valid: boolean) => void) => {
        const verdict = judgeHostKey(settings, known, key);
        if ("refusal" in verdict) reject(verdict.refusal);
        else if (verdict.isNew) newKey = Buffer.from(key);
        verify(!("refusal" in verdict));
      },
    });
    // After the library has stopped the flow, so that nothing is lost before it listens.
    transport.on("data", onData);
    return promise.finally(() => {
      clearTimeout(timer);
      transport.off("data", onData);
      options.abortSignal?.removeEventListener("abort", onAbort);
      return recorded;
    });
  }
}

type Phase = "banner" | "key exchange" | "authentication";

/** The host as it is connected to, with its alias where that differs. */
export function place({ name, host, port }: HostSettings): string {
  const address = `${host.includes(":") ? `[${host}]` : host}:${port}`;
  return name === host ? address : `${name} (${address})`;
}

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "the connection was refused",
  ECONNRESET: "the connection was reset",
  ENOTFOUND: "there is no such host",
  EAI_AGAIN: "the name could not be looked up",
  EHOSTUNREACH: "there is no way to the host",
  ENETUNREACH: "there is no way to the network",
  ETIMEDOUT: "there was no answer",
};

/** Why a socket failed, in words. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // Several addresses that all failed come as one error with many.
  const first: unknown = error instanceof AggregateError ? error.errors[0] : error;
  const code = first instanceof Error && "code" in first ? String(first.code) : "";
  return REASONS[code] ?? (error.message || code);
}

/** @throws {MoorageError} SSH_UNREACHABLE */
export function openSocket(
  settings: HostSettings,
  abortSignal?: AbortSignal,
  timeoutMs = settings.connectTimeoutMs ?? limits.sshConnectTimeoutMs,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    // Small packets go out at once: a command's answer would otherwise wait for a delayed acknowledgement.
    const socket = connect({ host: settings.host, port: settings.port, noDelay: true, keepAlive: true });
    const finish = (reason: string | null, cause?: unknown) => {
      clearTimeout(timer);
      abortSignal?.removeEventListener("abort", onAbort);
      socket.removeAllListeners("connect");
      if (reason === null) {
        resolve(socket);
        return;
      }
      socket.destroy();
      reject(
        new MoorageError("SSH_UNREACHABLE", `Cannot reach ${place(settings)}: ${reason}`, {
          details: { host: settings.host, port: settings.port, phase: "connect" },
          ...(cause === undefined ? {} : { cause }),
        }),
      );
    };
    const onAbort = () => finish("it was stopped");
    const timer = setTimeout(() => finish(`no connection within ${timeoutMs} ms`), timeoutMs);
    abortSignal?.addEventListener("abort", onAbort, { once: true });
    socket.once("connect", () => finish(null));
    // Stays, since a socket without a listener would end the process.
    socket.on("error", (error) => finish(reasonOf(error), error));
    if (abortSignal?.aborted) onAbort();
  });
}

function forward(via: Client, settings: HostSettings): Promise<Duplex> {
  const timeoutMs = settings.connectTimeoutMs ?? limits.sshConnectTimeoutMs;
  return new Promise((resolve, reject) => {
    let late = false;
    const fail = (reason: string, cause?: unknown) =>
      reject(
        new MoorageError(
          "SSH_UNREACHABLE",
          `Cannot reach ${place(settings)} from the host before it: ${reason}`,
          {
            details: { host: settings.host, port: settings.port, phase: "forward" },
            ...(cause === undefined ? {} : { cause }),
          },
        ),
      );
    const timer = setTimeout(() => {
      late = true;
      fail(`no connection within ${timeoutMs} ms`);
    }, timeoutMs);
    try {
      via.forwardOut("127.0.0.1", 0, settings.host, settings.port, (error, channel) => {
        clearTimeout(timer);
        if (error) fail(error.message, error);
        else if (late) channel.close();
        else resolve(channel);
      });
    } catch (error) {
      clearTimeout(timer);
      fail("the connection to it is gone", error);
    }
  });
}
