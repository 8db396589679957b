/**
 * Streams opened ahead. Starting a program costs the engine tens of milliseconds; here a plain /bin/sh was started
 * before, and is told over its stdin which program to become. Variables travel the same way, so they are in the
 * new program's initial environment and in no argument list.
 *
 * The shell answers with one newline before it becomes the program, and gets nothing more to read until then:
 * some shells read ahead, and what follows belongs to the program.
 */
import type { Readable } from "node:stream";
import { quote, quoteAll } from "../shell/quote.ts";
import { LOGIN_AHEAD } from "../shell/script.ts";
import type { ShellStream, StreamRequest } from "../shell/stream.ts";

/** A warm shell that has not answered after this is given up, milliseconds. */
const ANSWER_MS = 1_000;
const NEWLINE = 0x0a;

export class WarmStreams {
  readonly #open: (request: StreamRequest) => Promise<ShellStream>;
  readonly #ready: ShellStream[] = [];
  #closed = false;

  constructor(open: (request: StreamRequest) => Promise<ShellStream>) {
    this.#open = open;
  }

  /** Opens until `count` are ready. */
  async fill(count: number): Promise<void> {
    const missing = Math.max(0, count - this.#ready.length);
    const opened = await Promise.all(Array.from({ length: missing }, () => this.#openAhead()));
    if (this.#closed) await Promise.all(opened.map((stream) => stream.close()));
    else this.#ready.push(...opened);
  }

  /** A profile that is slower than a shell's answer is left to whoever takes the stream. */
  async #openAhead(): Promise<ShellStream> {
    const request = { argv: ["/bin/sh"], env: {} };
    const stream = await this.#open(request);
    stream.stdin.write(`${LOGIN_AHEAD}echo\n`);
    if (await answered(stream)) return stream;
    await stream.close();
    return await this.#open(request);
  }

  /** Null when none is ready, or when the request's variables have names that no shell can export. */
  async take(request: StreamRequest): Promise<ShellStream | null> {
    if (this.#ready.length === 0 || request.abortSignal?.aborted) return null;
    const names = Object.keys(request.env);
    if (!names.every((name) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name))) return null;
    for (let stream = this.#ready.shift(); stream; stream = this.#ready.shift()) {
      stream.stdin.write(launchLine(request));
      if (await answered(stream)) return stream;
      await stream.close();
    }
    return null;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#ready.splice(0).map((stream) => stream.close()));
  }
}

/** One compound command, so that the shell has read all of it before it runs any. */
function launchLine(request: StreamRequest): string {
  const exports = Object.entries(request.env).map(([name, value]) => `export ${name}=${quote(value)};`);
  const [program, option, text, ...rest] = request.argv;
  // What is written for the same shell needs no second one.
  const isOwn = program === "/bin/sh" && option === "-c" && text !== undefined && rest.length === 0;
  return `{ echo; ${exports.join(" ")} ${isOwn ? `${text}\nexit` : `exec ${quoteAll(request.argv)}`}; }\n`;
}

async function answered(stream: ShellStream): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), ANSWER_MS);
  });
  const gone = stream.ended.then(() => null);
  const first = await Promise.race([firstChunk(stream.stdout), gone, late]);
  clearTimeout(timer);
  if (first?.[0] !== NEWLINE) return false;
  if (first.length > 1) stream.stdout.unshift(first.subarray(1));
  return true;
}

function firstChunk(readable: Readable): Promise<Buffer | null> {
  return new Promise((resolve) => {
    const look = () => {
      // Without an encoding the chunks are buffers.
      const chunk = readable.read() as Buffer | null;
      if (chunk === null && !readable.readableEnded && !readable.destroyed) return;
      readable.off("readable", look);
      readable.off("close", look);
      resolve(chunk);
    };
    readable.on("readable", look);
    readable.on("close", look);
  });
}
