/**
 * Makes a whole environment of a backend: resident shells for sessions and stateless commands, a system shell for
 * our own scripts, files and background processes on top of it.
 */
import { randomBytes } from "node:crypto";
import { ERRORS, isMoorageError, MoorageError, toMoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import {
  BaseEnvironment,
  type Command,
  type CommonOptions,
  type EgressPolicy,
  type EnvironmentFiles,
  type EnvironmentInfo,
  type EnvironmentOutputs,
  type EnvironmentProcess,
  type EnvironmentProcesses,
  type EnvironmentTree,
  type ExecOptions,
  type ExecResult,
  type Health,
  type ProcessInfo,
  type ProcessOptions,
  type ShellSession,
} from "../base.ts";
import type { ScriptBackend, ShellBackend } from "./backend.ts";
import { checkCommand, checkOptions, checkVariables } from "./checks.ts";
import { parseExports } from "./exports.ts";
import { createFiles } from "./files/files.ts";
import type { WorkerFacts } from "./greeting.ts";
import { loginDifference, loginProblem } from "./login.ts";
import { OutputStore } from "./outputs.ts";
import type { ShellKind } from "./phrases.ts";
import { isPlain } from "./plain.ts";
import { endTree } from "./processes/process-tree.ts";
import { createProcesses, type ShellProcesses } from "./processes/processes.ts";
import { YieldedProcesses } from "./processes/yielded-processes.ts";
import { abortedResult, type RunnerHost, type RunOutcome, type RunRequest, runCommand } from "./runner.ts";
import { Session } from "./session.ts";
import { Shells } from "./shells.ts";
import { emptyState, type ShellState, toBytes } from "./state.ts";
import { Stop } from "./stop.ts";
import { ResidentSystemShell } from "./system.ts";
import { createTree } from "./tree/tree.ts";
import { UNATTENDED_VARIABLES } from "./unattended.ts";
import { WorkerProcesses } from "./worker-processes.ts";

export interface ShellEnvironmentOptions extends CommonOptions {
  /** Shell that runs commands. @default bash where there is one, else sh */
  readonly shell?: ShellKind;
}

const ID = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;

/** An id for an environment that nobody named. */
export function randomEnvironmentId(): string {
  return `env-${randomBytes(6).toString("hex")}`;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms).unref();
  });
}

class ShellEnvironment extends BaseEnvironment {
  readonly id: string;
  readonly files: EnvironmentFiles;
  readonly tree: EnvironmentTree;
  readonly processes: EnvironmentProcesses;
  readonly outputs: EnvironmentOutputs;
  readonly #backend: ShellBackend | ScriptBackend;
  readonly #options: ShellEnvironmentOptions;
  readonly #outputStore: OutputStore;
  readonly #system: ResidentSystemShell;
  readonly #shellProcesses: ShellProcesses;
  readonly #yielded: YieldedProcesses;
  readonly #workerProcesses: WorkerProcesses;
  readonly #sessions = new Set<Session>();
  readonly #stopping = new AbortController();
  /** The same for calls. */
  readonly #callStop = new Stop();
  readonly #running = new Set<Promise<unknown>>();
  readonly #shells: Shells;
  /** What commands need of us. */
  readonly #host: RunnerHost;
  #facts: WorkerFacts | null = null;
  /** Those of a session that has run nothing. */
  #freshVariables: ShellState["variables"] | null = null;
  #starting: Promise<void> | null = null;
  /** Why the place has not come up yet; the backend, which it stands on, may be well all the same. */
  #startFailure: MoorageError | null = null;
  /** A start failed, and none has succeeded. */
  #neverStarted = false;
  #stopped: Promise<void> | null = null;

  constructor(backend: ShellBackend | ScriptBackend, options: ShellEnvironmentOptions) {
    super();
    if (options.id !== undefined && !ID.test(options.id)) {
      throw new MoorageError(
        "INVALID_ARGUMENTS",
        `Cannot use "${options.id}" as an environment's id: 1 to 64 letters, digits, "_" and "-"`,
      );
    }
    checkVariables(options.env ?? {});
    this.id = options.id ?? randomEnvironmentId();
    this.#backend = backend;
    this.#options = options;
    this.#shells = new Shells({
      environmentId: this.id,
      backend,
      shell: options.shell ?? "auto",
      start: () => this.start(),
      isStopped: () => this.#stopped !== null,
      stopping: this.#stopping.signal,
      onRecovered: () => this.#system.reset(),
    });
    this.#outputStore = new OutputStore(options.stateDir);
    this.#host = this.#makeHost();
    this.outputs = this.#outputStore;
    this.#system = new ResidentSystemShell({
      acquire: async (wanted) => (await this.#shells.acquire("system", wanted)).worker,
      release: (worker) => this.#shells.systems.release(worker),
      discard: (worker) => this.#shells.systems.discard(worker),
      endCall: async (worker) => void (await this.#workerProcesses.end(worker)),
      facts: () => this.#requireFacts(),
      environmentId: this.id,
      // What can only run a program to its end may tell its errors as text.
      hasTwoStreams: "openStream" in backend,
    });
    this.#workerProcesses = new WorkerProcesses(this.#system, this.#shells, this.#stopping.signal);
    this.files = createFiles(this.#system, {
      workspace: () => this.workspace,
      protectedPaths: () => backend.protectedPaths?.() ?? [],
    });
    this.tree = createTree(this.#system, {
      id: this.id,
      workspace: () => this.workspace,
      placeholders: async () => (await backend.placeholders?.()) ?? [],
    });
    this.#shellProcesses = createProcesses(this.#system, {
      environmentId: this.id,
      markerName: this.#shells.markerName,
      workspace: () => this.workspace,
      joinsWaits: !("openStream" in backend),
      variables: async (session) => {
        const state = session instanceof Session ? await session.state() : await this.#freshState();
        return { cwd: state.cwd, variables: state.variables };
      },
    });
    this.#yielded = new YieldedProcesses({
      pool: this.#shells.users,
      stopping: this.#stopping.signal,
      outputs: this.#outputStore,
      endTree: (worker) => this.#workerProcesses.end(worker),
      signalTree: (worker, signal) => this.#workerProcesses.signal(worker, signal),
      listening: (port) => this.#shellProcesses.listening(port),
    });
    this.processes = {
      start: (command: Command, processOptions?: ProcessOptions) =>
        this.#startProcess(command, processOptions),
      list: () => this.#listProcesses(),
      get: (id: string) => this.#getProcess(id),
    };
  }

  get backend(): string {
    return this.#backend.name;
  }

  get workspace(): string {
    return this.#backend.workspace;
  }

  get isolation() {
    return this.#backend.isolation;
  }

  get capabilities() {
    return this.#backend.capabilities;
  }

  info(): EnvironmentInfo {
    const egress = this.#backend.egressReport?.();
    const { warnings = [], sharedFolder = null } = this.#backend;
    return {
      id: this.id,
      backend: this.backend,
      workspace: this.workspace,
      isolation: this.isolation,
      description: this.#backend.description,
      shell: this.#facts?.shell ?? null,
      exposedHostPaths: this.#backend.exposedHostPaths,
      ...(sharedFolder !== null && { sharedFolder }),
      ...(egress && { egress }),
      ...(warnings.length > 0 && { warnings }),
    };
  }

  async health(): Promise<Health> {
    const health = await this.#backend.health();
    if (!health.healthy) {
      // What shows here explains the failed start, and its end is seen here too.
      this.#startFailure = null;
      // An outage passes. What time alone does not mend has kept the place from ever working: a key, a login.
      return this.#neverStarted && !ERRORS[health.code].retryable
        ? { ...health, neverStarted: true }
        : health;
    }
    if (this.#startFailure === null) return health;
    const { code, message, suggestion } = this.#startFailure;
    return { healthy: false, code, reason: message, suggestion, neverStarted: true };
  }

  override async setEgress(policy: EgressPolicy): Promise<void> {
    if (this.#stopped) throw this.#shells.stoppedError();
    if (!this.#backend.setEgress) return super.setEgress(policy);
    return this.#backend.setEgress(policy);
  }

  start(): Promise<void> {
    if (this.#stopped) return Promise.reject(this.#shells.stoppedError());
    this.#starting ??= this.#start().then(
      () => {
        this.#startFailure = null;
        this.#neverStarted = false;
      },
      (error: unknown) => {
        this.#starting = null;
        const failure = toMoorageError(error, "ENVIRONMENT_UNAVAILABLE", "Cannot start");
        if (!this.#stopped && failure.code !== "ABORTED") {
          this.#startFailure = failure;
          this.#neverStarted = true;
        }
        throw error;
      },
    );
    return this.#starting;
  }

  async exec(command: Command, options: ExecOptions = {}): Promise<ExecResult> {
    checkCommand(command);
    checkOptions(options);
    if (this.#stopped) throw this.#shells.stoppedError();
    if (options.abortSignal?.aborted) return abortedResult(this.workspace);
    const state = await this.#freshState();
    const { result } = await this.#run({
      command,
      options,
      state,
      base: this.workspace,
      dump: false,
      plain: typeof command === "string" && !this.#requireFacts().hasFunctions && isPlain(command, state),
      stops: [],
    });
    return result;
  }

  async openSession(
    options: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> } = {},
  ): Promise<ShellSession> {
    await this.start();
    checkOptions(options);
    const session = new Session(
      {
        run: (request) => this.#run(request),
        freshState: () => this.#freshState(),
        home: () => this.#requireFacts().home,
        workspace: this.workspace,
      },
      options,
      () => this.#sessions.delete(session),
    );
    this.#sessions.add(session);
    return session;
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #start(): Promise<void> {
    // While the place comes up; who runs something there is told of a failure.
    this.#outputStore.prepare().catch(() => {});
    await this.#backend.start((progress) => this.#options.onProgress?.(progress));
    const worker = await this.#shells.acquireFirst();
    // Beside the login shell, if that is still to answer.
    if (worker.facts.login === null) worker.prepare?.();
    if (worker.loginProblem !== null) this.#shells.keepNotes([worker.loginProblem]);
    this.#facts ??= { ...worker.facts, login: worker.facts.login ?? (await this.#readLogin()) };
    this.#shells.users.release(worker);
  }

  /** Null where the first shell reads it, and where it could not be read, which the next result tells. */
  async #readLogin(): Promise<WorkerFacts["login"]> {
    const backend = this.#backend;
    if (!("openStream" in backend) || !backend.readLogin) return null;
    try {
      return parseExports(await backend.readLogin());
    } catch (error) {
      if (!isMoorageError(error)) throw error;
      this.#shells.keepNotes([loginProblem(error)]);
      return null;
    }
  }

  async #stop(): Promise<void> {
    const problems: unknown[] = [];
    const attempt = async (step: () => Promise<unknown>) => {
      try {
        await step();
      } catch (error) {
        problems.push(error);
      }
    };
    const keep = this.#options.keep ?? false;
    const started = this.#starting;
    this.#stopping.abort();
    this.#callStop.stop();
    if (started) {
      await started.catch(() => undefined); // its own callers are told
      const goesWhole = this.#backend.disposable === true && !keep;
      const ended = Promise.all([
        ...[...this.#sessions].map((session) => attempt(() => session.close())),
        Promise.allSettled(this.#running),
      ]);
      // Where all goes anyway, a place that answers no more, full of processes, is not waited for.
      await (goesWhole ? Promise.race([ended, pause(limits.killGraceMs + limits.killVerifyMs)]) : ended);
      if (!goesWhole && this.#facts && (await this.#reachable())) {
        // A place that went meanwhile took everything with it.
        const inside = (step: () => Promise<unknown>) =>
          attempt(() =>
            step().catch((error: unknown) => {
              if (!isMoorageError(error, "ENVIRONMENT_LOST")) throw error;
            }),
          );
        await inside(() =>
          endTree(this.#system, { marker: `${this.#shells.markerName}=${this.#shells.everyUser}` }),
        );
        if (!keep) {
          await inside(() => this.#shellProcesses.stopAll());
          await inside(() => this.#system.removePrivateDir());
        }
      }
      await this.#shells.close();
    }
    await attempt(() => this.#backend.stop({ keep }));
    if (problems.length > 0) {
      const texts = problems.map((problem) => (problem instanceof Error ? problem.message : String(problem)));
      throw new MoorageError("CLEANUP_FAILED", `Cannot clean up ${this.id}: ${texts.join("; ")}`, {
        cause: problems[0],
      });
    }
  }

  /** Whether there is still something inside to clean: a place that is gone took everything with it. */
  async #reachable(): Promise<boolean> {
    const health = await this.#backend.health();
    return health.healthy;
  }

  #requireFacts(): WorkerFacts {
    if (!this.#facts)
      throw new MoorageError(
        "INTERNAL",
        `Cannot tell the home folder: environment ${this.id} has not started`,
      );
    return this.#facts;
  }

  /** State of a session that has run nothing: the workspace, and what a login adds to a fresh shell's variables. */
  async #freshState(): Promise<ShellState> {
    await this.start();
    const facts = this.#requireFacts();
    this.#freshVariables ??= new Map([
      ...loginDifference(facts.variables, facts.login),
      ...Object.entries({ ...UNATTENDED_VARIABLES, ...this.#options.env }).map(
        ([name, value]) => [name, toBytes(value)] as const,
      ),
    ]);
    return emptyState(toBytes(this.workspace), this.#freshVariables);
  }

  async #run(request: Omit<RunRequest, "home">): Promise<RunOutcome> {
    const running = runCommand(this.#host, {
      ...request,
      stops: [...request.stops, this.#callStop],
      home: this.#requireFacts().home,
    });
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  #makeHost(): RunnerHost {
    return {
      pool: this.#shells.users,
      outputs: this.#outputStore,
      acquire: async (wanted) => {
        const { worker, notes } = await this.#shells.acquire("user", wanted);
        return { worker, notes: [...this.#shells.takeNotes(), ...notes] };
      },
      keepNotes: (notes) => this.#shells.keepNotes(notes),
      endTree: (worker) => this.#workerProcesses.end(worker),
      leftBehind: (worker, end) => this.#workerProcesses.leftBehind(worker, end),
      takeNotes: () => this.#shells.takeNotes(),
      gone: (worker) => this.#workerProcesses.gone(worker),
      adopt: (yielded) => {
        // Aborted with the environment like one in the foreground.
        this.#running.add(yielded.end);
        void yielded.end.then(() => this.#running.delete(yielded.end));
        return this.#yielded.adopt(yielded);
      },
      explainExit: async (exitCode, startedAt) =>
        (await this.#backend.explainExit?.(exitCode, startedAt)) ?? null,
      refusalsSince: (startedAt) => this.#backend.refusalsSince?.(startedAt) ?? [],
    };
  }

  async #startProcess(command: Command, options: ProcessOptions = {}): Promise<EnvironmentProcess> {
    checkCommand(command);
    checkOptions({
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      ...(options.env ? { env: options.env } : {}),
    });
    if (this.#stopped) throw this.#shells.stoppedError();
    await this.start();
    return this.#shellProcesses.start(command, options);
  }

  async #listProcesses(): Promise<readonly ProcessInfo[]> {
    await this.start();
    const yielded = await this.#yielded.list();
    const all = [...yielded, ...(await this.#shellProcesses.list())];
    return all.sort((a, b) => a.startedAt.localeCompare(b.startedAt));
  }

  async #getProcess(id: string): Promise<EnvironmentProcess> {
    await this.start();
    return this.#yielded.get(id) ?? this.#shellProcesses.get(id);
  }
}

/**
 * Makes an environment of a backend. Touches nothing until `start` or the first use.
 *
 * @throws {MoorageError} INVALID_ARGUMENTS when the id is malformed
 */
export function createShellEnvironment(
  backend: ShellBackend | ScriptBackend,
  options: ShellEnvironmentOptions,
): BaseEnvironment {
  return new ShellEnvironment(backend, options);
}
