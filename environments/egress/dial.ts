/** Reaches a host that a policy allows: resolves it once, judges each address, dials exactly one that passed. */
import { lookup as systemLookup } from "node:dns/promises";
import { readFile } from "node:fs/promises";
import { connect as connectSocket, isIP, type OnReadOpts, type Socket } from "node:net";
import { limits } from "../../src/limits.ts";
import type { Host } from "./host.ts";
import type { CompiledPolicy, Verdict } from "./policy.ts";

/** All addresses of a name, in the order to be tried. */
export type Lookup = (name: string) => Promise<readonly string[]>;
/** Begins a connection to an address. @param onread for the socket, when somebody reads it by buffers of their own */
export type Connect = (address: string, port: number, onread?: OnReadOpts) => Socket;

export type Dialled =
  | {
      readonly outcome: "connected";
      readonly socket: Socket;
      readonly address: string;
      readonly verdict: Verdict;
    }
  | { readonly outcome: "denied"; readonly address: string; readonly verdict: Verdict }
  | { readonly outcome: "unreachable"; readonly reason: string };

export const resolveWithSystem: Lookup = async (name) => {
  const listed = inHostsFile(await readFile("/etc/hosts", "utf8").catch(() => ""), name);
  if (listed.length > 0) return listed;
  // The final dot keeps search domains of this machine out of it, and with them names in the hosts file.
  const found = await systemLookup(`${name}.`, { all: true });
  return found.map(({ address }) => address);
};

/** Addresses of a name in the text of a hosts file. */
export function inHostsFile(text: string, name: string): readonly string[] {
  return text.split("\n").flatMap((line) => {
    const [address = "", ...names] = (line.split("#")[0] ?? "").trim().split(/\s+/);
    return isIP(address) !== 0 && names.some((listed) => listed.toLowerCase() === name) ? [address] : [];
  });
}

export const connectDirectly: Connect = (address, port, onread) =>
  connectSocket({ host: address, port, allowHalfOpen: true, noDelay: true, ...(onread && { onread }) });

/** Never rejects; the host has been judged before. */
export async function dial(
  policy: () => CompiledPolicy,
  target: { readonly host: Host; readonly port: number },
  lookup: Lookup,
  connect: Connect,
): Promise<Dialled> {
  const { host, port } = target;
  const patience = AbortSignal.timeout(limits.egressConnectMs);
  let addresses: readonly string[];
  try {
    addresses = host.kind === "address" ? [host.host] : await within(patience, lookup(host.host));
  } catch (error) {
    return { outcome: "unreachable", reason: `${host.host} cannot be resolved: ${messageOf(error)}` };
  }
  let denied: Dialled | null = null;
  let reason = `${host.host} has no address`;
  for (const address of addresses) {
    // The policy may have changed while the name was resolved, and again while the connection was made.
    const judge = () => {
      const byHost = policy().judge(host, port);
      return { byHost, verdict: byHost.allowed ? policy().judgeAddress(address, port) : byHost };
    };
    const before = judge();
    if (!before.verdict.allowed) {
      denied ??= { outcome: "denied", address, verdict: before.verdict };
      continue;
    }
    try {
      const socket = await connected(connect(address, port), patience);
      const { byHost, verdict } = judge();
      if (verdict.allowed) return { outcome: "connected", socket, address, verdict: byHost };
      socket.destroy();
      return { outcome: "denied", address, verdict };
    } catch (error) {
      reason = `${host.host} (${address}) cannot be reached: ${messageOf(error)}`;
    }
  }
  return denied ?? { outcome: "unreachable", reason };
}

function connected(socket: Socket, patience: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const fail = (error: unknown) => {
      patience.removeEventListener("abort", late);
      socket.destroy();
      reject(error);
    };
    const late = () => fail(new Error(`no answer within ${limits.egressConnectMs} ms`));
    if (patience.aborted) return late();
    patience.addEventListener("abort", late, { once: true });
    socket.once("error", fail);
    socket.once("connect", () => {
      patience.removeEventListener("abort", late);
      socket.off("error", fail);
      resolve(socket);
    });
    return undefined;
  });
}

function within<Value>(patience: AbortSignal, work: Promise<Value>): Promise<Value> {
  return new Promise((resolve, reject) => {
    patience.addEventListener("abort", () => reject(new Error("no answer in time")), { once: true });
    work.then(resolve, reject);
  });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
