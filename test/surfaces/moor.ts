/** Starts the real command as a child process, the way a person or a client does. */
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

export const MOOR = fileURLToPath(new URL("../../bin/moor", import.meta.url));

export interface Outcome {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface MoorOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly stdin?: string | Uint8Array;
}

/**
 * A private home for one test, with its state and configuration, removed at its end. The cache of compiled code is
 * everybody's: it decides nothing, and without it every command starts at half the speed.
 *
 * @param onEnd when it is removed; outside of a test, a hook's own
 */
export function privateHome(
  onEnd: (remove: () => void) => void = onTestFinished,
): Readonly<Record<string, string>> {
  const home = temporaryFolder(onEnd);
  return {
    HOME: home,
    MOORAGE_HOME: join(home, "state"),
    XDG_CONFIG_HOME: join(home, "config"),
    XDG_CACHE_HOME: process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"),
  };
}

/** A folder for one test. @param onEnd when it is removed; outside of a test, a hook's own */
export function temporaryFolder(onEnd: (remove: () => void) => void = onTestFinished): string {
  const folder = mkdtempSync(join(tmpdir(), "moor-test-"));
  onEnd(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Starts `moor`; a child that the test forgets is killed at its end. */
export function startMoor(
  words: readonly string[],
  options: MoorOptions = {},
): ChildProcessWithoutNullStreams {
  const child = spawn(MOOR, words, {
    env: { ...process.env, ...options.env },
    cwd: options.cwd ?? temporaryFolder(),
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  return child;
}

/** Runs `moor` to its end. */
export async function moor(words: readonly string[], options: MoorOptions = {}): Promise<Outcome> {
  const child = startMoor(words, options);
  child.stdin.on("error", () => {});
  child.stdin.end(options.stdin ?? "");
  return outcome(child);
}

/** Waits for the end of a child and of its outputs. */
export async function outcome(child: ChildProcessWithoutNullStreams): Promise<Outcome> {
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => stdout.push(chunk));
  child.stderr.on("data", (chunk: Buffer) => stderr.push(chunk));
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (exitCode, signal) =>
      resolve({
        exitCode,
        signal,
        stdout: Buffer.concat(stdout).toString("utf8"),
        stderr: Buffer.concat(stderr).toString("utf8"),
      }),
    );
  });
}

/** Waits until `check` gives something else than undefined, null or false. */
export async function until<Value>(
  what: string,
  check: () => Value | Promise<Value>,
  timeoutMs = 15_000,
): Promise<NonNullable<Value>> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const value = await check();
    if (value !== undefined && value !== null && value !== false) return value;
    if (performance.now() > deadline) throw new Error(`Timed out after ${timeoutMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
