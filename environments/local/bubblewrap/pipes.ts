/**
 * Named pipes between the host and shells in a sandbox, in a folder that both see and only the host can change. They
 * are made some at a time, ahead of their use, and lose their names as soon as both ends are open.
 */
import { chmodSync, closeSync, constants, mkdirSync, openSync, readSync, rmSync } from "node:fs";
import { chown } from "node:fs/promises";
import { Socket } from "node:net";
import { join } from "node:path";
import { MoorageError } from "../../../src/errors.ts";
import { burstReader } from "../pipes.ts";
import { type Makers, makeFifos } from "./fifos.ts";
import type { Owner } from "./sandbox.ts";

/** Streams whose pipes are made at once. */
const BATCH = 3;
const ENDS = ["in", "out", "err"];
/** Mode of a folder in which another user opens what they know by name. */
export const PASSABLE = 0o711;

export interface HostEnds {
  readonly stdin: Socket;
  readonly stdout: Socket;
  readonly stderr: Socket;
}

/** The pipes of one shell, in a folder of that name. */
export interface PipeSet {
  readonly name: string;
  readonly folder: string;
}

export class PipeStock {
  readonly #folder: string;
  readonly #findMakers: () => Makers;
  readonly #owner: Owner | null;
  readonly #ready: PipeSet[] = [];
  #made = 0;
  #making: Promise<void> | null = null;
  #closed = false;

  /**
   * @param makers finds the programs that make them, each time
   * @param owner who opens the other ends, when that is not this process's user
   */
  constructor(folder: string, makers: () => Makers, owner: Owner | null = null) {
    this.#folder = folder;
    this.#findMakers = makers;
    this.#owner = owner;
  }

  async take(): Promise<PipeSet> {
    for (;;) {
      const set = this.#ready.shift();
      if (set) {
        // A failure is met by the call that finds none left.
        if (this.#ready.length < 2) this.fill().catch(() => {});
        return set;
      }
      await this.fill();
    }
  }

  /**
   * Makes pipes ahead.
   *
   * @param others paths of more that are wanted; they are made where none are being made
   * @throws {MoorageError} ENVIRONMENT_UNAVAILABLE once it is closed
   */
  async fill(others: readonly string[] = []): Promise<void> {
    if (this.#closed)
      throw new MoorageError("ENVIRONMENT_UNAVAILABLE", "Cannot open a shell: the sandbox has ended");
    await this.#fill(others);
  }

  /** Makes no more; resolves when nothing is being made, so that the folder can be removed. */
  async close(): Promise<void> {
    this.#closed = true;
    // Whoever asked for them is told.
    await this.#making?.catch(() => {});
  }

  #fill(others: readonly string[]): Promise<void> {
    this.#making ??= this.#make(others).finally(() => {
      this.#making = null;
    });
    return this.#making;
  }

  async #make(others: readonly string[]): Promise<void> {
    const sets = this.#makeFolders();
    const paths = [...sets.flatMap(pathsOf), ...others];
    await makeFifos(this.#findMakers(), paths);
    if (this.#owner) {
      const { uid, gid } = this.#owner;
      await Promise.all(paths.map((path) => chown(path, uid, gid)));
    }
    this.#ready.push(...sets);
  }

  #makeFolders(): PipeSet[] {
    return Array.from({ length: BATCH }, () => {
      this.#made += 1;
      const set = { name: String(this.#made), folder: join(this.#folder, String(this.#made)) };
      mkdirSync(set.folder, { mode: 0o700 });
      if (this.#owner) chmodSync(set.folder, PASSABLE);
      return set;
    });
  }
}

function pathsOf({ folder }: PipeSet): string[] {
  return ENDS.map((end) => join(folder, end));
}

/** Ends that are open on this side before the other side opens its own, so that nobody waits for anybody. */
export interface WaitingEnds extends HostEnds {
  /** To be called when the shell has opened its ends, or never will. */
  settle(): void;
}

export function openHostEnds({ folder }: PipeSet): WaitingEnds {
  const { O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY } = constants;
  const open = (name: string, flags: number) => openSync(join(folder, name), flags | O_NONBLOCK);
  // Until the shell is there they are its ends: without a reader nothing could be written, without a writer a read ends.
  const holders = ENDS.map((name) => open(name, O_RDWR));
  const stdin = new Socket({ fd: open("in", O_WRONLY), readable: false, writable: true });
  // A pipe knows no half-close: its reader finds the end when it is closed.
  stdin.once("finish", () => stdin.destroy());
  return {
    stdin,
    stdout: new Socket({ fd: open("out", O_RDONLY), readable: true, writable: false }),
    stderr: burstReader(open("err", O_RDONLY)),
    settle: () => {
      for (const fd of holders.splice(0)) closeSync(fd);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** The end of a pipe that one program inside writes to. */
export interface WaitingReader {
  /**
   * Reads from here on; what is in the pipe comes before this returns.
   *
   * @param onData tells whether it wants no more
   */
  read(onData: (chunk: Buffer) => boolean): void;
  /** Idempotent. */
  close(): void;
}

/** What a pipe holds. */
const PIPE_BYTES = 65_536;

/** Nothing is read before it is asked for, so that what is written line by line wakes nobody. */
export function openReader(path: string): WaitingReader {
  // Writable too, until the end: else a program that closes it would end it for the next.
  const fd = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
  let socket: Socket | null = null;
  let isClosed = false;
  return {
    read: (onData) => {
      const ahead = Buffer.allocUnsafe(PIPE_BYTES);
      let bytes = 0;
      try {
        bytes = readSync(fd, ahead);
      } catch {
        // Nothing yet.
      }
      if (bytes > 0 && onData(ahead.subarray(0, bytes))) return;
      socket = new Socket({ fd, readable: true, writable: false });
      socket.on("data", onData);
    },
    close: () => {
      if (isClosed) return;
      isClosed = true;
      if (socket) socket.destroy();
      else closeSync(fd);
      rmSync(path, { force: true });
    },
  };
}
