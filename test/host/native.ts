/**
 * The native part of ssh2, without which it enciphers in JavaScript. `npm install` builds it for the Node that npm
 * itself runs under, which need not be the one that the repository brings and its scripts run under.
 */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { findProgram } from "../../images/find-program.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const BUILD_TIMEOUT_MS = 180_000;
const PROBE = "process.exitCode = require('ssh2/lib/protocol/crypto.js').bindingAvailable ? 0 : 1";

/**
 * Builds it for the Node that runs this, unless it loads already. Without it the tests pass too, and large transfers
 * are slower, so what stands in the way is only told.
 */
export async function supplyNative(log: (line: string) => void, mayChange: boolean): Promise<void> {
  if (await loads()) return;
  const problem = mayChange ? await build(log) : "only looking";
  if (problem !== null) log(`ssh2 runs without its native part: ${problem}`);
}

/** Asked of a process of its own: one that has failed to load it once may not load it again. */
async function loads(): Promise<boolean> {
  return await promisify(execFile)(process.execPath, ["-e", PROBE], { cwd: ROOT }).then(
    () => true,
    () => false,
  );
}

/** @returns why it is not built, when it is not */
async function build(log: (line: string) => void): Promise<string | null> {
  const headers = await findHeaders();
  if (headers === null)
    return `the headers of Node ${process.version} are not here ("npm rebuild node" brings them)`;
  const npm = findProgram("npm");
  if (npm === null) return "there is no npm to build it with";
  log(`building the native part of ssh2 for Node ${process.version}`);
  const env = {
    ...process.env,
    PATH: `${dirname(process.execPath)}:${process.env.PATH ?? ""}`,
    npm_config_nodedir: headers,
  };
  const options = { cwd: ROOT, env, timeout: BUILD_TIMEOUT_MS };
  const said = await promisify(execFile)(npm, ["rebuild", "--foreground-scripts", "ssh2"], options).then(
    // It ends well also when the compiler failed.
    ({ stderr }) => stderr,
    (error: Error & { readonly stderr?: string }) => `${error.stderr ?? ""}\nError: ${error.message}`,
  );
  const reason = /\b[A-Za-z]*Error: (.+)/.exec(said)?.[1] ?? "it does not load";
  return (await loads()) ? null : `it cannot be built: ${reason}`;
}

/** Where this Node's own headers are: beside it, as its archives have them, or in the package that brought it. */
async function findHeaders(): Promise<string | null> {
  const beside = join(dirname(process.execPath), "..");
  const packaged = `node-${process.platform}-${process.arch}`;
  for (const folder of [beside, join(beside, "node_modules", packaged), join(beside, "..", packaged)]) {
    const text = await readFile(join(folder, "include", "node", "node_version.h"), "utf8").catch(() => "");
    const [major, minor, patch] = ["MAJOR", "MINOR", "PATCH"].map(
      (part) => new RegExp(`^#define NODE_${part}_VERSION (\\d+)$`, "m").exec(text)?.[1],
    );
    if (`v${major}.${minor}.${patch}` === process.version) return folder;
  }
  return null;
}
