/**
 * SOCKS5 frames, read from whatever bytes have arrived. Only CONNECT without authentication is spoken.
 *
 * @see RFC 1928
 */
import { canonicalAddress } from "./addresses.ts";
import { type Host, MalformedHost, parseHost } from "./host.ts";

/** `null` asks for more bytes. */
export type Greeting = { readonly size: number; readonly acceptable: boolean } | null;

export type SocksRequest =
  | null
  | { readonly size: number; readonly host: Host; readonly port: number }
  | { readonly reply: number; readonly reason: string; readonly host: string; readonly port: number };

export const SOCKS_VERSION = 5;

export const REPLY = {
  succeeded: 0,
  failure: 1,
  notAllowed: 2,
  unreachable: 4,
  badCommand: 7,
  badAddress: 8,
} as const;

export const NO_AUTHENTICATION = Buffer.from([SOCKS_VERSION, 0]);
export const NO_ACCEPTABLE_METHOD = Buffer.from([SOCKS_VERSION, 0xff]);

export function replyFrame(reply: number): Buffer {
  return Buffer.from([SOCKS_VERSION, reply, 0, 1, 0, 0, 0, 0, 0, 0]);
}

export function readGreeting(bytes: Buffer): Greeting {
  if (bytes.length < 2) return null;
  const size = 2 + bytes.readUInt8(1);
  if (bytes.length < size) return null;
  return { size, acceptable: bytes[0] === SOCKS_VERSION && bytes.subarray(2, size).includes(0) };
}

export function readSocksRequest(bytes: Buffer): SocksRequest {
  const wrong = (reply: number, reason: string, host = "", port = 0) => ({ reply, reason, host, port });
  if (bytes.length >= 1 && bytes[0] !== SOCKS_VERSION) return wrong(REPLY.failure, "it is no SOCKS5 request");
  if (bytes.length >= 2 && bytes[1] !== 1) return wrong(REPLY.badCommand, "only CONNECT is spoken");
  if (bytes.length >= 3 && bytes[2] !== 0) return wrong(REPLY.failure, "its reserved byte is set");
  if (bytes.length < 5) return null;
  const kind = bytes[3];
  const width = kind === 1 ? 4 : kind === 4 ? 16 : kind === 3 ? 1 + bytes.readUInt8(4) : 0;
  if (width === 0) return wrong(REPLY.badAddress, "its kind of address is unknown");
  const size = 4 + width + 2;
  if (bytes.length < size) return null;
  const field = bytes.subarray(4, 4 + width);
  const port = bytes.readUInt16BE(4 + width);
  if (kind === 3) {
    const text = field.subarray(1).toString("latin1");
    // Bytes above ASCII have no agreed meaning here.
    if (/[^\x21-\x7e]/.test(text))
      return wrong(REPLY.notAllowed, "malformed host: it holds an odd byte", text, port);
    try {
      return { size, host: parseHost(text), port };
    } catch (error) {
      if (error instanceof MalformedHost)
        return wrong(REPLY.notAllowed, `malformed host: ${error.message}`, text, port);
      throw error;
    }
  }
  const address = kind === 1 ? field.join(".") : (field.toString("hex").match(/.{4}/g) ?? []).join(":");
  return { size, host: { kind: "address", host: canonicalAddress(address) }, port };
}
