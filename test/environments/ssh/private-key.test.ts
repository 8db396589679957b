/** Private keys as programs write them. */
import { execFileSync } from "node:child_process";
import { generateKeyPairSync, type KeyObject } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { parseKeyFile } from "../../../environments/ssh/private-key.ts";
import { canRun, makeKey, publicKey, sshdObstacle, temporaryFolder } from "./sshd.ts";

let folder: ReturnType<typeof temporaryFolder>;
beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(() => folder[Symbol.dispose]());

/** Whether it signs what its public half, as `ssh-keygen` knows it, verifies. */
function outcome(text: Buffer | string, passphrase: string | null = null): string {
  const key = parseKeyFile(Buffer.from(text), passphrase);
  if (typeof key === "string") return key;
  const signature = key.sign("said");
  if (signature instanceof Error) return signature.message;
  return key.isPrivateKey() && key.verify("said", signature) ? "signs" : "does not sign";
}

const LOCKED = { cipher: "aes-256-cbc", passphrase: "secret" } as const;
const KEYS: readonly (readonly [string, () => KeyObject])[] = [
  ["rsa", () => generateKeyPairSync("rsa", { modulusLength: 2_048 }).privateKey],
  ["ec", () => generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey],
  ["ec 521", () => generateKeyPairSync("ec", { namedCurve: "P-521" }).privateKey],
  ["ed25519", () => generateKeyPairSync("ed25519").privateKey],
];

describe("parseKeyFile()", () => {
  it.each(KEYS)("reads %s in PKCS#8, open and encrypted", (_, make) => {
    const key = make();
    const open = key.export({ format: "pem", type: "pkcs8" });
    expect(outcome(open)).toBe("signs");
    expect(
      outcome(`Bag Attributes\n  friendlyName: me\n${String(open).replaceAll("\n", "\r\n")}\njunk\n`),
    ).toBe("signs");
    const locked = key.export({ format: "pem", type: "pkcs8", ...LOCKED });
    expect(outcome(locked)).toBe("is encrypted; load it into an agent");
    expect(outcome(locked, "wrong")).toMatch(/^is encrypted, and the passphrase does not open it/);
    expect(outcome(locked, "secret")).toBe("signs");
  });

  it("tells a wrong passphrase, whatever it makes of the key", () => {
    const [, make] = KEYS[1] ?? expect.unreachable();
    const locked = make().export({ format: "pem", type: "pkcs8", ...LOCKED });
    const told = new Set(Array.from({ length: 4_000 }, (_, index) => outcome(locked, `wrong ${index}`)));
    expect([...told].sort()).toEqual([
      "is encrypted, and the passphrase does not open it",
      "is encrypted, and the passphrase does not open it, or its cipher is not known here",
    ]);
  });

  it("has words for what it cannot use", () => {
    const { privateKey } = generateKeyPairSync("x25519");
    expect(outcome(privateKey.export({ format: "pem", type: "pkcs8" }))).toBe(
      "cannot be used (Unsupported key type x25519)",
    );
    for (const text of ["", "nonsense", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"]) {
      expect(outcome(text)).toMatch(/^cannot be used \(/);
    }
    expect(outcome("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n")).toMatch(/^cannot be used \(/);
  });

  it.runIf(canRun("ssh-keygen", sshdObstacle()))("reads what ssh-keygen writes, by its public half", () => {
    for (const [type, ...options] of [
      ["ed25519"],
      ["ecdsa", "-m", "PKCS8"],
      ["rsa", "-m", "PKCS8"],
      ["rsa", "-m", "PEM"],
    ] as const) {
      const path = makeKey(folder.path, `${type}${options.join("")}`, type);
      if (options.length > 0)
        execFileSync("ssh-keygen", ["-q", "-p", ...options, "-N", "secret", "-f", path]);
      const key = parseKeyFile(readFileSync(path), "secret");
      if (typeof key === "string") throw new Error(`${type} ${options.join(" ")} ${key}`);
      expect(`${key.type} ${key.getPublicSSH().toString("base64")}`).toBe(publicKey(path));
      expect(outcome(readFileSync(path), "secret")).toBe("signs");
    }
  });

  it.runIf(canRun("ssh-keygen", sshdObstacle()))("tells a wrong passphrase, whatever the cipher", () => {
    for (const cipher of ["aes256-ctr", "aes256-cbc", "aes256-gcm@openssh.com"]) {
      const path = join(folder.path, cipher);
      const options = ["-q", "-t", "ed25519", "-Z", cipher, "-N", "secret", "-f", path];
      execFileSync("ssh-keygen", options);
      expect(outcome(readFileSync(path), "wrong")).toBe("is encrypted, and the passphrase does not open it");
      expect(outcome(readFileSync(path), "secret")).toBe("signs");
    }
  });
});
