/** One connection over all its hops: watched for signs of life, and asked for channels. */
import type { Client, ClientChannel } from "ssh2";
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { Route } from "./config.ts";
import { type Dialled, type DialOptions, dial, place } from "./dial.ts";

/** The server has no room for a further session on this connection at the moment. */
export class ChannelsExhausted extends Error {}

/** The server opened a session and did not run the command in it: for good, or as servers do in a rush of sessions. */
export class CommandRefused extends Error {}

/**
 * Releases of dropbear whose connection breaks off when one session's program ends while another session begins.
 *
 * @see https://github.com/mkj/dropbear/issues/321
 */
const ONE_BY_ONE = /^dropbear_20(?:22\.8[23]|24\.8[45])$/;

export class Connection {
  /** Channels that the server may still count: opening, open, and closing ones. */
  channels = 0;
  /** The most sessions to have at once. */
  readonly maxRoom: number;
  /** Sessions to have at once: fewer when the server was seen to allow fewer. */
  room: number;
  /** Settles when it is gone; null when we closed it. */
  readonly closed: Promise<MoorageError | null>;
  /** For messages. */
  readonly where: string;
  readonly #clients: readonly Client[];
  readonly #last: Dialled;
  #gone: MoorageError | "closed" | null = null;
  #cause: Error | null = null;
  #missed = 0;
  readonly #watch: NodeJS.Timeout;
  readonly #onGone = new Set<() => void>();

  private constructor(clients: readonly Client[], last: Dialled, where: string) {
    this.#clients = clients;
    this.#last = last;
    this.where = where;
    this.maxRoom = ONE_BY_ONE.test(last.software) ? 1 : limits.sshChannelsPerConnection;
    this.room = this.maxRoom;
    const { promise, resolve } = Promise.withResolvers<MoorageError | null>();
    this.closed = promise;
    const { client, transport } = last;
    client.on("error", (error) => {
      this.#cause = error;
    });
    const end = () => {
      if (this.#gone === null)
        this.#gone = this.#lostError(this.#cause?.message ?? "the other side closed it");
      clearInterval(this.#watch);
      for (const each of [...clients].reverse()) each.destroy();
      resolve(this.lost);
      for (const listener of this.#onGone) listener();
      this.#onGone.clear();
    };
    client.once("close", end);
    // Counted in ticks, not in time: a machine that slept has missed one, not all of them.
    transport.on("data", () => {
      this.#missed = 0;
    });
    this.#watch = setInterval(() => {
      this.#missed += 1;
      if (this.#missed <= limits.sshKeepaliveMisses) return;
      this.#cause = new Error(`no sign of life for ${limits.sshKeepaliveMs * limits.sshKeepaliveMisses} ms`);
      // The close event of a transport may itself wait for the other side.
      transport.destroy();
      for (const each of clients) each.destroy();
      end();
    }, limits.sshKeepaliveMs);
  }

  /** @throws {MoorageError} SSH_* */
  static async open(route: Route, options: DialOptions): Promise<Connection> {
    const dialled: Dialled[] = [];
    try {
      for (const settings of route.hops) {
        dialled.push(await dial(settings, dialled.at(-1)?.client ?? null, options));
      }
    } catch (error) {
      for (const { client, transport } of dialled.reverse()) {
        client.destroy();
        transport.destroy();
      }
      throw error;
    }
    const last = dialled.at(-1);
    const target = route.hops.at(-1);
    if (!last || !target) throw new MoorageError("INTERNAL", "Cannot connect: the route has no hop");
    return new Connection(
      dialled.map(({ client }) => client),
      last,
      place(target),
    );
  }

  get alive(): boolean {
    return this.#gone === null;
  }

  /** Why it is gone; null while it lives, and when we closed it. */
  get lost(): MoorageError | null {
    return this.#gone === "closed" ? null : this.#gone;
  }

  get hasRoom(): boolean {
    return this.alive && this.channels < this.room;
  }

  /** See `Writes`. */
  get position(): number {
    return this.#last.writes.position;
  }

  /** Whether all up to this point may have reached the server; false is a proof that the last packet did not. */
  hasTaken(position: number): boolean {
    return this.#last.writes.hasTaken(position);
  }

  /** Calls once when it is gone, at once when it is already. @returns a way to take that back */
  onGone(listener: () => void): () => void {
    if (this.alive) this.#onGone.add(listener);
    else listener();
    return () => void this.#onGone.delete(listener);
  }

  /**
   * Starts a command line in the account's login shell, on a channel of its own.
   *
   * @param onClosed called when the server has let go of the channel
   * @throws {ChannelsExhausted} when the server has no room
   * @throws {CommandRefused} when it did not run the command
   * @throws {MoorageError} SSH_UNREACHABLE
   */
  async exec(command: string, onClosed: () => void): Promise<ClientChannel> {
    this.channels += 1;
    let counted = true;
    const release = () => {
      if (!counted) return;
      counted = false;
      this.channels -= 1;
      onClosed();
    };
    const { promise, resolve, reject } = Promise.withResolvers<ClientChannel>();
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      reject(this.#lostError(`no channel within ${limits.sshChannelTimeoutMs} ms`));
    }, limits.sshChannelTimeoutMs);
    try {
      this.#last.client.exec(command, (error, channel) => {
        if (error) {
          release();
          reject(this.lost ?? this.#refusal(error));
          return;
        }
        channel.once("close", release);
        if (late) channel.close();
        else resolve(channel);
      });
    } catch (error) {
      release();
      reject(this.lost ?? this.#lostError(error instanceof Error ? error.message : String(error)));
    }
    const forget = this.onGone(() => reject(this.lost ?? this.#lostError("it was closed")));
    try {
      return await promise;
    } finally {
      forget();
      clearTimeout(timer);
    }
  }

  /** Asks for a sign of life. @returns whether one came in time */
  ping(timeoutMs: number): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), timeoutMs);
      const answer = () => {
        clearTimeout(timer);
        resolve(this.alive);
      };
      try {
        // A wish that every server must answer and that changes nothing: to stop a forwarding that never was.
        this.#last.client.unforwardIn("moorage", 1, answer);
      } catch {
        answer();
      }
    });
  }

  /** Closes all hops. Idempotent. */
  async close(): Promise<void> {
    if (this.#gone === null) {
      this.#gone = "closed";
      clearInterval(this.#watch);
      for (const client of [...this.#clients].reverse()) client.end();
      const timer = setTimeout(() => {
        for (const client of this.#clients) client.destroy();
        this.#last.transport.destroy();
      }, 1_000);
      await this.closed;
      clearTimeout(timer);
    }
    await this.closed;
  }

  #refusal(error: Error): Error {
    return "reason" in error
      ? new ChannelsExhausted(error.message, { cause: error })
      : new CommandRefused(error.message, { cause: error });
  }

  #lostError(reason: string): MoorageError {
    return new MoorageError("SSH_UNREACHABLE", `The connection to ${this.where} was lost: ${reason}`, {
      ...(this.#cause === null ? {} : { cause: this.#cause }),
    });
  }
}
