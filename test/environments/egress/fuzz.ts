/** Random hostile input for the proxy's readers. Each run says its seed, and a seed gives the same run. */
import { expect } from "vitest";
import { readClientHello } from "../../../environments/egress/client-hello.ts";
import { type Host, MalformedHost, parseAuthority, parseHost } from "../../../environments/egress/host.ts";
import { compilePolicy, judgeText } from "../../../environments/egress/policy.ts";
import { readGreeting, readSocksRequest } from "../../../environments/egress/socks.ts";
import { Client, createInternet } from "./network.ts";

/** A small generator of good enough numbers (mulberry32). */
export class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** A whole number below `limit`. */
  below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % limit;
  }

  pick<Item>(items: readonly Item[]): Item {
    const item = items[this.below(items.length)];
    if (item === undefined) throw new RangeError("Nothing to pick from");
    return item;
  }
}

const PIECES = [
  "allowed.test",
  "ALLOWED.TEST",
  "wild.test",
  "a.wild.test",
  "evil.test",
  "example",
  "xn--bcher-kva",
  "xn--",
  "bücher",
  "ａllowed",
  "127.0.0.1",
  "10.0.0.1",
  "2852039166",
  "0x7f",
  "0177",
  "::1",
  "::ffff:10.0.0.1",
  "[::1]",
  "[",
  "]",
  ".",
  "..",
  "。",
  "-",
  "_",
  "*",
  "*.",
  "@",
  ":",
  ":80",
  ":443",
  ":0",
  ":99999",
  "%00",
  "%2e",
  "%",
  "\\",
  "/",
  "?",
  "#",
  " ",
  "\t",
  "\r",
  "\n",
  "\r\n",
  "\0",
  "\u00ad",
  "\u200b",
  "\u202e",
  "\u{1f600}",
  "\ud800",
  "a",
  "0",
  "1",
] as const;

export function randomHost(dice: Dice): string {
  return Array.from({ length: 1 + dice.below(5) }, () => dice.pick(PIECES)).join("");
}

export const FUZZ_POLICY = {
  allow: ["allowed.test", "*.wild.test", "bücher.test", "10.0.0.0/8", "[::1]:8080"],
  deny: ["evil.wild.test"],
};
const policy = compilePolicy(FUZZ_POLICY);

/** What the policy above means, said again in the plainest way, for hosts in their one spelling. */
function means({ kind, host }: Host): boolean {
  if (kind === "address") return /^10\./.test(host);
  if (host === "evil.wild.test") return false;
  return (
    host === "allowed.test" ||
    host === "xn--bcher-kva.test" ||
    (host.endsWith(".wild.test") && host.length > 10)
  );
}

/** Judges one host in every way there is. @throws {Error} where two of them differ, or the spelling is not the only one */
export function checkHost(text: string): void {
  let host: Host | null = null;
  try {
    host = parseHost(text);
  } catch (error) {
    if (!(error instanceof MalformedHost)) throw error;
  }
  const verdict = judgeText(policy, text, 443);
  if (!host) {
    if (verdict.allowed) throw new Error(`Malformed and allowed: ${JSON.stringify(text)}`);
    return;
  }
  if (!/^[a-z0-9_.:-]+$/.test(host.host)) throw new Error(`Odd spelling: ${JSON.stringify(host.host)}`);
  const again = parseHost(host.host.includes(":") ? `[${host.host}]` : host.host);
  if (again.host !== host.host || again.kind !== host.kind)
    throw new Error(`Two spellings of ${JSON.stringify(text)}`);
  const authority = parseAuthority(host.host.includes(":") ? `[${host.host}]:443` : `${host.host}:443`);
  if (authority.host.host !== host.host) throw new Error(`Another authority for ${JSON.stringify(text)}`);
  if (verdict.allowed !== means(host))
    throw new Error(`Wrong verdict ${verdict.rule} for ${JSON.stringify(text)}`);
}

/** Bytes of a good example, changed here and there, cut or lengthened. */
export function mutate(dice: Dice, sample: Buffer): Buffer {
  const bytes = Buffer.from(sample);
  for (let count = dice.below(6); count > 0 && bytes.length > 0; count -= 1)
    bytes[dice.below(bytes.length)] = dice.below(256);
  const cut = bytes.subarray(0, dice.below(3) === 0 ? dice.below(bytes.length + 1) : bytes.length);
  if (dice.below(4) > 0) return cut;
  return Buffer.concat([cut, Buffer.from(Array.from({ length: dice.below(20) }, () => dice.below(256)))]);
}

/** Reads a frame whole and piece by piece. @throws {Error} where that gives different answers */
export function checkHello(bytes: Buffer): void {
  const whole = readClientHello(bytes);
  for (let size = 0; size <= bytes.length; size += 1 + (size >> 2)) {
    const part = readClientHello(bytes.subarray(0, size));
    if (part.state === "malformed" && whole.state === "complete")
      throw new Error(`Malformed only at first: ${bytes.toString("hex")}`);
    if (part.state === "complete" && JSON.stringify(part) !== JSON.stringify(whole))
      throw new Error(`Two answers: ${bytes.toString("hex")}`);
  }
}

export function checkSocks(bytes: Buffer): void {
  readGreeting(bytes);
  const whole = readSocksRequest(bytes);
  for (let size = 0; size <= bytes.length; size += 1) {
    const part = readSocksRequest(bytes.subarray(0, size));
    if (part !== null && JSON.stringify(part) !== JSON.stringify(whole))
      throw new Error(`Two answers: ${bytes.toString("hex")}`);
  }
}

/** A request as a hostile client would write it, to a random host, in one of the proxy's languages. */
function randomHead(dice: Dice): Buffer {
  const host = randomHost(dice);
  const head = dice.pick([
    `GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
    `POST http://allowed.test/ HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `GET http://allowed.test/ HTTP/1.1\r\n\r\nGET http://${host}/ HTTP/1.1\r\nHost: x\r\n\r\n`,
    `CONNECT ${host}:443 HTTP/1.1\r\n\r\n`,
    `CONNECT ${host} HTTP/1.1\r\nHost: allowed.test\r\n\r\n`,
    `CONNECT allowed.test:80 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
    `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
    `\x05\x01\0\x05\x01\0\x03${String.fromCharCode(host.length)}${host}\0\x50`,
  ]);
  return mutate(dice, Buffer.from(head, "latin1"));
}

/** Clients at once. */
const CROWD = 400;

/** A proxy lives on under this many random requests, resolves what the policy names and dials nothing else. */
export async function checkProxy(dice: Dice, count: number): Promise<void> {
  await using net = await createInternet({ policy: FUZZ_POLICY });
  for (let done = 0; done < count; done += CROWD) {
    const clients = Array.from({ length: Math.min(CROWD, count - done) }, () => {
      const client = new Client(net.proxyPort).send(randomHead(dice));
      client.socket.end();
      return client;
    });
    await Promise.all(clients.map((client) => client.end()));
  }
  const names = [...new Set(net.lookups)];
  expect(names.filter((name) => !means({ kind: "name", host: name }))).toEqual([]);
  const odd = net.dialled.filter(
    (target) => !/^(93\.184\.216\.34|10\.[\d.]+|::1):(80|443|8080)$/.test(target),
  );
  expect(odd).toEqual([]);
  const answer = await new Client(net.proxyPort)
    .send("GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n")
    .until(/hello/);
  expect(answer).toContain("200");
}
