import { createHmac, generateKeyPairSync, randomBytes } from "node:crypto";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { HostSettings } from "../../../environments/ssh/config.ts";
import { hostKeyAlgorithms, judgeHostKey, recordHostKey } from "../../../environments/ssh/host-key.ts";
import { findKnown, fingerprint, keyType, readKnownHost } from "../../../environments/ssh/known-hosts.ts";
import { temporaryFolder } from "./sshd.ts";

let folder: ReturnType<typeof temporaryFolder>;
let file: string;

beforeEach(() => {
  folder = temporaryFolder();
  file = join(folder.path, "known_hosts");
});
afterEach(() => folder[Symbol.dispose]());

/** A key in the form in which it travels. */
function key(type: "ssh-ed25519" | "ssh-rsa"): Buffer {
  const part = (bytes: Buffer) => {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(bytes.length);
    return Buffer.concat([length, bytes]);
  };
  const name = part(Buffer.from(type));
  if (type === "ssh-rsa") return Buffer.concat([name, part(Buffer.from([1, 0, 1])), part(randomBytes(257))]);
  const { publicKey } = generateKeyPairSync("ed25519");
  return Buffer.concat([name, part(publicKey.export({ format: "der", type: "spki" }).subarray(-32))]);
}

const A = key("ssh-ed25519");
const B = key("ssh-ed25519");
const RSA = key("ssh-rsa");

function line(hosts: string, of: Buffer, marker = ""): string {
  return `${marker}${marker === "" ? "" : " "}${hosts} ${keyType(of)} ${of.toString("base64")} comment`;
}

function hashed(name: string): string {
  const salt = randomBytes(20);
  return `|1|${salt.toString("base64")}|${createHmac("sha1", salt).update(name).digest("base64")}`;
}

function settings(more: Partial<HostSettings> = {}): HostSettings {
  return {
    name: "box",
    host: "box",
    port: 22,
    user: "me",
    hostKeyName: "box",
    hostKeyPort: 22,
    identityFiles: [],
    identitiesOnly: false,
    agent: null,
    knownHostsFiles: [file],
    newKeysFile: (more.knownHostsFiles ?? [file])[0] ?? null,
    revokedKeysFile: null,
    hostKeyPolicy: "strict",
    hashKnownHosts: false,
    connectTimeoutMs: null,
    ...more,
  };
}

async function judge(shown: Buffer, lines: readonly string[], more: Partial<HostSettings> = {}) {
  writeFileSync(file, lines.join("\n"));
  const host = settings(more);
  const known = await findKnown(host);
  const verdict = judgeHostKey(host, known, shown);
  return "refusal" in verdict ? verdict.refusal : verdict.isNew ? "new" : "known";
}

describe("judgeHostKey()", () => {
  it.each([
    ["a plain name", line("box", A)],
    ["one name of a list", line("other,box,10.0.0.1", A)],
    ["a wildcard", line("b?x", A)],
    ["a hashed name", line(hashed("box"), A)],
    ["a name in other letters", line("BOX", A)],
    ["a line with tabs", line("box", A).replaceAll(" ", "\t")],
    ["a line of a file with Windows endings", `${line("x", B)}\r\n${line("box", A)}\r`],
    ["a second line", `# comment\n\n${line("box", RSA)}\n${line("box", A)}`],
  ])("knows a host by %s", async (_, text) => {
    expect(await judge(A, [text])).toBe("known");
  });

  it.each([
    ["another host", line("bax", A)],
    ["a negated pattern", line("*,!box", A)],
    ["another port", line("[box]:2222", A)],
    ["a part of the name", line("bo", A)],
    ["nothing", ""],
    ["another host's hash", line(hashed("bax"), A)],
    ["an authority", line("box", A, "@cert-authority")],
  ])("does not know a host by %s", async (_, text) => {
    expect(await judge(A, [text])).toMatchObject({ code: "SSH_HOST_KEY_UNKNOWN" });
  });

  it("tells a port apart, also when hashed", async () => {
    const more = { hostKeyPort: 2201 };
    expect(await judge(A, [line("[box]:2201", A)], more)).toBe("known");
    expect(await judge(A, [line(hashed("[box]:2201"), A)], more)).toBe("known");
    expect(await judge(A, [line("[b*]:2201", A)], more)).toBe("known");
    expect(await judge(A, [line("box", A)], more)).toMatchObject({ code: "SSH_HOST_KEY_UNKNOWN" });
  });

  it("tells a changed key with both fingerprints and the line", async () => {
    expect(await judge(B, ["# first", line("box", A)])).toMatchObject({
      code: "SSH_HOST_KEY_CHANGED",
      message: `Cannot trust box: its ssh-ed25519 key has changed from ${fingerprint(A)} in ${file}:2 to ${fingerprint(B)}`,
    });
    expect(await judge(B, [line("box", A)], { hostKeyPolicy: "accept-new" })).toMatchObject({
      code: "SSH_HOST_KEY_CHANGED",
    });
  });

  it("refuses a revoked key, also one that another line knows", async () => {
    expect(await judge(A, [line("box", A), line("*", A, "@revoked")])).toMatchObject({
      code: "SSH_HOST_KEY_REVOKED",
      message: expect.stringContaining(`${file}:2`),
    });
    expect(await judge(B, [line("box", B), line("*", A, "@revoked")])).toBe("known");
  });

  it("SSH-15: takes a host known by one type for unknown, not changed, when it shows another", async () => {
    expect(await judge(A, [line("box", RSA)])).toMatchObject({
      code: "SSH_HOST_KEY_UNKNOWN",
      message: expect.stringContaining(`known by its ssh-rsa key in ${file}:1 only`),
    });
    expect(await judge(A, [line("box", RSA)], { hostKeyPolicy: "accept-new" })).toMatchObject({
      code: "SSH_HOST_KEY_UNKNOWN",
    });
  });

  it("accepts a new host only when asked to, and never beside a damaged line", async () => {
    expect(await judge(A, [], { hostKeyPolicy: "accept-new" })).toBe("new");
    for (const damaged of [
      "box",
      "box ssh-ed25519",
      "box ssh-ed25519 AAAA",
      "@odd box ssh-ed25519 AAAA",
      "\0\0\0",
    ]) {
      expect(await judge(A, [damaged], { hostKeyPolicy: "accept-new" })).toMatchObject({
        code: "SSH_HOST_KEY_UNKNOWN",
        message: expect.stringContaining(`${file}:1 cannot be read`),
      });
    }
  });

  it("knows a host by any of several files", async () => {
    const second = join(folder.path, "second");
    writeFileSync(second, line("box", A));
    expect(await judge(A, [line("bax", B)], { knownHostsFiles: [file, "/nowhere/at/all", second] })).toBe(
      "known",
    );
  });
});

describe("readKnownHost()", () => {
  it("SSH-14: fails closed for a folder in the file's place", async () => {
    mkdirSync(file);
    await expect(readKnownHost([file], "box")).rejects.toMatchObject({
      code: "SSH_KNOWN_HOSTS_UNREADABLE",
      message: expect.stringContaining(file),
    });
  });

  it("SSH-14: fails closed for a file that may not be read", async ({ skip }) => {
    writeFileSync(file, line("box", A));
    chmodSync(file, 0);
    if (process.getuid?.() !== 0) {
      await expect(readKnownHost([file], "box")).rejects.toMatchObject({
        code: "SSH_KNOWN_HOSTS_UNREADABLE",
      });
      return;
    }
    const { seteuid, setegid } = process;
    if (!seteuid || !setegid) return skip("there are no users here");
    chmodSync(folder.path, 0o755);
    setegid(65_534);
    seteuid(65_534);
    try {
      await expect(readKnownHost([file], "box")).rejects.toMatchObject({
        code: "SSH_KNOWN_HOSTS_UNREADABLE",
      });
    } finally {
      seteuid(0);
      setegid(0);
    }
  });
});

describe("hostKeyAlgorithms()", () => {
  it("SSH-15: offers the known types first", async () => {
    writeFileSync(file, line("box", RSA));
    const algorithms = hostKeyAlgorithms(await readKnownHost([file], "box"));
    expect(algorithms.slice(0, 3)).toEqual(["rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"]);
    expect(algorithms).toContain("ssh-ed25519");
  });
});

describe("a mark of byte order", () => {
  it("hides no first line", async () => {
    expect(await judge(A, [`\ufeff${line("box", A)}`])).toBe("known");
    expect(await judge(A, [`\ufeff${line("box", A, "@revoked")}`, line("box", A)])).toMatchObject({
      code: "SSH_HOST_KEY_REVOKED",
    });
  });
});

describe("a file of revoked keys", () => {
  const revoked = () => ({ revokedKeysFile: join(folder.path, "revoked") });
  const write = (...lines: readonly string[]) => writeFileSync(revoked().revokedKeysFile, lines.join("\n"));

  it("refuses its keys, whoever is known by them", async () => {
    write("# gone", "", `ssh-ed25519 ${A.toString("base64")} old one`);
    expect(await judge(A, [line("box", A)], revoked())).toMatchObject({
      code: "SSH_HOST_KEY_REVOKED",
      message: expect.stringContaining("revoked:3"),
    });
    expect(await judge(B, [line("box", B)], revoked())).toBe("known");
  });

  it.each([
    ["is not there", () => {}],
    ["is a binary list", () => write("SSHKRL\n\0\0")],
    ["has a line that is no key", () => write("nonsense")],
    ["has a key of another type than it says", () => write(`ssh-rsa ${A.toString("base64")}`)],
    ["is a folder", () => mkdirSync(revoked().revokedKeysFile)],
  ])("trusts nobody when it %s", async (_, make) => {
    make();
    await expect(judge(A, [line("box", A)], revoked())).rejects.toMatchObject({
      code: "SSH_KNOWN_HOSTS_UNREADABLE",
    });
  });
});

describe("recordHostKey()", () => {
  it("adds one line, after a last line that has no end", async () => {
    writeFileSync(file, line("bax", B));
    await recordHostKey(settings(), A);
    expect(readFileSync(file, "utf8")).toBe(`${line("bax", B)}\nbox ssh-ed25519 ${A.toString("base64")}\n`);
  });

  it("makes the file and its folder for the owner alone, and hashes names when asked", async () => {
    const deep = join(folder.path, "new", "known_hosts");
    await recordHostKey(settings({ knownHostsFiles: [deep], hashKnownHosts: true, hostKeyPort: 2201 }), A);
    expect(readFileSync(deep, "utf8")).not.toContain("box");
    const known = await readKnownHost([deep], "[box]:2201");
    expect(known.keys.map(({ key: found }) => found)).toEqual([A]);
  });

  it("writes to no file that is not the user's own", async () => {
    writeFileSync(file, "");
    await recordHostKey(settings({ newKeysFile: null }), A);
    expect(readFileSync(file, "utf8")).toBe("");
  });

  it("fails, and does not hang, where no folder can be made", async () => {
    const nowhere = settings({ knownHostsFiles: ["/proc/moorage/ssh/known_hosts"] });
    await expect(recordHostKey(nowhere, A)).rejects.toMatchObject({ code: "ENOENT" });
  });
});
