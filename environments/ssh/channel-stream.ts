/** A channel as the stream of a program. */
import type { ClientChannel } from "ssh2";
import { MoorageError } from "../../src/errors.ts";
import type { ShellStream, StreamEnd } from "../shell/stream.ts";
import { isExpiry } from "./authenticate.ts";
import { readyMark } from "./bootstrap.ts";
import type { Connection } from "./connection.ts";

/** The channel's last bytes may come after the exit code, milliseconds. */
const TAIL_MS = 250;
/** A shell has this long to end with its input before its channel is closed, milliseconds. */
const EOF_MS = 1_000;
/** A server has this long to confirm that a channel is closed, milliseconds. */
const CLOSE_MS = 2_000;
const NOISE_CHARACTERS = 4_000;

export interface ChannelStreamOptions {
  readonly connection: Connection;
  /** For messages: `user@host`. */
  readonly account: string;
  readonly nonce: string;
}

/**
 * Until the login shell has handed over, what comes is noise of rc files or the server's reason why it does not;
 * when the channel ends before, that reason is what `ended` tells.
 */
export function channelStream(channel: ClientChannel, options: ChannelStreamOptions): ShellStream {
  const { connection } = options;
  const { promise: ended, resolve } = Promise.withResolvers<StreamEnd>();
  const handover = watchHandover(channel, readyMark(options.nonce));
  let exit: { readonly exitCode: number | null; readonly signal: string | null } | null = null;
  const settle = () => {
    forget();
    clearTimeout(tail);
    const lost = exit === null ? lossOf() : null;
    const refused =
      lost === null && !handover.done() ? refusal(options.account, exit?.exitCode, handover.noise()) : null;
    resolve({ exitCode: exit?.exitCode ?? null, signal: exit?.signal ?? null, lost: lost ?? refused });
  };
  const write = channel.write.bind(channel);
  let position = connection.position;
  channel.write = (chunk: string | Uint8Array, ...rest: unknown[]) => {
    const [encoding] = rest;
    // Of the library's signatures the callers of a stream use this one.
    const isFlowing = typeof encoding === "string" ? write(chunk, encoding as BufferEncoding) : write(chunk);
    position = connection.position;
    return isFlowing;
  };
  /** A loss before which the last bytes were not sent is told as such: what they asked for did not begin. */
  const lossOf = (): MoorageError | null => {
    const { lost } = connection;
    // What the server's window held back was not sent either.
    if (!lost || (channel.writableLength === 0 && connection.hasTaken(position))) return lost;
    return new MoorageError(lost.code, lost.message, { cause: lost, details: { undelivered: true } });
  };
  let tail: NodeJS.Timeout | undefined;
  const forget = connection.onGone(() => setImmediate(settle));
  channel.once("exit", (exitCode: number | null, signal?: string) => {
    exit = { exitCode, signal: signal ?? null };
    // Children of the program may hold the channel open.
    tail = setTimeout(settle, TAIL_MS);
  });
  const gone = Promise.withResolvers<void>();
  const closed = new Promise<void>((done) => {
    channel.once("close", () => {
      settle();
      done();
    });
  });
  // The end tells.
  channel.on("error", () => {});
  channel.stderr.on("error", () => {});
  return {
    stdin: channel,
    stdout: channel,
    stderr: channel.stderr,
    ended,
    close: async () => {
      if (connection.alive) {
        // What nobody reads any more must not keep the channel from ending.
        channel.resume();
        channel.stderr.resume();
        // A shell ends with its input, and the server then closes the channel itself. Closing it from here is left
        // for one that does not: some servers give the number away at once, and take our last words for another's.
        channel.end();
        if (!(await within(EOF_MS))) {
          channel.close();
          await within(CLOSE_MS);
        }
      }
      settle();
    },
  };

  async function within(ms: number): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<false>((done) => {
      timer = setTimeout(() => done(false), ms);
    });
    const stop = connection.onGone(() => gone.resolve());
    const isOver = await Promise.race(
      [closed, gone.promise].map((over) => over.then(() => true)).concat(late),
    );
    stop();
    clearTimeout(timer);
    return isOver;
  }
}

/** Reads both outputs until the mark comes, and keeps the last of what comes before. */
function watchHandover(channel: ClientChannel, mark: string) {
  let done = false;
  let noise = "";
  let errors = "";
  const keep = (text: string) => text.slice(-NOISE_CHARACTERS);
  const onOutput = (chunk: Buffer) => {
    noise = keep(noise + chunk.toString("utf8"));
  };
  const onError = (chunk: Buffer) => {
    const all = errors + chunk.toString("latin1");
    if (!all.includes(mark)) {
      errors = keep(all);
      onOutput(chunk);
      return;
    }
    done = true;
    channel.off("data", onOutput);
    channel.stderr.off("data", onError);
  };
  channel.on("data", onOutput);
  channel.stderr.on("data", onError);
  return { done: () => done, noise: () => noise.trim() };
}

function refusal(account: string, exitCode: number | null | undefined, said: string): MoorageError {
  const how = exitCode === null || exitCode === undefined ? "without an exit code" : `with code ${exitCode}`;
  const text = said === "" ? "it said nothing" : `it said ${JSON.stringify(said.slice(-1_000))}`;
  if (isExpiry(said))
    return new MoorageError(
      "SSH_PASSWORD_EXPIRED",
      `Cannot open a shell as ${account}: the server demands a new password first; ${text}`,
      { details: { said } },
    );
  return new MoorageError(
    "SSH_SESSION_REFUSED",
    `Cannot open a shell as ${account}: the login shell ended ${how} before it started ours; ${text}`,
    { details: { said, exitCode: exitCode ?? null } },
  );
}
