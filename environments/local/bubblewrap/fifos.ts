/**
 * Makes named pipes, which Node cannot. A program that this process starts is a copy of this whole process first, so one
 * small shell does it for all sandboxes: it is started with the first, waits for nothing but lines of its standard input,
 * and ends with this process.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import type { Socket } from "node:net";
import { createInterface } from "node:readline";
import { MoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import { quoteAll } from "../../shell/quote.ts";

/** Paths of programs. */
export interface Makers {
  readonly shell: string;
  readonly mkfifo: string;
}

/** Each line is a command; its messages come back, and then how it ended. */
const LOOP = `while IFS= read -r line; do eval "$line" 2>&1; echo "code $?"; done`;

interface Request {
  readonly resolve: () => void;
  readonly reject: (error: MoorageError) => void;
}

class Workshop {
  readonly shell: string;
  /** The user whose pipes it makes. */
  readonly uid = process.geteuid?.();
  readonly #child: ChildProcess;
  /** In the order in which they were asked for, which is that of the answers. */
  readonly #waiting: Request[] = [];
  #said: string[] = [];
  ended = false;

  constructor(shell: string) {
    this.shell = shell;
    // Of a session of its own, lest a key that interrupts this process ends it in the middle.
    this.#child = spawn(shell, ["-c", LOOP], {
      cwd: "/",
      env: {},
      detached: true,
      stdio: ["pipe", "pipe", "ignore"],
    });
    const end = (why: string) => {
      this.ended = true;
      for (const { reject } of this.#waiting.splice(0)) reject(failure(why));
    };
    this.#child.once("error", ({ message }) => end(message)).once("exit", () => end("their shell has ended"));
    this.#child.stdin?.on("error", () => {});
    if (this.#child.stdout) {
      createInterface({ input: this.#child.stdout }).on("line", (line) => this.#told(line));
    }
    this.#child.unref();
    this.#hold(false);
  }

  async make(mkfifo: string, paths: readonly string[]): Promise<void> {
    // One that somebody has stopped answers nobody.
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), limits.openTimeoutMs);
    try {
      await new Promise<void>((resolve, reject) => {
        this.#waiting.push({ resolve, reject });
        this.#hold(true);
        this.#child.stdin?.write(`${quoteAll([mkfifo, "-m", "600", ...paths])}\n`);
      });
    } finally {
      clearTimeout(timer);
    }
  }

  close(): void {
    this.#child.stdin?.end();
  }

  #told(line: string): void {
    const code = /^code (\d+)$/.exec(line)?.[1];
    if (code === undefined) {
      this.#said.push(line);
      return;
    }
    const why = this.#said.join("; ");
    this.#said = [];
    const request = this.#waiting.shift();
    if (this.#waiting.length === 0) this.#hold(false);
    if (code === "0") request?.resolve();
    else request?.reject(failure(why || `code ${code}`));
  }

  /** Only who waits keeps this process from its end. */
  #hold(held: boolean): void {
    for (const end of [this.#child.stdin, this.#child.stdout]) {
      // Pipes of a child are sockets, which the types do not say.
      const socket = end as Socket | null;
      if (held) socket?.ref();
      else socket?.unref();
    }
  }
}

let workshop: Workshop | null = null;

/**
 * Where the shell is ended meanwhile, another makes what is missing.
 *
 * @param paths of pipes that only this user may open; on one line each
 * @throws {MoorageError} ENVIRONMENT_UNAVAILABLE when one cannot be made
 */
export async function makeFifos({ shell, mkfifo }: Makers, paths: readonly string[]): Promise<void> {
  const first = workshopOf(shell);
  try {
    await first.make(mkfifo, paths);
  } catch (error) {
    if (!first.ended) throw error;
    const missing = paths.filter((path) => !existsSync(path));
    if (missing.length > 0) await workshopOf(shell).make(mkfifo, missing);
  }
}

function workshopOf(shell: string): Workshop {
  if (workshop?.ended) workshop = null;
  // Found elsewhere now: the old one may lie where commands of another environment can write. Or of another user.
  if (workshop && (workshop.shell !== shell || workshop.uid !== process.geteuid?.())) {
    workshop.close();
    workshop = null;
  }
  workshop ??= new Workshop(shell);
  return workshop;
}

function failure(why: string): MoorageError {
  return new MoorageError("ENVIRONMENT_UNAVAILABLE", `Cannot open a shell: no pipes could be made (${why})`);
}
