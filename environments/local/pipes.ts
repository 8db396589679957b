/**
 * Real pipes for programs of this machine. Node's own pipes are sockets, on which `> /dev/stdout` fails, so named pipes
 * are made, opened at both ends and unlinked at once. One run of `mkfifo` makes some more than are asked for: to start
 * a program copies this whole process, which takes longer than the shell that the pipes are for.
 */
import { closeSync, constants, mkdtempSync, openSync, rmSync } from "node:fs";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import { MoorageError } from "../../src/errors.ts";

/** Both ends are descriptors of this process that no child inherits by itself; whoever takes them closes them. */
export interface Pipe {
  readonly readerFd: number;
  readonly writerFd: number;
}

/**
 * Reads a pipe that bursts of short lines come through. Paused, it reads no more than one piece, so that the rest comes
 * at once and wakes us once; with the usual mark a paused socket reads on, piece by piece, until that is reached.
 */
export function burstReader(fd: number): Socket {
  const options = { fd, readable: true, writable: false, readableHighWaterMark: 1 };
  return new Socket(options);
}

/** How many are made at once; so many may be open and unused. */
export const PIPES_AHEAD = 8;
const stock: Pipe[] = [];
let making: Promise<void> | null = null;

/** @throws {MoorageError} ENVIRONMENT_UNAVAILABLE when they cannot be made */
export async function takePipes(count: number): Promise<Pipe[]> {
  while (stock.length < count) {
    making ??= makePipes(Math.max(PIPES_AHEAD, count)).finally(() => {
      making = null;
    });
    await making;
  }
  return stock.splice(0, count);
}

async function makePipes(count: number): Promise<void> {
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
    for (const path of paths) stock.push(openPipe(path));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function openPipe(path: string): Pipe {
  // Opened for reading first and without blocking, so that the writing end finds a reader.
  const readerFd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    return { readerFd, writerFd: openSync(path, constants.O_WRONLY) };
  } catch (error) {
    closeSync(readerFd);
    throw error;
  }
}
