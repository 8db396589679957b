/**
 * The keys by which hosts are known, from known_hosts files: plain, hashed and wildcard names, negations,
 * `[host]:port`, `@revoked`; and the keys of a file of revoked ones. A file that is there and cannot be read is an
 * error, never an empty file.
 */
import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { MoorageError } from "../../src/errors.ts";
import type { HostSettings } from "./config.ts";
import { matchesList } from "./patterns.ts";

/** UTF-8's, read as bytes. */
const BYTE_ORDER_MARK = "\u00ef\u00bb\u00bf";

/** One line that names the host. */
export interface KnownKey {
  readonly type: string;
  readonly key: Buffer;
  /** `file:line`. */
  readonly where: string;
}

export interface KnownHost {
  readonly keys: readonly KnownKey[];
  readonly revoked: readonly KnownKey[];
  /** Lines that name a certificate authority for the host; not used. */
  readonly authorities: readonly string[];
  /** Lines that nobody can read, which may have named this host. */
  readonly damaged: readonly string[];
}

/** The name as files have it: a port other than 22 belongs to it. */
export function knownName(host: string, port: number): string {
  return port === 22 ? host : `[${host}]:${port}`;
}

/** `SHA256:` and base64, as ssh shows it. */
export function fingerprint(key: Buffer): string {
  return `SHA256:${createHash("sha256").update(key).digest("base64").replace(/=+$/, "")}`;
}

/** Type that a key names in its own bytes. */
export function keyType(key: Buffer): string {
  if (key.length < 4) return "";
  const length = key.readUInt32BE(0);
  return length > 64 ? "" : key.toString("latin1", 4, 4 + length);
}

/** All that the files say about a host. @throws {MoorageError} SSH_KNOWN_HOSTS_UNREADABLE */
export async function findKnown(
  settings: Pick<HostSettings, "hostKeyName" | "hostKeyPort" | "knownHostsFiles" | "revokedKeysFile">,
): Promise<KnownHost> {
  const { hostKeyName, hostKeyPort, knownHostsFiles, revokedKeysFile } = settings;
  const known = await readKnownHost(knownHostsFiles, knownName(hostKeyName, hostKeyPort));
  if (revokedKeysFile === null) return known;
  return { ...known, revoked: [...known.revoked, ...(await readRevokedKeys(revokedKeysFile))] };
}

/** @throws {MoorageError} SSH_KNOWN_HOSTS_UNREADABLE */
export async function readKnownHost(files: readonly string[], name: string): Promise<KnownHost> {
  const found = {
    keys: [] as KnownKey[],
    revoked: [] as KnownKey[],
    authorities: [] as string[],
    damaged: [] as string[],
  };
  for (const file of files) {
    const text = await readFileText(file);
    for (const [index, line] of text.split(/\r?\n/).entries()) {
      const where = `${file}:${index + 1}`;
      const entry = parseLine(line);
      if (entry === null) continue;
      if (entry === "damaged") {
        found.damaged.push(where);
        continue;
      }
      if (!names(entry.hosts, name)) continue;
      if (entry.marker === "@cert-authority") {
        found.authorities.push(where);
        continue;
      }
      const key = Buffer.from(entry.base64, "base64");
      if (keyType(key) !== entry.type) found.damaged.push(where);
      else (entry.marker === "@revoked" ? found.revoked : found.keys).push({ type: entry.type, key, where });
    }
  }
  return found;
}

/**
 * Reads public keys, one a line, that no host may show.
 *
 * @throws {MoorageError} SSH_KNOWN_HOSTS_UNREADABLE, also for a file that is not there or a revocation list in binary form
 */
async function readRevokedKeys(file: string): Promise<readonly KnownKey[]> {
  const text = await readFileText(file, false);
  const keys: KnownKey[] = [];
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    const words = line.trim().split(/[ \t]+/);
    if (words[0] === "" || words[0]?.startsWith("#")) continue;
    const at = words.findIndex((word) => keyType(Buffer.from(word, "base64")) !== "");
    const key = Buffer.from(words[at] ?? "", "base64");
    const where = `${file}:${index + 1}`;
    if (at < 1 || keyType(key) !== words[at - 1]) {
      throw new MoorageError(
        "SSH_KNOWN_HOSTS_UNREADABLE",
        `Cannot check host keys: ${where} is no public key${text.startsWith("SSHKRL") ? ", and revocation lists in binary form are not supported" : ""}`,
      );
    }
    keys.push({ type: keyType(key), key, where });
  }
  return keys;
}

async function readFileText(file: string, mayBeMissing = true): Promise<string> {
  try {
    const { size } = await stat(file).then((found) => {
      // A pipe would never end. The null device is how people say that there is no file.
      if (found.isFile() || file === "/dev/null") return found;
      throw new Error("it is no regular file");
    });
    if (size > 64 * 1024 * 1024) throw new Error("it is larger than 64 MiB");
    const text = await readFile(file, "latin1");
    // The mark of an editor would hide the first line, and whom it revokes.
    return text.startsWith(BYTE_ORDER_MARK) ? text.slice(BYTE_ORDER_MARK.length) : text;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : null;
    if (mayBeMissing && (code === "ENOENT" || code === "ENOTDIR")) return "";
    const reason = code ?? (error instanceof Error ? error.message : error);
    throw new MoorageError(
      "SSH_KNOWN_HOSTS_UNREADABLE",
      `Cannot check host keys: cannot read "${file}": ${String(reason)}`,
      { cause: error },
    );
  }
}

interface Entry {
  readonly marker: string | null;
  readonly hosts: string;
  readonly type: string;
  readonly base64: string;
}

function parseLine(line: string): Entry | "damaged" | null {
  const text = line.trim();
  if (text === "" || text.startsWith("#")) return null;
  const words = text.split(/[ \t]+/);
  const marker = words[0]?.startsWith("@") ? (words.shift() ?? null) : null;
  const [hosts, type, base64] = words;
  if (marker !== null && marker !== "@revoked" && marker !== "@cert-authority") return "damaged";
  if (hosts === undefined || type === undefined || base64 === undefined) return "damaged";
  // Keys of protocol 1, which nobody speaks: bits, exponent, modulus.
  if (/^\d+$/.test(type) && /^\d+$/.test(base64)) return null;
  if (!/^[a-z0-9@.-]+$/i.test(type)) return "damaged";
  return { marker, hosts, type, base64 };
}

function names(hosts: string, name: string): boolean {
  if (!hosts.startsWith("|")) return matchesList(name, hosts.split(","));
  const [, version, salt = "", hash = ""] = hosts.split("|");
  const expected = Buffer.from(hash, "base64");
  const actual = createHmac("sha1", Buffer.from(salt, "base64")).update(name).digest();
  return version === "1" && expected.length === actual.length && timingSafeEqual(expected, actual);
}
