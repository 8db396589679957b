/** Starts a program on this machine with real pipes. */
import { spawn } from "node:child_process";
import { closeSync } from "node:fs";
import { Socket } from "node:net";
import { MoorageError } from "../../src/errors.ts";
import type { ShellStream, StreamEnd } from "../shell/stream.ts";
import { burstReader, takePipes } from "./pipes.ts";

export interface SpawnRequest {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
}

/**
 * The program leads a process group and session of its own.
 *
 * @throws {MoorageError} ENVIRONMENT_UNAVAILABLE when it cannot be started
 */
export async function spawnStream(request: SpawnRequest): Promise<ShellStream> {
  const [file = "", ...args] = request.argv;
  const pipes = await takePipes(2);
  const [out, err] = pipes;
  if (!out || !err) throw new MoorageError("INTERNAL", "Cannot start a program: no pipes were made");
  const stdout = new Socket({ fd: out.readerFd, readable: true, writable: false });
  const stderr = burstReader(err.readerFd);
  const child = spawn(file, args, {
    cwd: request.cwd,
    env: request.env,
    detached: true,
    stdio: ["pipe", out.writerFd, err.writerFd],
  });
  for (const pipe of pipes) closeSync(pipe.writerFd);
  const { stdin } = child;
  if (!stdin) throw new MoorageError("INTERNAL", "Cannot start a program: it has no standard input");
  // A program that ended closes its input; `ended` tells how.
  stdin.on("error", () => {});
  const ended = new Promise<StreamEnd>((resolve) => {
    child.once("exit", (exitCode, signal) => resolve({ exitCode, signal, lost: null }));
    child.once("error", (error) => {
      resolve({
        exitCode: null,
        signal: null,
        lost: new MoorageError("ENVIRONMENT_UNAVAILABLE", `Cannot start ${file}: ${error.message}`, {
          cause: error,
        }),
      });
    });
  });
  return {
    stdin,
    stdout,
    stderr,
    ended,
    close: async () => {
      stdin.destroy();
      if (child.pid !== undefined && child.exitCode === null && child.signalCode === null)
        child.kill("SIGKILL");
      await ended;
      stdout.destroy();
      stderr.destroy();
    },
  };
}
