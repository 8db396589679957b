/** A machine over SSH as a place for shells: connected to, lost and come back to, cleaned up and left. */
import { randomBytes } from "node:crypto";
import { isMoorageError, MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { Capability, EnvironmentProgress, Health } from "../base.ts";
import type { Recovery, ShellBackend } from "../shell/backend.ts";
import type { ShellStream, StreamRequest } from "../shell/stream.ts";
import { WORKER_MARKER } from "../shell/worker.ts";
import { LOGIN_COMMAND, startLine } from "./bootstrap.ts";
import { channelStream } from "./channel-stream.ts";
import { type Route, resolveRoute } from "./config.ts";
import { Connection } from "./connection.ts";
import { Connections } from "./connections.ts";
import { probeHost } from "./health.ts";
import { endLeft } from "./left.ts";
import { findWorkspace } from "./probe.ts";
import { readOrphans, removeRecord, writeRecord } from "./records.ts";
import { checkSshOptions, type SshOptions } from "./settings.ts";

const CAPABILITIES: ReadonlySet<Capability> = new Set<Capability>(["pty", "ports", "reattach"]);
/** First pause between two attempts to come back, doubled each time, milliseconds. */
const RECONNECT_PAUSE_MS = 250;

/** Under what the environment is recorded; without an id only the orphans of others are looked for. */
export interface SshRecording {
  readonly stateDir: string;
  readonly id?: string;
  readonly keep?: boolean;
  /** Ids of kept environments of dead owners that a start ends too. @default none */
  readonly endKept?: readonly string[];
}

export class SshBackend implements ShellBackend {
  readonly name = "ssh";
  readonly isolation = "none";
  readonly capabilities = CAPABILITIES;
  readonly exposedHostPaths: readonly string[] = [];
  readonly #options: SshOptions;
  readonly #recording: SshRecording | null;
  readonly #connections: Connections;
  #route: Route | null = null;
  #workspace: string;
  #onProgress: (progress: EnvironmentProgress) => void = () => {};
  #stopping = new AbortController();
  /** A loss that no caller has been told of. */
  #lost: MoorageError | null = null;
  /** Markers of shells whose connection broke, and whose commands may run on. */
  readonly #left = new Set<string>();
  /** Why the last attempt to connect failed; null when it did not. */
  #failure: MoorageError | null = null;

  constructor(options: SshOptions, recording: SshRecording | null = null) {
    checkSshOptions(options);
    this.#options = options;
    this.#recording = recording;
    this.#workspace = options.workspace ?? "~";
    this.#connections = new Connections({
      connect: () => this.#connect(),
      ...(options.maxConnections === undefined ? {} : { max: options.maxConnections }),
      onLost: (lost) => {
        this.#lost ??= lost;
      },
    });
  }

  get description(): string {
    const { host, user, port } = this.#options;
    const target = this.#route?.hops.at(-1);
    return target ? account(target) : `${user ? `${user}@` : ""}${host}${port ? `:${port}` : ""}`;
  }

  get workspace(): string {
    return this.#workspace;
  }

  async start(onProgress: (progress: EnvironmentProgress) => void): Promise<void> {
    this.#onProgress = onProgress;
    this.#stopping = new AbortController();
    this.#connections.reopen();
    this.#lost = null;
    this.#route = this.#resolve();
    for (const note of this.#route.notes) onProgress({ message: note });
    onProgress({ message: `Connecting to ${this.description}` });
    try {
      const opened = await this.#connections.open({ command: LOGIN_COMMAND, reserved: true });
      this.#workspace = await findWorkspace(opened, this.description, this.#options.workspace ?? "~");
      await this.#endOrphans();
      await this.#record();
    } catch (error) {
      await this.#connections.close();
      throw error;
    }
  }

  async stop({ keep }: { readonly keep: boolean }): Promise<void> {
    this.#stopping.abort();
    try {
      if (this.#left.size > 0) await this.#endLeft();
      const { stateDir, id } = this.#recording ?? {};
      if (stateDir !== undefined && id !== undefined && !keep) await removeRecord(stateDir, id);
    } catch (error) {
      throw new MoorageError(
        "CLEANUP_FAILED",
        `Cannot end what a lost connection left running on ${this.description}: ${error instanceof Error ? error.message : String(error)}`,
        { cause: error, details: { markers: [...this.#left] } },
      );
    } finally {
      await this.#connections.close();
    }
  }

  async openStream(request: StreamRequest): Promise<ShellStream> {
    const isUser = request.purpose === "user";
    // The caller must hear of a loss, and what it left be ended, before a command runs again.
    if (isUser && this.#lost) throw this.#lost;
    const nonce = randomBytes(16).toString("hex");
    const { channel, connection } = await this.#connections.open({
      command: LOGIN_COMMAND,
      reserved: !isUser,
      ...(request.abortSignal && { abortSignal: request.abortSignal }),
    });
    const stream = channelStream(channel, { connection, account: this.description, nonce });
    const marker = request.env[WORKER_MARKER];
    if (isUser && marker !== undefined) {
      void stream.ended.then(({ lost }) => {
        if (isMoorageError(lost, "SSH_UNREACHABLE")) this.#left.add(`${WORKER_MARKER}=${marker}`);
      });
    }
    channel.write(startLine(nonce, request.argv, request.env), "latin1");
    return stream;
  }

  async health(): Promise<Health> {
    const [connection] = this.#connections.alive;
    if (connection) {
      if (await connection.ping(limits.probeTimeoutMs - 200))
        return { healthy: true, detail: this.description };
      return {
        healthy: false,
        code: "SSH_UNREACHABLE",
        reason: `${this.description} does not answer on its connection`,
      };
    }
    try {
      // Also right after the configuration was changed.
      const route = this.#resolve();
      return await probeHost(route, this.#failure, () => this.#connect(route));
    } catch (error) {
      if (!isMoorageError(error)) throw error;
      return { healthy: false, code: error.code, reason: error.message, suggestion: error.suggestion };
    }
  }

  async recover(): Promise<Recovery | null> {
    const lost = this.#lost;
    if (!lost) return null;
    await this.#reconnect();
    const found = this.#left.size > 0 ? await this.#endLeft() : null;
    this.#lost = null;
    const parts = [
      `${lost.message}; it was made again, with the session's folder and variables as they were before`,
      ...(found && found.ended > 0
        ? [
            `${found.ended} ${found.ended === 1 ? "process" : "processes"} that commands had left running were ended`,
          ]
        : []),
      "background processes were not touched",
    ];
    return { note: parts.join("; ") };
  }

  #resolve(): Route {
    const { host, user = null, port = null, configFile } = this.#options;
    const { identityFiles, agent, knownHostsFiles, knownHosts } = this.#options;
    return resolveRoute(
      { host, user, port },
      {
        ...(identityFiles && { identityFiles }),
        ...(agent !== undefined && { agent }),
        ...(knownHostsFiles && { knownHostsFiles }),
        ...(knownHosts && { hostKeyPolicy: knownHosts }),
      },
      configFile,
    );
  }

  async #connect(route = this.#route ?? this.#resolve()): Promise<Connection> {
    const { password = null, passphrase = null } = this.#options;
    try {
      const connection = await Connection.open(route, {
        secrets: { password, passphrase },
        onNote: (message) => this.#onProgress({ message }),
      });
      this.#failure = null;
      return connection;
    } catch (error) {
      this.#failure = isMoorageError(error) ? error : null;
      throw error;
    }
  }

  /** @throws {MoorageError} the last attempt's failure; at once when waiting cannot help */
  async #reconnect(): Promise<void> {
    const deadline = performance.now() + limits.sshReconnectMs;
    for (let pauseMs = RECONNECT_PAUSE_MS; ; pauseMs *= 2) {
      try {
        await this.#connections.ensure();
        return;
      } catch (error) {
        const isWorthWaiting = isMoorageError(error) && error.retryable && !this.#stopping.signal.aborted;
        if (!isWorthWaiting || performance.now() + pauseMs > deadline) throw error;
        await new Promise((resolve) => {
          setTimeout(resolve, pauseMs);
        });
      }
    }
  }

  /** @throws {MoorageError} when it cannot be done, or something survived */
  async #endLeft(): Promise<{ readonly ended: number }> {
    const markers = [...this.#left];
    const ended = await this.#endMarked(markers);
    for (const marker of markers) this.#left.delete(marker);
    return { ended };
  }

  /** Ends what environments of dead owners left on this host. One that cannot be ended is kept on record. */
  async #endOrphans(): Promise<void> {
    if (!this.#recording) return;
    const { stateDir, endKept } = this.#recording;
    const { host, user = null, port = null } = this.#options;
    const here = (await readOrphans(stateDir, endKept)).filter(
      (record) => record.host === host && record.user === user && record.port === port,
    );
    if (here.length === 0) return;
    const ended = await this.#endMarked(here.map(({ id }) => `${WORKER_MARKER}=${id}.`));
    if (ended > 0) this.#onProgress({ message: `Ended ${ended} processes that an earlier owner had left` });
    for (const { id } of here) await removeRecord(stateDir, id);
  }

  async #record(): Promise<void> {
    const { stateDir, id, keep = false } = this.#recording ?? {};
    if (stateDir === undefined || id === undefined) return;
    const { host, user = null, port = null } = this.#options;
    const createdAt = new Date().toISOString();
    await writeRecord(stateDir, { id, host, user, port, workspace: this.#workspace, createdAt, keep });
  }

  async #endMarked(markers: readonly string[]): Promise<number> {
    const { ended, survivors } = await endLeft(markers, (argv, env) =>
      this.openStream({ argv, env, purpose: "system" }),
    );
    if (survivors.length > 0)
      throw new MoorageError(
        "CLEANUP_FAILED",
        `Cannot end ${survivors.map(({ pid, command }) => `${pid} (${command})`).join(", ")} on ${this.description}`,
      );
    return ended.length;
  }
}

function account({
  user,
  name,
  port,
}: {
  readonly user: string;
  readonly name: string;
  readonly port: number;
}): string {
  return `${user}@${name}${port === 22 ? "" : `:${port}`}`;
}
