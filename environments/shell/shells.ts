/**
 * The shells of one environment, some for commands and some for our own scripts: opened on demand, and anew when the
 * place behind them was lost and has been come back to.
 */
import { randomBytes } from "node:crypto";
import { isMoorageError, MoorageError, toMoorageError } from "../../src/errors.ts";
import type { ScriptBackend, ShellBackend } from "./backend.ts";
import { FILE_LIBRARY } from "./files/library.ts";
import { RENAME_ASSISTANT, RENAME_ASSISTANT_END } from "./files/rename-assistant.ts";
import { OneShotShells } from "./one-shot.ts";
import type { ShellKind } from "./phrases.ts";
import { WorkerPool } from "./pool.ts";
import { lastWill } from "./processes/process-tree.ts";
import { ResidentWorker } from "./resident.ts";
import { type CallWorker, WORKER_MARKER } from "./worker.ts";

const IDLE_USER_SHELLS = 8;
const IDLE_SYSTEM_SHELLS = 2;

export interface ShellsOptions {
  readonly environmentId: string;
  readonly backend: ShellBackend | ScriptBackend;
  readonly shell: ShellKind | "auto";
  /** Brings the environment up. */
  readonly start: () => Promise<void>;
  /** Whether it was stopped: our own scripts still clean up then, commands are refused. */
  readonly isStopped: () => boolean;
  readonly stopping: AbortSignal;
  /** The place is a new one. */
  readonly onRecovered: () => void;
}

type Purpose = "user" | "system";

export class Shells {
  /** For commands. */
  readonly users: WorkerPool;
  /** For our own scripts. */
  readonly systems: WorkerPool;
  /**
   * Variable that marks what a worker started. Where we set all variables it is our own; where another environment
   * may have us inside, and marks its processes too, it is nobody else's.
   */
  readonly markerName: string;
  readonly #options: ShellsOptions;
  readonly #prefix: string;
  /** Makes the workers where no stream can be held open. */
  #oneShots: OneShotShells | null = null;
  /** Told with the next result of a command: what a start or a request of our own met. */
  readonly #notes: string[] = [];
  #recovering: Promise<string | null> | null = null;
  /** Told to every call once; a session learns of a loss that another call met. */
  #generation = 0;

  constructor(options: ShellsOptions) {
    this.#options = options;
    this.#prefix = `${options.environmentId}.${randomBytes(4).toString("hex")}`;
    this.markerName =
      "openStream" in options.backend ? WORKER_MARKER : `${WORKER_MARKER}_${randomBytes(4).toString("hex")}`;
    this.users = this.#makePool("user");
    this.systems = this.#makePool("system");
  }

  /** Prefix of the ids of all shells for commands that were ever opened. */
  get everyUser(): string {
    return `${this.#prefix}.u`;
  }

  /**
   * The first one. A profile may end the place that it is read in: one that comes back is come back to without it.
   *
   * @throws {MoorageError} what the pool, or the backend that recovers, throws
   */
  async acquireFirst(): Promise<CallWorker> {
    try {
      return await this.users.acquire();
    } catch (error) {
      if (this.#options.isStopped() || !isMoorageError(error, "ENVIRONMENT_LOST")) throw error;
      const note = await this.#recover(error);
      if (note === null) throw error;
      this.keepNotes([note]);
      return await this.users.acquire();
    }
  }

  /**
   * Brings the place up, again if it was lost, and takes a shell.
   *
   * @throws {MoorageError} ENVIRONMENT_STOPPED, or what the start, the pool or the backend that recovers throws
   */
  async acquire(
    purpose: Purpose,
    wanted: { readonly anyShell: boolean } = { anyShell: false },
  ): Promise<{ worker: CallWorker; notes: string[] }> {
    const { isStopped, start } = this.#options;
    // While stopping, our own scripts still clean up.
    if (isStopped() && purpose === "user") throw this.stoppedError();
    if (!isStopped()) await start();
    const pool = purpose === "user" ? this.users : this.systems;
    const generation = this.#generation;
    try {
      return { worker: await pool.acquire(wanted), notes: [] };
    } catch (error) {
      if (isStopped()) throw error;
      const known = toMoorageError(error, "ENVIRONMENT_UNAVAILABLE", "Cannot open a shell");
      const note = this.#generation === generation ? await this.#recover(known) : null;
      if (note === null && this.#generation === generation) throw known;
      const notes = note ? [note] : [];
      if (purpose === "system") this.keepNotes(notes);
      try {
        return { worker: await pool.acquire(), notes };
      } catch (again) {
        // Whoever succeeds is told of the loss.
        this.keepNotes(notes);
        throw again;
      }
    }
  }

  /**
   * Tries a request of ours again where it failed because the place is full of processes, say, and was brought back.
   *
   * @throws what the request throws
   */
  async afterRecovery<Result>(request: () => Promise<Result>): Promise<Result> {
    try {
      return await request();
    } catch (error) {
      if (this.#options.isStopped() || !isMoorageError(error)) throw error;
      const generation = this.#generation;
      const note = await this.#recover(error);
      if (note === null && this.#generation === generation) throw error;
      if (note !== null) this.keepNotes([note]);
      return await request();
    }
  }

  /** For the next result of a command, once, though several of our own requests met the same. */
  keepNotes(notes: readonly string[]): void {
    this.#notes.push(...notes.filter((note) => !this.#notes.includes(note)));
  }

  takeNotes(): string[] {
    return this.#notes.splice(0);
  }

  stoppedError(): MoorageError {
    const { environmentId } = this.#options;
    return new MoorageError("ENVIRONMENT_STOPPED", `Cannot run: environment ${environmentId} was stopped`);
  }

  async close(): Promise<void> {
    await this.users.close();
    await this.systems.close();
  }

  /** Of the shells for commands since the place was last come back to. */
  get #userPrefix(): string {
    return `${this.everyUser}${this.#generation}`;
  }

  #recover(error: MoorageError): Promise<string | null> {
    this.#recovering ??= (async () => {
      const recovery = await this.#options.backend.recover(error);
      if (!recovery) return null;
      this.#generation += 1;
      this.#oneShots?.reset();
      this.users.reset();
      this.systems.reset();
      this.#options.onRecovered();
      return recovery.note;
    })().finally(() => {
      this.#recovering = null;
    });
    return this.#recovering;
  }

  #makePool(purpose: Purpose): WorkerPool {
    const { backend } = this.#options;
    return new WorkerPool({
      prefix: () => (purpose === "user" ? this.#userPrefix : `${this.#prefix}.s`),
      login: purpose === "user" && (backend.readsLogin ?? true) && !("readLogin" in backend),
      open: (id, login) => this.#open(purpose, id, login),
      maxIdle: purpose === "user" ? IDLE_USER_SHELLS : IDLE_SYSTEM_SHELLS,
    });
  }

  #open(purpose: Purpose, id: string, login: boolean): Promise<CallWorker> {
    const { backend, shell, stopping } = this.#options;
    if (!("openStream" in backend)) {
      this.#oneShots ??= new OneShotShells({
        shell,
        login: backend.readsLogin ?? true,
        markerName: this.markerName,
        run: (request) => backend.runScript(request),
      });
      return this.#oneShots.open(id, purpose);
    }
    return ResidentWorker.open({
      id,
      login,
      shell,
      library: "",
      known: backend.knownShells,
      // When its stream ends unasked, the orchestrator is gone or out of reach, and commands have nobody to answer to.
      ...(purpose === "system" && {
        library: FILE_LIBRARY + RENAME_ASSISTANT,
        atClose: RENAME_ASSISTANT_END,
        // That of a shell whose stream ends late must not reach those that were opened after its loss.
        atLoss: lastWill(`${WORKER_MARKER}=${this.#userPrefix}.`),
      }),
      // Our own scripts still clean up while the environment stops.
      open: (argv, env, greeting) =>
        backend.openStream({
          argv,
          env,
          greeting,
          purpose,
          ...(purpose === "user" && { abortSignal: stopping }),
        }),
    });
  }
}
