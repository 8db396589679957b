/**
 * The connections of one environment to its host. Usually there is one; a further one is opened when the server
 * allows no more sessions on those there are, as another `ssh` would. When none may be added, who wants a channel
 * waits for one.
 */
import type { ClientChannel } from "ssh2";
import { isMoorageError, MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { ChannelsExhausted, CommandRefused, type Connection } from "./connection.ts";

export interface ConnectionsOptions {
  readonly connect: () => Promise<Connection>;
  /** @default limits.sshMaxConnections */
  readonly max?: number;
  /** Called when a connection breaks that we did not close. */
  readonly onLost: (lost: MoorageError) => void;
}

export interface ChannelRequest {
  readonly command: string;
  /**
   * Whether it may use the last connection. User commands may not, so that our own scripts, which end such commands,
   * never wait for them.
   */
  readonly reserved: boolean;
  readonly abortSignal?: AbortSignal;
}

export interface OpenedChannel {
  readonly channel: ClientChannel;
  readonly connection: Connection;
}

/** Tries of a server that has no room though it should: it may not have noticed yet that a session ended. */
const REOPEN_TRIES = 5;
const REOPEN_PAUSE_MS = 40;

export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #max: number;
  readonly #all: Connection[] = [];
  readonly #waiting = new Set<() => void>();
  readonly #timers = new Set<NodeJS.Timeout>();
  #connecting: Promise<Connection> | null = null;
  #growAgainAt = 0;
  #closed = false;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
    this.#max = options.max ?? limits.sshMaxConnections;
  }

  get alive(): readonly Connection[] {
    return this.#all;
  }

  /** Makes sure that there is a connection. @throws {MoorageError} SSH_* */
  async ensure(): Promise<Connection> {
    return this.#all[0] ?? (await this.#grow());
  }

  /** @throws {MoorageError} SSH_*, ENVIRONMENT_STOPPED when closed, or aborted while it waits */
  async open(request: ChannelRequest): Promise<OpenedChannel> {
    for (;;) {
      this.#checkOpen();
      const connection = await this.#pick(request);
      if (!connection) {
        await this.#change(request.abortSignal);
        this.#checkOpen(request.abortSignal);
        continue;
      }
      const channel = await this.#tryOpen(connection, request.command);
      if (channel) return { channel, connection };
    }
  }

  /** Closes all. Idempotent; it can be used again after `reopen`. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
    this.#changed();
    // One that is being made is closed by who makes it.
    await this.#connecting?.catch(() => undefined);
    await Promise.all([...this.#all].map((connection) => connection.close()));
  }

  reopen(): void {
    this.#closed = false;
  }

  #checkOpen(abortSignal?: AbortSignal): void {
    if (this.#closed || abortSignal?.aborted)
      throw new MoorageError("ENVIRONMENT_STOPPED", "Cannot open a shell: the environment was stopped");
  }

  /** A connection with room, a new one where that is allowed, or null: wait. */
  async #pick({ reserved }: ChannelRequest): Promise<Connection | null> {
    const allowed = reserved ? this.#max : Math.max(1, this.#max - 1);
    const found = this.#all.slice(0, allowed).find(({ hasRoom }) => hasRoom);
    if (found) return found;
    const mayGrow = this.#all.length < allowed && performance.now() >= this.#growAgainAt;
    if (!mayGrow && this.#all.length > 0) return null;
    try {
      return await this.#grow();
    } catch (error) {
      // Whoever has a channel will give it back; only without any is there nothing to wait for.
      if (this.#all.length === 0) throw error;
      this.#growAgainAt = performance.now() + limits.sshSessionRetryMs;
      this.#wakeIn(limits.sshSessionRetryMs);
      return null;
    }
  }

  /**
   * Tries again for a while what a server refuses that has not yet noticed the end of other sessions: nothing of ours
   * was sent before it agreed.
   *
   * @returns null when the server has no room there
   */
  async #tryOpen(connection: Connection, command: string): Promise<ClientChannel | null> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await connection.exec(command, () => this.#released(connection));
      } catch (error) {
        const isFinal = attempt >= REOPEN_TRIES;
        if (error instanceof CommandRefused) {
          if (isFinal) throw refused(connection, "the server runs no command", error);
        } else if (error instanceof ChannelsExhausted) {
          if (connection.channels > 0) {
            connection.room = Math.min(connection.room, connection.channels);
            this.#widenLater(connection);
            return null;
          }
          if (isFinal) throw refused(connection, "the server allows no session", error);
        } else if (isMoorageError(error, "SSH_UNREACHABLE") && this.#all.some(({ hasRoom }) => hasRoom)) {
          // Another connection lives where this one has just broken.
          return null;
        } else {
          throw error;
        }
      }
      await pause(REOPEN_PAUSE_MS * attempt);
    }
  }

  /** The limit that was met may have been a moment's: a session whose end the server had not noticed. */
  #widenLater(connection: Connection): void {
    this.#later(limits.sshSessionRetryMs, () => {
      connection.room = Math.min(connection.room + 1, connection.maxRoom);
      this.#changed();
    });
  }

  #grow(): Promise<Connection> {
    // One at a time: servers drop those who knock too often at once.
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = null;
    });
    return this.#connecting;
  }

  async #connect(): Promise<Connection> {
    const connection = await this.#options.connect();
    if (this.#closed) {
      await connection.close();
      throw new MoorageError("ENVIRONMENT_STOPPED", "Cannot connect: the environment was stopped");
    }
    this.#all.push(connection);
    connection.onGone(() => {
      this.#all.splice(this.#all.indexOf(connection), 1);
      if (connection.lost) this.#options.onLost(connection.lost);
      this.#changed();
    });
    this.#changed();
    return connection;
  }

  #released(connection: Connection): void {
    this.#changed();
    if (connection.channels > 0 || this.#all.length <= 1) return;
    this.#later(limits.sshIdleConnectionMs, () => {
      if (connection.channels === 0 && this.#all.length > 1) void connection.close();
    });
  }

  #wakeIn(ms: number): void {
    this.#later(ms, () => this.#changed());
  }

  #later(ms: number, action: () => void): void {
    if (this.#closed) return;
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      action();
    }, ms);
    timer.unref();
    this.#timers.add(timer);
  }

  #changed(): void {
    for (const wake of [...this.#waiting]) wake();
  }

  #change(abortSignal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        this.#waiting.delete(wake);
        abortSignal?.removeEventListener("abort", wake);
        resolve();
      };
      this.#waiting.add(wake);
      abortSignal?.addEventListener("abort", wake, { once: true });
    });
  }
}

function refused({ where }: Connection, reason: string, cause: Error): MoorageError {
  return new MoorageError(
    "SSH_SESSION_REFUSED",
    `Cannot open a shell on ${where}: ${reason} (${cause.message})`,
    {
      cause,
    },
  );
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
