/** What becomes of the ciphers of connections that are gone. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { nativeRemark } from "../../../environments/ssh/native.ts";

const LIBRARY = JSON.stringify(join(import.meta.dirname, "../../../environments/ssh/library.ts"));

/** Leaves many ciphers behind as the library does, and lets them be collected between what the program does. */
const PROGRAM = `
const native = createRequire(process.cwd() + "/x")("ssh2/lib/protocol/crypto/build/Release/sshcrypto.node");
for (let at = 0; at < 2_000; at += 1) {
  new native.AESGCMCipher("aes-256-gcm", Buffer.alloc(32), Buffer.alloc(12)).free();
}
let grown = [];
const growing = setInterval(() => {
  for (let at = 0; at < 4_000; at += 1) grown.push({ filled: new Array(20).fill(at) });
  if (grown.length > 100_000) grown = [];
}, 2);
setTimeout(() => {
  clearInterval(growing);
  console.log("lives");
}, 3_000);
`;

async function outcome(loads: string): Promise<string> {
  const program = `import { createRequire } from "node:module"; ${loads}\n${PROGRAM}`;
  return promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], {
    cwd: import.meta.dirname,
    timeout: 60_000,
  }).then(
    ({ stdout }) => stdout,
    (error: Error & { signal?: string; stderr?: string }) => `${error.signal} ${error.stderr?.slice(0, 300)}`,
  );
}

describe.runIf(nativeRemark() === null)("the library's ciphers", () => {
  it("do not end the process when they are collected outside of any program", async () => {
    expect(await outcome(`import ${LIBRARY};`)).toBe("lives\n");
  });

  it("nor when somebody had loaded the library before", async () => {
    expect(await outcome(`import "ssh2"; import ${LIBRARY};`)).toBe("lives\n");
  });
});
