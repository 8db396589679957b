/** A system shell that starts a shell per run on this machine, for tests of what stands on one. */
import { execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { SystemRunOptions, SystemRunResult, SystemShell } from "../../../environments/shell/stream.ts";
import { MoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";

export type TestShell = "bash" | "dash" | "busybox";

export interface SpawnSystemShell extends SystemShell, AsyncDisposable {
  readonly folder: string;
}

/** `sh` inside means the shell under test, for busybox with all its applets; `env` is added to the variables. */
export async function createSpawnSystemShell(
  kind: TestShell,
  env: Readonly<Record<string, string>> = {},
): Promise<SpawnSystemShell> {
  const folder = await mkdtemp(join(tmpdir(), `moorage-${kind}-`));
  const bin = join(folder, "bin");
  await mkdir(bin);
  if (kind === "busybox") await promisify(execFile)("busybox", ["--install", "-s", bin]);
  else await symlink(`/usr/bin/${kind}`, join(bin, "sh"));
  const privateDir = join(folder, "private");
  await mkdir(privateDir, { mode: 0o700 });
  const variables = {
    HOME: folder,
    PATH: `${bin}:${process.env.PATH ?? "/usr/bin:/bin"}`,
    LANG: "C.UTF-8",
    ...env,
  };
  return {
    folder,
    home: folder,
    shell: kind === "bash" ? "bash" : "sh",
    privateDir: async () => privateDir,
    run: (script, options) => run(folder, variables, script, options),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}

async function run(
  folder: string,
  env: Readonly<Record<string, string>>,
  script: string,
  { stdin, onStdout, timeoutMs = limits.fileOpTimeoutMs, abortSignal }: SystemRunOptions = {},
): Promise<SystemRunResult> {
  if (script.includes("\0")) throw new RangeError("A script cannot hold a NUL byte");
  if (abortSignal?.aborted) throw new MoorageError("ABORTED", "The run was aborted before it began");
  // From a file and in parentheses: no argument limit, and stdin stays the script's own.
  const file = join(folder, `${randomUUID()}.script`);
  await writeFile(file, `(\n${script}\n)\n`);
  if (abortSignal?.aborted) throw new MoorageError("ABORTED", "The run was aborted before it began");
  const child = spawn("sh", [file], { env: { ...env }, detached: true, stdio: "pipe" });
  const { pid } = child;
  if (pid === undefined) throw new MoorageError("SHELL_MISSING", "Cannot start the shell under test");
  let stopped: MoorageError | null = null;
  const stop = (error: MoorageError): void => {
    stopped ??= error;
    try {
      process.kill(-pid, "SIGKILL");
    } catch {
      // The group has ended by itself.
    }
  };
  const timer = setTimeout(() => stop(new MoorageError("TOOL_TIMEOUT", "The run took too long")), timeoutMs);
  const onAbort = (): void => stop(new MoorageError("ABORTED", "The run was aborted"));
  abortSignal?.addEventListener("abort", onAbort);
  child.stdin.on("error", () => undefined);
  child.stdin.end(stdin ?? "");
  const chunks: Buffer[] = [];
  const errors: Buffer[] = [];
  child.stderr.on("data", (chunk: Buffer) => errors.push(chunk));
  try {
    const ended = new Promise<number>((resolve) => {
      child.once("exit", (code) => resolve(code ?? 128));
    });
    for await (const chunk of child.stdout) {
      if (onStdout) await onStdout(chunk);
      else chunks.push(chunk);
    }
    const exitCode = await ended;
    if (stopped) throw stopped;
    return {
      exitCode,
      stdout: Buffer.concat(chunks),
      stderr: Buffer.concat(errors).toString("utf8").slice(0, 65_536),
    };
  } finally {
    clearTimeout(timer);
    await rm(file, { force: true });
    abortSignal?.removeEventListener("abort", onAbort);
  }
}
