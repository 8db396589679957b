/**
 * Starts a program on this machine with real pipes. Node's own pipes are sockets, on which `> /dev/stdout` fails,
 * so named pipes are made, opened at both ends and unlinked at once.
 */
import { spawn } from "node:child_process";
import { closeSync, constants, mkdtempSync, openSync, rmSync } from "node:fs";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import { MoorageError } from "../../src/errors.ts";
import type { ShellStream, StreamEnd } from "../shell/stream.ts";

interface Pipe {
  readonly reader: Socket;
  readonly writerFd: number;
}

async function makePipes(count: number): Promise<Pipe[]> {
  const folder = mkdtempSync(join(tmpdir(), "moorage-pipe-"));
  try {
    const paths = Array.from({ length: count }, (_, index) => join(folder, String(index)));
    // From the root folder, since the current one may be gone or closed; PATH may be without the system's programs.
    const env = { PATH: `${process.env.PATH ?? ""}:/usr/bin:/bin` };
    const { failed, message } = await execa("mkfifo", ["-m", "600", ...paths], {
      cwd: "/",
      env,
      reject: false,
    });
    if (failed)
      throw new MoorageError("ENVIRONMENT_UNAVAILABLE", `Cannot start a program: no pipes (${message})`);
    return paths.map((path) => {
      // Opened for reading first and without blocking, so that the writing end finds a reader.
      const readerFd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
      const writerFd = openSync(path, constants.O_WRONLY);
      return { reader: new Socket({ fd: readerFd, readable: true, writable: false }), writerFd };
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

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
  const pipes = await makePipes(2);
  const [stdout, stderr] = pipes;
  if (!stdout || !stderr) throw new MoorageError("INTERNAL", "Cannot start a program: no pipes were made");
  const child = spawn(file, args, {
    cwd: request.cwd,
    env: request.env,
    detached: true,
    stdio: ["pipe", stdout.writerFd, stderr.writerFd],
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
    stdout: stdout.reader,
    stderr: stderr.reader,
    ended,
    close: async () => {
      stdin.destroy();
      if (child.pid !== undefined && child.exitCode === null && child.signalCode === null)
        child.kill("SIGKILL");
      await ended;
      stdout.reader.destroy();
      stderr.reader.destroy();
    },
  };
}
