/** Installs Debian packages without a question, waiting for other package managers to finish. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { findProgram } from "../../images/find-program.ts";

const LOCK_TIMEOUT_S = 300;
const COMMAND_TIMEOUT_MS = 20 * 60_000;

/** Why packages cannot be installed here, or null when they can. */
export async function aptObstacle(): Promise<string | null> {
  const release = await readFile("/etc/os-release", "utf8").catch(() => "");
  if (!/^ID(_LIKE)?=.*\bdebian\b/m.test(release)) return "this is not Debian or one of its kind";
  if (findProgram("apt-get") === null) return "there is no apt-get";
  if (process.getuid?.() !== 0) return "this user is not root";
  return null;
}

/**
 * Installs what is needed. Each need is a list of package names of which apt knows at least one.
 *
 * Package lists are fetched only when a package is unknown or its archive is gone.
 *
 * @throws {Error} with apt's last words
 */
export async function installPackages(
  needs: readonly (readonly string[])[],
  log: (line: string) => void,
): Promise<void> {
  const known = await choose(needs);
  if (known !== null) {
    try {
      await install(known, log);
      return;
    } catch (error) {
      log(`apt-get install failed, trying again with fresh package lists: ${lastLine(error)}`);
    }
  }
  log("fetching package lists");
  await apt(["update"]).catch((error: unknown) => log(`some package lists are missing: ${lastLine(error)}`));
  const chosen = await choose(needs);
  if (chosen === null)
    throw new Error(`apt knows none of ${needs.map((need) => need.join(" or ")).join(", ")}`);
  await install(chosen, log);
}

async function install(packages: readonly string[], log: (line: string) => void): Promise<void> {
  log(`installing ${packages.join(" ")}`);
  await apt(["install", "--yes", "--no-install-recommends", ...packages]);
}

/** @returns one package for each need, or null when apt knows none for one of them */
async function choose(needs: readonly (readonly string[])[]): Promise<readonly string[] | null> {
  const { stdout } = await promisify(execFile)("apt-cache", ["policy", ...needs.flat()], { env: plainEnv() });
  const available = new Set<string>();
  for (const [, name, candidate] of stdout.matchAll(/^(\S+):\n\s+Installed: .*\n\s+Candidate: (.*)$/gm)) {
    if (name !== undefined && candidate !== "(none)") available.add(name);
  }
  const chosen = needs.map((need) => need.find((name) => available.has(name)));
  const complete = chosen.filter((name) => name !== undefined);
  return complete.length === needs.length ? [...new Set(complete)] : null;
}

/** Another apt may hold the lock of the package lists, for which apt itself does not wait. */
async function apt(argv: readonly string[]): Promise<void> {
  const deadline = performance.now() + LOCK_TIMEOUT_S * 1000;
  for (;;) {
    try {
      await promisify(execFile)("apt-get", ["-o", `DPkg::Lock::Timeout=${LOCK_TIMEOUT_S}`, ...argv], {
        env: { ...plainEnv(), DEBIAN_FRONTEND: "noninteractive" },
        timeout: COMMAND_TIMEOUT_MS,
        maxBuffer: 64 * 1024 * 1024,
      });
      return;
    } catch (error) {
      const locked = /Could not get lock|Unable to lock/.test(stderrOf(error));
      if (!locked || performance.now() > deadline) throw error;
      await delay(1_000);
    }
  }
}

/** apt's answers are read, so they must be in English. */
function plainEnv(): NodeJS.ProcessEnv {
  return { ...process.env, LC_ALL: "C" };
}

function stderrOf(error: unknown): string {
  // execFile adds what the program wrote to its error.
  const { stderr } = error as { stderr?: string };
  return stderr ?? String(error);
}

function lastLine(error: unknown): string {
  return stderrOf(error).trim().split("\n").at(-1) ?? "";
}
