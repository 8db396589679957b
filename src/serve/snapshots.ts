/** Workspaces packed into files of this machine, and unpacked into fresh environments. */
import { createReadStream, createWriteStream } from "node:fs";
import { rm, stat } from "node:fs/promises";
import { finished } from "node:stream/promises";
import type { BaseEnvironment, ExecResult } from "../../environments/base.ts";
import { limits } from "../limits.ts";
import { ApiError } from "./api-error.ts";

/**
 * Packs the workspace, owners and modes with it.
 *
 * @returns its size in bytes
 * @throws {ApiError} 400 `snapshot_failed` when the environment has no `tar` or a file cannot be read
 */
export async function packWorkspace(environment: BaseEnvironment, file: string): Promise<number> {
  const out = createWriteStream(file, { mode: 0o600 });
  const closed = finished(out);
  closed.catch(() => {}); // told below
  const stop = new AbortController();
  let bytes = 0;
  try {
    const result = await environment.exec(["tar", "-C", environment.workspace, "-cf", "-", "."], {
      output: "separate",
      abortSignal: stop.signal,
      onOutput: ({ stream, data }) => {
        if (stream !== "stdout") return undefined;
        bytes += data.byteLength;
        if (bytes > limits.serveSnapshotMaxBytes) stop.abort();
        if (out.destroyed || out.write(data)) return undefined;
        return Promise.race([new Promise<void>((resolve) => out.once("drain", resolve)), closed]);
      },
    });
    out.end();
    await closed;
    if (stop.signal.aborted) {
      throw new ApiError(
        400,
        "snapshot_failed",
        `The workspace has more than ${limits.serveSnapshotMaxBytes} bytes`,
      );
    }
    requireSuccess(result, "pack");
    return (await stat(file)).size;
  } catch (error) {
    out.destroy();
    await rm(file, { force: true });
    throw error;
  }
}

/** @throws {ApiError} 400 `snapshot_failed` when the environment cannot unpack it */
export async function unpackWorkspace(environment: BaseEnvironment, file: string): Promise<void> {
  const staged = `${environment.workspace}/.moorage-restore.tar`;
  const pieces = createReadStream(file, { highWaterMark: limits.serveRestorePieceBytes });
  requireSuccess(await environment.exec(["rm", "-f", staged]), "unpack");
  for await (const piece of pieces) {
    const appended = await environment.exec(["sh", "-c", 'cat >>"$0"', staged], { stdin: piece });
    requireSuccess(appended, "unpack");
  }
  const result = await environment.exec(["tar", "-C", environment.workspace, "-xpf", staged]);
  requireSuccess(result, "unpack");
  requireSuccess(await environment.exec(["rm", "-f", staged]), "unpack");
}

function requireSuccess(result: ExecResult, verb: string): void {
  if (result.exitCode === 0) return;
  const why = (result.stderr || result.output).trim().slice(0, 500);
  throw new ApiError(
    400,
    "snapshot_failed",
    `Cannot ${verb} the workspace: ${why || `exit code ${result.exitCode}`}`,
  );
}
