/** Whether the key that a host shows is the one by which it is known. Asked before anything secret is sent. */
import { createHmac, randomBytes } from "node:crypto";
import { open } from "node:fs/promises";
import { dirname } from "node:path";
import type { ServerHostKeyAlgorithm } from "ssh2";
import { MoorageError } from "../../src/errors.ts";
import { makePrivateFolder } from "../../src/folders.ts";
import type { HostSettings } from "./config.ts";
import { fingerprint, type KnownHost, keyType, knownName } from "./known-hosts.ts";

/** Algorithms by key type; a key of type ssh-rsa signs in three ways. The best come first. */
const ALGORITHMS: Readonly<Record<string, readonly ServerHostKeyAlgorithm[]>> = {
  "ssh-ed25519": ["ssh-ed25519"],
  "ecdsa-sha2-nistp256": ["ecdsa-sha2-nistp256"],
  "ecdsa-sha2-nistp384": ["ecdsa-sha2-nistp384"],
  "ecdsa-sha2-nistp521": ["ecdsa-sha2-nistp521"],
  "ssh-rsa": ["rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"],
};

/**
 * What to offer: a server picks the first that it has too, so the types that are known come first. Otherwise a
 * host with several keys would show one that nobody has seen.
 */
export function hostKeyAlgorithms(known: KnownHost): ServerHostKeyAlgorithm[] {
  const types = new Set(known.keys.map(({ type }) => type));
  const isKnown = ([type]: readonly [string, unknown]) => types.has(type);
  const all = Object.entries(ALGORITHMS);
  return [...all.filter(isKnown), ...all.filter((entry) => !isKnown(entry))].flatMap(([, names]) => names);
}

/** @returns null when the key is the host's, or may be recorded as such; the refusal otherwise */
export function judgeHostKey(
  settings: HostSettings,
  known: KnownHost,
  key: Buffer,
): { readonly refusal: MoorageError } | { readonly isNew: boolean } {
  const name = knownName(settings.hostKeyName, settings.hostKeyPort);
  const type = keyType(key);
  const shown = fingerprint(key);
  const refuse = (
    code: MoorageError["code"],
    reason: string,
    details: Readonly<Record<string, unknown>>,
  ) => ({
    refusal: new MoorageError(code, `Cannot trust ${name}: ${reason}`, {
      details: { host: name, fingerprint: shown, keyType: type, ...details },
    }),
  });
  const revoked = known.revoked.find((line) => line.key.equals(key));
  if (revoked)
    return refuse("SSH_HOST_KEY_REVOKED", `its ${type} key ${shown} is revoked in ${revoked.where}`, {
      where: revoked.where,
    });
  if (known.keys.some((line) => line.key.equals(key))) return { isNew: false };
  const other = known.keys.find((line) => line.type === type);
  if (other)
    return refuse(
      "SSH_HOST_KEY_CHANGED",
      `its ${type} key has changed from ${fingerprint(other.key)} in ${other.where} to ${shown}`,
      { where: other.where, knownFingerprint: fingerprint(other.key) },
    );
  const reasons = [
    ...(known.keys.length > 0
      ? [
          `it is known by ${known.keys.map((line) => `its ${line.type} key in ${line.where}`).join(" and ")} only`,
        ]
      : []),
    ...(known.damaged.length > 0 ? [`${known.damaged.join(", ")} cannot be read`] : []),
    ...(known.authorities.length > 0
      ? [`${known.authorities.join(", ")} names a certificate authority, which is not supported`]
      : []),
  ];
  // Whoever is known by one key, or may be by a line that is damaged, is not new.
  if (settings.hostKeyPolicy === "accept-new" && known.keys.length === 0 && known.damaged.length === 0)
    return { isNew: true };
  return refuse(
    "SSH_HOST_KEY_UNKNOWN",
    `its ${type} key ${shown} is not known${reasons.map((reason) => `; ${reason}`).join("")}`,
    {},
  );
}

/**
 * Adds a key to the user's own file, in one write, so that two writers never mix their lines.
 *
 * @throws {Error} when it cannot be written
 */
export async function recordHostKey(settings: HostSettings, key: Buffer): Promise<void> {
  const path = settings.newKeysFile;
  if (path === null) return;
  const name = knownName(settings.hostKeyName, settings.hostKeyPort);
  const line = `${settings.hashKnownHosts ? hashName(name) : name} ${keyType(key)} ${key.toString("base64")}\n`;
  await makePrivateFolder(dirname(path));
  await using file = await open(path, "a+", 0o600);
  const { size } = await file.stat();
  const { bytesRead, buffer } = await file.read(Buffer.alloc(1), 0, 1, Math.max(0, size - 1));
  const isBroken = size > 0 && bytesRead === 1 && buffer.toString() !== "\n";
  await file.write(`${isBroken ? "\n" : ""}${line}`);
}

function hashName(name: string): string {
  const salt = randomBytes(20);
  return `|1|${salt.toString("base64")}|${createHmac("sha1", salt).update(name).digest("base64")}`;
}
