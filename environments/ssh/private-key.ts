/** Private keys in the forms in which people have them: what the library reads, and PKCS#8, which it does not. */
import { createPrivateKey, type KeyObject, randomBytes } from "node:crypto";
import type { ParsedKey } from "ssh2";
import { ssh2 } from "./library.ts";

const { utils } = ssh2;

/**
 * Reads a key, private or public. Text around a private one, which programs write there, is left out.
 *
 * @returns a refusal in words, fit to follow the file's name, when it cannot be used
 */
export function parseKeyFile(text: Buffer, passphrase: string | null): ParsedKey | string {
  let source: Buffer | string = text;
  try {
    const [block, label = ""] =
      /-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----[\s\S]*?-----END \1-----/.exec(text.toString("latin1")) ?? [];
    if (block !== undefined)
      source = /^(?:ENCRYPTED )?PRIVATE KEY$/.test(label) ? fromPkcs8(block, passphrase) : block;
  } catch (error) {
    return problemOf(error);
  }
  const parsed = utils.parseKey(source, passphrase ?? undefined);
  if (parsed instanceof Error) return problemOf(parsed);
  // One key a file; older declarations allow for a list.
  const key = Array.isArray(parsed) ? parsed[0] : parsed;
  return key ?? "holds no key";
}

function problemOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  if (/no passphrase given|passphrase required/i.test(message)) return "is encrypted; load it into an agent";
  if (/or a cipher unknown/.test(message))
    return "is encrypted, and the passphrase does not open it, or its cipher is not known here";
  if (/bad passphrase|bad decrypt|integrity check|decrypt|unable to authenticate data/i.test(message))
    return "is encrypted, and the passphrase does not open it";
  return `cannot be used (${message})`;
}

/** @throws {Error} for a key that is broken, encrypted otherwise, or of a kind that SSH does not know */
function fromPkcs8(pem: string, passphrase: string | null): string {
  if (passphrase === null && pem.startsWith("-----BEGIN ENCRYPTED")) throw new Error("No passphrase given");
  const key = opened(pem, passphrase);
  switch (key.asymmetricKeyType) {
    case "rsa":
      return key.export({ format: "pem", type: "pkcs1" }).toString();
    case "ec":
      return key.export({ format: "pem", type: "sec1" }).toString();
    case "ed25519":
      return toOpenSsh(key);
    default:
      throw new Error(`Unsupported key type ${key.asymmetricKeyType}`);
  }
}

function opened(pem: string, passphrase: string | null): KeyObject {
  if (passphrase === null) return createPrivateKey(pem);
  try {
    return createPrivateKey({ key: pem, passphrase });
  } catch (error) {
    // One wrong passphrase in 256 leaves what ends as the right one would, and what it leaves is no key.
    const isNoKey = error instanceof Error && "code" in error && error.code === "ERR_OSSL_UNSUPPORTED";
    if (isNoKey && pem.startsWith("-----BEGIN ENCRYPTED"))
      throw new Error("Bad passphrase, or a cipher unknown here");
    throw error;
  }
}

/** @see https://github.com/openssh/openssh-portable/blob/master/PROTOCOL.key */
function toOpenSsh(key: KeyObject): string {
  const { d = "", x = "" } = key.export({ format: "jwk" });
  const type = Buffer.from("ssh-ed25519");
  const open = Buffer.from(x, "base64url");
  const none = field(Buffer.from("none"));
  const check = randomBytes(4);
  const secret = Buffer.concat([
    check,
    check,
    field(type),
    field(open),
    field(Buffer.concat([Buffer.from(d, "base64url"), open])),
    field(Buffer.alloc(0)),
  ]);
  const padding = Buffer.from(Array.from({ length: (8 - (secret.length % 8)) % 8 }, (_, at) => at + 1));
  const all = Buffer.concat([
    Buffer.from("openssh-key-v1\0"),
    none,
    none,
    field(Buffer.alloc(0)),
    Buffer.from([0, 0, 0, 1]),
    field(Buffer.concat([field(type), field(open)])),
    field(Buffer.concat([secret, padding])),
  ]);
  const lines = all.toString("base64").match(/.{1,70}/g) ?? [];
  return ["-----BEGIN OPENSSH PRIVATE KEY-----", ...lines, "-----END OPENSSH PRIVATE KEY-----"].join("\n");
}

function field(bytes: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}
