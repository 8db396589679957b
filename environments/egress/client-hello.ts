/**
 * Reads the server name from the first bytes of a TLS connection, across records. Strict: whatever does not add up is
 * malformed, since a server that reads it more kindly might read another name.
 *
 * @see RFC 8446 section 4.1.2, RFC 6066 section 3
 */
import { limits } from "../../src/limits.ts";

export type ClientHello =
  /** Nothing wrong so far. */
  | { readonly state: "incomplete" }
  | { readonly state: "malformed"; readonly reason: string }
  | {
      readonly state: "complete";
      /** As sent; null when none was. */
      readonly serverName: string | null;
      /** Whether the real name may be inside an encrypted part. */
      readonly encrypted: boolean;
    };

const HANDSHAKE = 22;
const CLIENT_HELLO = 1;
const RECORD_MAX = 16_384;
/** Clients that split their first message on purpose make a handful. */
const RECORDS_MAX = 64;
const SERVER_NAME = 0;
/** encrypted_client_hello, and the forms of its drafts. */
const ENCRYPTED = new Set([0xfe0d, 0xffce, 0xfe08, 0xfe09, 0xfe0a, 0xfe0b, 0xfe0c]);

export function readClientHello(bytes: Buffer): ClientHello {
  const parts: Buffer[] = [];
  let length = 0;
  let needed = Number.POSITIVE_INFINITY;
  for (let at = 0; length < needed; ) {
    if (bytes.length > at && bytes[at] !== HANDSHAKE) return malformed("it is no TLS handshake");
    if (bytes.length > at + 1 && bytes[at + 1] !== 3) return malformed("it has an unknown TLS version");
    if (bytes.length < at + 5) return incomplete(bytes);
    const size = bytes.readUInt16BE(at + 3);
    if (size === 0 || size > RECORD_MAX) return malformed("a record has a wrong size");
    // The whole is read again with every piece that arrives: what each record costs, a hostile client asks for often.
    if (parts.length === RECORDS_MAX) return malformed("its ClientHello is in too many records");
    const part = bytes.subarray(at + 5, at + 5 + size);
    parts.push(part);
    length += part.length;
    if (length >= 4 && needed === Number.POSITIVE_INFINITY) {
      const start = Buffer.concat(parts);
      if (start[0] !== CLIENT_HELLO) return malformed("it does not begin with a ClientHello");
      needed = 4 + start.readUIntBE(1, 3);
      if (needed > limits.egressHelloMaxBytes) return malformed("its ClientHello is too long");
    }
    if (part.length < size && length < needed) return incomplete(bytes);
    at += 5 + size;
  }
  try {
    return readBody(Buffer.concat(parts).subarray(4, needed));
  } catch (error) {
    if (error instanceof RangeError) return malformed("its ClientHello is cut short");
    throw error;
  }
}

function incomplete(bytes: Buffer): ClientHello {
  if (bytes.length > limits.egressHelloMaxBytes + 1024) return malformed("its ClientHello is too long");
  return { state: "incomplete" };
}

function malformed(reason: string): ClientHello {
  return { state: "malformed", reason };
}

/** Takes length-prefixed fields; running over the end is a RangeError. */
class Fields {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get done(): boolean {
    return this.#at === this.#bytes.length;
  }

  number(width: 1 | 2): number {
    return this.take(width).readUIntBE(0, width);
  }

  take(size: number): Buffer {
    if (this.#at + size > this.#bytes.length) throw new RangeError("cut short");
    this.#at += size;
    return this.#bytes.subarray(this.#at - size, this.#at);
  }

  /** A field whose length stands before it. */
  sized(width: 1 | 2): Buffer {
    return this.take(this.number(width));
  }
}

function readBody(bytes: Buffer): ClientHello {
  const fields = new Fields(bytes);
  fields.take(2 + 32);
  fields.sized(1);
  fields.sized(2);
  fields.sized(1);
  if (fields.done) return { state: "complete", serverName: null, encrypted: false };
  const extensions = new Fields(fields.sized(2));
  if (!fields.done) return malformed("bytes follow the extensions");
  const seen = new Set<number>();
  let serverName: string | null = null;
  while (!extensions.done) {
    const type = extensions.number(2);
    const body = extensions.sized(2);
    if (seen.has(type)) return malformed("an extension stands twice");
    seen.add(type);
    if (type !== SERVER_NAME) continue;
    const list = new Fields(body);
    const names = new Fields(list.sized(2));
    if (!list.done) return malformed("bytes follow the server names");
    if (names.number(1) !== 0) return malformed("its server name is no host name");
    const name = names.sized(2);
    if (!names.done || name.length === 0) return malformed("it has not exactly one server name");
    // One character per byte: what is no ASCII is refused as a host later.
    serverName = name.toString("latin1");
  }
  return { state: "complete", serverName, encrypted: [...seen].some((type) => ENCRYPTED.has(type)) };
}
