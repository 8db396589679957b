/**
 * Reads a host as it stands in a request or in a rule. Anything that two programs could understand differently is
 * refused before it is compared with anything: the name that is judged is the name that is resolved.
 */
import { isIP } from "node:net";
import { domainToASCII } from "node:url";
import { canonicalAddress } from "./addresses.ts";

export type Host =
  | { readonly kind: "name"; readonly host: string }
  | { readonly kind: "address"; readonly host: string };

/** A host that is malformed; the message completes `Host "…" is refused: …`. */
export class MalformedHost extends Error {
  override readonly name = "MalformedHost";
}

const MAX_NAME = 253;
const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;

/**
 * The one spelling of a host: lower case, punycode, without the final dot, an IPv6 address without brackets.
 *
 * @throws {MalformedHost} control characters, space, `%`, `\`, `@`, `:` outside brackets, over-long, empty labels,
 *   and IPv4 addresses in any form but four decimal numbers
 */
export function parseHost(text: string): Host {
  if (text === "") throw new MalformedHost("it is empty");
  if (text.length > 1024) throw new MalformedHost("it is too long");
  const bracketed = /^\[([0-9A-Fa-f:.]+)\]$/.exec(text)?.[1];
  if (bracketed !== undefined) {
    if (isIP(bracketed) !== 6) throw new MalformedHost("it is no IPv6 address");
    return { kind: "address", host: canonicalAddress(bracketed) };
  }
  const forbidden = /[\0-\x20\x7f-\xa0%\\@/?#[\]:<>^|{}"'`,;=&+*!$~()]/.exec(text);
  if (forbidden) throw new MalformedHost(`it holds ${JSON.stringify(forbidden[0])}`);
  const ascii = toAscii(text);
  if (ascii.length > MAX_NAME) throw new MalformedHost("it is too long");
  const labels = ascii.split(".");
  const last = labels.at(-1) ?? "";
  // A program that takes such a host for an address would reach another place than the name says.
  if (/^(?:\d+|0x[0-9a-f]*)$/.test(last)) {
    if (isIP(ascii) === 4 && ascii === text) return { kind: "address", host: ascii };
    throw new MalformedHost("it is an IPv4 address in an unusual form");
  }
  const wrong = labels.find((label) => !LABEL.test(label));
  if (wrong !== undefined)
    throw new MalformedHost(wrong === "" ? "it has an empty label" : `"${wrong}" is no label`);
  return { kind: "name", host: ascii };
}

function toAscii(text: string): string {
  const dotless = text.endsWith(".") ? text.slice(0, -1) : text;
  const plain = /^[\x21-\x7e]*$/.test(dotless);
  const lower = dotless.toLowerCase();
  if (plain && !/(?:^|\.)xn--/.test(lower)) return lower;
  // Unicode's dots and digits would become others' dots and digits.
  if (/[\u3002\uff0e\uff61\u2024\ufe52]/.test(text)) throw new MalformedHost("it holds a dot that is none");
  const ascii = domainToASCII(dotless);
  if (ascii === "" || (plain && ascii !== lower))
    throw new MalformedHost("it is no valid international name");
  return ascii;
}

export interface Authority {
  readonly host: Host;
  /** Null when none was written. */
  readonly port: number | null;
}

/**
 * Reads `host` or `host:port`.
 *
 * @throws {MalformedHost}
 */
export function parseAuthority(text: string): Authority {
  const match = /^(\[[^\]]*\]|[^:]*)(?::([0-9]{1,5}))?$/.exec(text);
  if (!match) throw new MalformedHost("it is no host or host:port");
  const [, host = "", port] = match;
  if (port !== undefined && (Number(port) < 1 || Number(port) > 65_535))
    throw new MalformedHost(`${port} is no port`);
  return { host: parseHost(host), port: port === undefined ? null : Number(port) };
}

/** As it stands in a request: IPv6 in brackets. */
export function formatHost({ kind, host }: Host): string {
  return kind === "address" && host.includes(":") ? `[${host}]` : host;
}
