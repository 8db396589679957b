/**
 * A program in a container over one connection of its own: exec create, exec start, and the exit code.
 *
 * The exit code is not part of the connection. It comes from the engine's record of the program when the stream
 * ends, or from its event when children hold the stream open. Whatever happens to the connection, the container
 * or the engine, `ended` settles.
 */

import { type Duplex, Writable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { isMoorageError, MoorageError, toMoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { ShellStream, StreamEnd, StreamRequest } from "../shell/stream.ts";
import type { DockerClient } from "./client.ts";
import { Demultiplexer, type SourceEnd } from "./demux.ts";
import type { ContainerLoss, ContainerWatch } from "./watch.ts";

export interface ExecTarget {
  readonly client: DockerClient;
  readonly containerId: string;
  /** For messages. */
  readonly name: string;
  readonly watch: ContainerWatch;
  /** Called when a program has said something. */
  readonly onOutput?: () => void;
}

export interface ExecOptions {
  /** @default the container's own user */
  readonly user?: string;
  /** Whether it gets a terminal; then the stream is raw. @default false */
  readonly tty?: boolean;
}

/** A write this long after the last one first lets waiting news in, milliseconds. */
const NEWS_MS = 2;
/** After a broken connection the program's end is waited for this long, milliseconds. */
const BROKEN_MS = 500;
/** A pause this soon after a write may have come before it, milliseconds. */
const PAUSE_RACE_MS = 1_000;

/**
 * Starts a program. Resolves when the engine has taken it over; a program that could not be started is told by
 * `ended`.
 *
 * @throws {MoorageError} CONTAINER_MISSING, CONTAINER_PAUSED, DOCKER_*, ABORTED, ENVIRONMENT_UNAVAILABLE
 */
export async function openExec(
  target: ExecTarget,
  request: StreamRequest,
  options: ExecOptions = {},
): Promise<ShellStream> {
  const { client, containerId, name } = target;
  const { user, tty = false } = options;
  const action = `start a program in container "${name}"`;
  const call = { container: name, abortSignal: request.abortSignal };
  const exec = await client.call(
    action,
    (docker, abortSignal) =>
      docker.getContainer(containerId).exec({
        AttachStdin: true,
        AttachStdout: true,
        AttachStderr: true,
        Tty: tty,
        Cmd: [...request.argv],
        Env: Object.entries(request.env).map(([key, value]) => `${key}=${value}`),
        // The root folder is the only one that nobody can remove.
        WorkingDir: "/",
        ...(user !== undefined && { User: user }),
        abortSignal,
      }),
    call,
  );
  const duplex = await client.call(
    action,
    (_docker, abortSignal) => exec.start({ hijack: true, stdin: true, Detach: false, Tty: tty, abortSignal }),
    call,
  );
  return new ExecStream(target, exec.id, duplex, request.argv, tty);
}

class ExecStream implements ShellStream {
  readonly stdin: Writable;
  readonly ended: Promise<StreamEnd>;
  readonly #target: ExecTarget;
  readonly #execId: string;
  readonly #duplex: Duplex;
  readonly #argv: readonly string[];
  readonly #demux: Demultiplexer;
  readonly #unlisten: () => void;
  #settle: (end: StreamEnd) => void = () => {};
  #settled = false;
  /** Whether the last bytes written were never sent. */
  #undelivered = false;
  /** Whether the connection has ended, while the exit code is still asked for. */
  #sourceOver = false;
  #lastWriteAt = Number.NEGATIVE_INFINITY;
  /** Bytes that the connection was given and did not take yet. */
  #givenBytes = 0;
  /** When the container had ended, as it was asked after; null when that is not known. */
  #lostAt: number | null = null;
  #pausedTimer: NodeJS.Timeout | undefined;
  #onUnpaused: (() => void) | null = null;

  constructor(target: ExecTarget, execId: string, duplex: Duplex, argv: readonly string[], tty: boolean) {
    this.#target = target;
    this.#execId = execId;
    this.#duplex = duplex;
    this.#argv = argv;
    this.ended = new Promise((resolve) => {
      this.#settle = resolve;
    });
    tune(duplex);
    this.#demux = new Demultiplexer(duplex, { tty, onFirstBytes: () => target.onOutput?.() });
    this.stdin = new Writable({
      write: (chunk: Buffer, _encoding, done) => this.#writeAfterNews(chunk, done),
      final: (done) => {
        endWriting(duplex);
        done();
      },
    });
    this.stdin.on("error", () => {}); // `ended` tells
    this.#unlisten = target.watch.listen(
      {
        execEnded: (exitCode) => {
          this.#execEnded(exitCode).catch((error) => this.#lose(toMoorageError(error)));
        },
        paused: () => {
          if (performance.now() - this.#lastWriteAt < PAUSE_RACE_MS) this.#awaitUnpause(null);
        },
        unpaused: () => this.#unpaused(),
        gone: (loss) => void this.#containerGone(loss),
      },
      execId,
    );
    void this.#demux.ended.then((end) => this.#sourceEnded(end));
  }

  get stdout() {
    return this.#demux.stdout;
  }

  get stderr() {
    return this.#demux.stderr;
  }

  async close(): Promise<void> {
    this.#end({ exitCode: null, signal: null, lost: null });
    this.stdin.destroy();
    await this.#disconnect();
    this.stdout.destroy();
    this.stderr.destroy();
  }

  /**
   * After a silence, news of the container's end or pause may wait to be read; it is read before anything is sent,
   * so that bytes which nobody will take are known to be undelivered.
   */
  #writeAfterNews(chunk: Buffer, done: () => void): void {
    if (performance.now() - this.#lastWriteAt < NEWS_MS) this.#write(chunk, done);
    // Sockets are looked at between two rounds of the event loop.
    else setImmediate(() => setImmediate(() => this.#write(chunk, done)));
  }

  #write(chunk: Buffer, done: () => void): void {
    const duplex = this.#duplex;
    const { loss, paused } = this.#target.watch;
    if (loss) this.#undelivered = true;
    if (loss) this.#lose(this.#lossError(loss));
    if (this.#settled || this.#sourceOver || duplex.destroyed || !duplex.writable) {
      this.#undelivered = true;
      done();
      return;
    }
    if (paused) {
      this.#undelivered = true;
      this.#awaitUnpause(() => this.#write(chunk, done));
      return;
    }
    this.#undelivered = false;
    this.#lastWriteAt = performance.now();
    this.#givenBytes = chunk.length;
    const go = () => {
      duplex.off("drain", go);
      duplex.off("close", go);
      this.#givenBytes = 0;
      done();
    };
    if (duplex.write(chunk)) {
      go();
      return;
    }
    duplex.on("drain", go);
    duplex.on("close", go);
  }

  /** Holds a write back, so that a paused container never runs later what was refused meanwhile. */
  #awaitUnpause(then: (() => void) | null): void {
    this.#onUnpaused = then ?? this.#onUnpaused;
    this.#pausedTimer ??= setTimeout(() => {
      const text = `Cannot go on in container "${this.#target.name}": it is paused`;
      this.#lose(new MoorageError("CONTAINER_PAUSED", text, this.#about()));
    }, limits.dockerPausedMs);
  }

  #unpaused(): void {
    clearTimeout(this.#pausedTimer);
    this.#pausedTimer = undefined;
    const then = this.#onUnpaused;
    this.#onUnpaused = null;
    then?.();
  }

  async #execEnded(exitCode: number): Promise<void> {
    // The stream's own end usually comes along with the event, and then brings the last bytes.
    const streamEnded = this.#demux.ended.then(() => true);
    if (await Promise.race([streamEnded, delay(limits.drainMs, false)])) return;
    if (!Number.isNaN(exitCode)) await this.#endOrLose(exitCode);
  }

  async #containerGone(loss: ContainerLoss): Promise<void> {
    // A program that ended just before is told as ended.
    await delay(limits.drainMs);
    // For its time; that it is lost is known, and an engine that does not answer says nothing else.
    await this.#askLoss().catch(() => null);
    this.#lose(this.#lossError(loss));
  }

  async #sourceEnded(end: SourceEnd): Promise<void> {
    this.#sourceOver = true;
    try {
      const state = this.#settled ? null : await this.#exitState(end);
      const isReport = state !== null && end.engineText !== null && state.exitCode !== 0 && !state.pid;
      this.#demux.settleReport(isReport);
      if (state === null || this.#settled) return;
      if (isReport) return this.#startFailed(end.engineText ?? "", state.exitCode);
      if (end.broken) return this.#lose(this.#unknown(end.broken));
      await this.#endOrLose(state.exitCode);
    } catch (error) {
      this.#demux.settleReport(false);
      this.#lose(toMoorageError(error));
    }
  }

  /** A container's death kills its programs with the same signal as anyone would. */
  async #endOrLose(exitCode: number): Promise<void> {
    if (exitCode === 137) {
      for (let look = 0; look < 2; look += 1) {
        const asked = await this.#askLoss();
        const loss = this.#target.watch.loss ?? asked;
        if (loss) return this.#lose(this.#lossError(loss));
        if (look === 0) await delay(limits.drainMs);
      }
    }
    this.#end({ exitCode, signal: null, lost: null });
  }

  async #askLoss(): Promise<ContainerLoss | null> {
    const { client, containerId, name, watch } = this.#target;
    try {
      const { State } = await client.call(`inspect container "${name}"`, (docker, abortSignal) =>
        docker.getContainer(containerId).inspect({ abortSignal }),
      );
      if (State.Running && !watch.loss) return null;
      // The event's own time can be later than what the container's users are told.
      this.#lostAt = watch.localTime(Date.parse(State.FinishedAt));
      return State.Running ? null : "stopped";
    } catch (error) {
      if (isMoorageError(error, "CONTAINER_MISSING")) return "removed";
      throw error;
    }
  }

  /** The engine's record may lag behind the stream; a number is waited for, and never made up. */
  async #exitState(end: SourceEnd): Promise<{ exitCode: number; pid: number }> {
    const { client, name } = this.#target;
    // After a clean end the record only lags; after a break the program most likely runs on.
    const patienceMs = end.broken ? BROKEN_MS : limits.dockerExitCodeMs;
    const deadline = performance.now() + patienceMs;
    for (let waitMs = 5; ; waitMs = Math.min(200, waitMs * 2)) {
      let state: { Running: boolean; ExitCode: number | null; Pid: number };
      try {
        state = await client.call(
          `learn how a program in container "${name}" ended`,
          (docker, abortSignal) => docker.getExec(this.#execId).inspect({ abortSignal }),
          { timeoutMs: limits.dockerExitCodeMs, container: name },
        );
      } catch (error) {
        const loss = this.#target.watch.loss ?? (await this.#askLoss());
        if (loss) throw this.#lossError(loss);
        // A container that lives while its program is forgotten: the engine was started anew.
        throw this.#unknown(error instanceof Error ? error.message : String(error), error);
      }
      if (!state.Running && typeof state.ExitCode === "number") {
        return { exitCode: state.ExitCode, pid: state.Pid };
      }
      if (this.#settled) return { exitCode: 0, pid: 1 };
      if (performance.now() > deadline) {
        throw this.#unknown(end.broken ?? "the engine gave no exit code in time");
      }
      await delay(waitMs);
    }
  }

  #startFailed(text: string, exitCode: number): void {
    const program = this.#argv[0] ?? "";
    const missing = /executable file not found|no such file or directory|permission denied/i.test(text);
    const aboutProgram =
      missing && text.includes(`"${program}"`) && !/chdir to cwd|transport endpoint/.test(text);
    const message = `Cannot start "${program}" in container "${this.#target.name}": ${text}`;
    if (aboutProgram && !/(^|\/)(ba|da|a)?sh$/.test(program)) {
      this.#end({ exitCode, signal: null, lost: null });
    } else {
      const code = aboutProgram ? "SHELL_MISSING" : "ENVIRONMENT_LOST";
      this.#lose(new MoorageError(code, message, this.#about()));
    }
  }

  #lossError(loss: ContainerLoss): MoorageError {
    const lostAt = Math.min(
      ...[this.#lostAt, this.#target.watch.lostAt].map((at) => at ?? Number.POSITIVE_INFINITY),
    );
    // Its news came too late to hold the write back, but nobody was there to take it.
    if (this.#lastWriteAt > lostAt) this.#undelivered = true;
    const text = `Container "${this.#target.name}" was ${loss} while a program ran in it`;
    return new MoorageError("ENVIRONMENT_LOST", text, this.#about());
  }

  #unknown(text: string, cause?: unknown): MoorageError {
    const message = `The connection to a program in container "${this.#target.name}" broke: ${text}`;
    return new MoorageError("EXECUTION_UNKNOWN", message, { ...this.#about(), cause });
  }

  #about() {
    // What waits behind the bytes that the connection was given was never sent either.
    const undelivered = this.#undelivered || this.stdin.writableLength > this.#givenBytes;
    return { details: { container: this.#target.containerId, ...(undelivered && { undelivered }) } };
  }

  #lose(error: MoorageError): void {
    if (this.#settled) return;
    this.#end({ exitCode: null, signal: null, lost: error });
    void this.#disconnect();
  }

  #end(end: StreamEnd): void {
    if (this.#settled) return;
    this.#settled = true;
    clearTimeout(this.#pausedTimer);
    this.#unlisten();
    this.#settle(end);
    // A write that was held back has nowhere to go; its caller goes on.
    this.#unpaused();
  }

  async #disconnect(): Promise<void> {
    if (this.#duplex.destroyed) return;
    const closed = new Promise<void>((resolve) => this.#duplex.once("close", () => resolve()));
    this.#duplex.destroy();
    // The library's stand-in for a socket never says that it is closed.
    await Promise.race([closed, delay(limits.drainMs)]);
  }
}

/** No waiting for more bytes to send, and a peer that vanished is noticed. */
function tune(duplex: Duplex): void {
  const socket = socketOf(duplex);
  if ("setNoDelay" in socket && typeof socket.setNoDelay === "function") socket.setNoDelay(true);
  if ("setKeepAlive" in socket && typeof socket.setKeepAlive === "function")
    socket.setKeepAlive(true, 15_000);
}

/** Ends our side only. The library's stand-in for engines that answer 200 would cut off the other side too. */
function endWriting(duplex: Duplex): void {
  const socket = socketOf(duplex);
  if (!socket.destroyed && socket.writable) socket.end();
}

/** The library gives the socket itself after an upgrade, and a wrapper around request and response otherwise. */
function socketOf(duplex: Duplex): Duplex {
  const request: unknown = "req" in duplex ? duplex.req : null;
  if (typeof request === "object" && request !== null && "socket" in request && request.socket) {
    return request.socket as Duplex; // a request's socket is one
  }
  return duplex;
}
