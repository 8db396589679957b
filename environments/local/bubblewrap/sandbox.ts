/**
 * One running sandbox. All shells of an environment are in the same one, so that they see each other's processes and
 * files: a supervisor inside, a shell that reads requests from its standard input, starts them. A request names a
 * folder with three named pipes and a script. See `supervisor.ts`.
 */
import type { ChildProcess } from "node:child_process";
import { chmodSync, chownSync, readFileSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { Server, Socket } from "node:net";
import { join } from "node:path";
import { MoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import { hostProgram } from "../../host-programs.ts";
import type { ShellStream, StreamEnd } from "../../shell/stream.ts";
import { command, layoutArguments } from "./arguments.ts";
import { type Launch, launch, launchNext } from "./launch.ts";
import { type ExpectedMounts, expectedMounts, wrongMount } from "./mounted.ts";
import { openHostEnds, openReader, PASSABLE, type PipeSet, PipeStock, type WaitingReader } from "./pipes.ts";
import { ownMounts } from "./propagation.ts";
import { seccompFilter } from "./seccomp.ts";
import { LOGIN_PIPE, runScript, type SupervisorOptions, WHOLE } from "./supervisor.ts";
import { LOGIN_MAX, onLines } from "./words.ts";

/** Numbers of a user and a group. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

export interface SandboxOptions extends SupervisorOptions {
  /**
   * Makes `channel`, and tells bwrap's options for the file system. Asked for once bwrap is starting, which waits for them:
   * so that nothing need be looked up or made before.
   *
   * @param mark what became of the option of that name
   */
  readonly layout: (mark: string) => Promise<readonly string[]>;
  /** Host folder of the named pipes, ours alone. */
  readonly channel: string;
  readonly workspace: string;
  /** Variables of every program inside. They reach bwrap by its environment or a pipe, never by its command line. */
  readonly env: () => Readonly<Record<string, string>>;
  /**
   * Value of `WORKER_MARKER` for bwrap alone. One whose orchestrator is killed while it lets its first process go leaves
   * that waiting for ever, which a sweep then finds by it. One that was started ahead has another.
   */
  readonly mark: string;
  /** Whose ids programs get, when this process is root and may choose. @default this process's */
  readonly owner: Owner | null;
  readonly network: "open" | "none" | { readonly onDoor: (listener: Server) => void };
}

/** Process 1 inside, bwrap's own: it adopts every orphan. */
export const SANDBOX_INIT = "1";

/**
 * When the process of the next sandbox is forked, after the first shell of this one is there, milliseconds: nobody should
 * wait for its first small command by then. One that ends before has it done while it ends.
 */
const NEXT_MS = 50;

/**
 * bwrap looks at each mount of the machine, and fails when one goes meanwhile, such as that of a container that ends, or
 * when a file is replaced just then.
 */
const PASSING = /bwrap: Can't .*: No such file or directory/;

/** As a shell tells of a program that SIGKILL ended. */
const KILLED = 137;

interface Waiting {
  opened: () => void;
  /** Number of the program inside; null until it is told. */
  pid: number | null;
  end: (end: StreamEnd) => void;
}

export class Sandbox {
  readonly #child: ChildProcess;
  readonly #stock: PipeStock;
  readonly #options: SandboxOptions;
  readonly #streams = new Map<string, Waiting>();
  /** Host number of the sandbox's process 1: it is gone only when everything inside is. */
  #init: number | null = null;
  #lost: MoorageError | null = null;
  #reason = "";
  #stderr = "";
  #isReady = false;
  #isReplaced = false;
  /** Of the workspace; null until bwrap has been told. */
  #expected: ExpectedMounts | null = null;
  /** Requests that wait until what was mounted has been looked at; null from then on. */
  #requests: string[] | null = [];
  #login: WaitingReader | null = null;
  readonly #gone: Promise<void>;
  readonly #launched: Launch;
  #next: NodeJS.Timeout | null = null;
  #isNextLaunched = false;
  /** Descriptors that this process was started with, which lead nowhere inside. */
  readonly inherited: readonly number[];
  /** Settles when the sandbox is made and its door open, or cannot be. */
  readonly ready: Promise<void>;

  private constructor(
    options: SandboxOptions,
    child: ChildProcess,
    stock: PipeStock,
    doorOpen: Promise<void>,
    launched: Launch,
    inherited: readonly number[],
  ) {
    this.inherited = inherited;
    this.#launched = launched;
    this.#options = options;
    this.#child = child;
    this.#stock = stock;
    this.#gone = new Promise((resolve) => {
      child.once("error", (error) => {
        this.#lose(`it cannot be started: ${error.message}`);
        resolve();
      });
      child.once("exit", (code, signal) => {
        endGroup(child);
        const why = this.#stderr.trim().split("\n").at(-1);
        this.#lose(why || `it ended with ${signal ?? `code ${code}`}`);
        resolve();
      });
    });
    child.stderr?.on("data", (chunk: Buffer) => {
      this.#stderr = (this.#stderr + chunk.toString("utf8")).slice(-2_000);
    });
    child.stdin?.on("error", () => {});
    this.ready = this.#untilReady(doorOpen);
    // Whoever opens a stream is told.
    this.ready.catch(() => {});
  }

  /**
   * Does not wait until the sandbox is made: what is asked of it meanwhile waits inside. See `ready`.
   *
   * @throws {MoorageError} ENVIRONMENT_UNAVAILABLE when there is no filter for this machine; what `layout` throws
   */
  static async start(options: SandboxOptions): Promise<Sandbox> {
    const filter = seccompFilter();
    if (!filter) throw unavailable(`no filter of system calls is known for ${process.arch}`);
    const { owner } = options;
    // What works for us outside must be nothing that commands put into a folder of the search path.
    const program = (name: string) => {
      const path = hostProgram(name, [options.workspace]);
      if (path === null) throw unavailable(`there is no ${name} outside of the workspace`);
      return path;
    };
    const { network, env, mark, workspace } = options;
    const hasDoor = typeof network !== "string";
    const begin: Launch = {
      bwrap: (descriptors) => command(options, program, descriptors),
      wrapper: () => ownMounts(program, owner !== null),
      env,
      mark,
      owner,
      hasDoor,
      filter,
      workspace,
    };
    const { child, variables, inherited, mark: actual } = launch(begin);
    const doorOpen =
      typeof network === "string"
        ? Promise.resolve()
        : new Promise<void>((resolve) => {
            child.once("message", (_, listener) => {
              if (!(listener instanceof Server)) return;
              network.onDoor(listener);
              child.disconnect();
              resolve();
            });
          });
    // What follows is found and made while bwrap is at work.
    const stock = new PipeStock(
      options.channel,
      () => ({ shell: program("sh"), mkfifo: program("mkfifo") }),
      owner,
    );
    const sandbox = new Sandbox(options, child, stock, doorOpen, begin, inherited);
    try {
      const layout = await options.layout(actual);
      // Theirs to pass through, not to change: they could put a link in the place of what root opens by name.
      if (owner) chmodSync(options.channel, PASSABLE);
      // A bwrap that takes none of it, as somebody has stopped it, has its time too.
      await Promise.race([sandbox.#tellArguments(layout, variables), sandbox.#untilFailed()]);
      const filled = stock.fill(options.login === null ? [] : [join(options.channel, LOGIN_PIPE)]);
      // While others make them.
      filled.catch(() => {});
      sandbox.#expected = expectedMounts(layout, workspace);
      await filled;
    } catch (error) {
      await sandbox.stop();
      throw error;
    }
    return sandbox;
  }

  /** Whether it was ever made. */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** Whether it could not be made for a reason that the next one may not meet. */
  get failedInPassing(): boolean {
    return !this.#isReady && (this.#isReplaced || PASSING.test(this.#reason));
  }

  /**
   * What a login shell printed of its variables, one byte a character. Once.
   *
   * @throws {MoorageError} ENVIRONMENT_UNAVAILABLE when that takes too long, or the sandbox is gone
   */
  async readLogin(): Promise<string> {
    const pipe = this.#login;
    if (!pipe) throw new MoorageError("INTERNAL", "Cannot read variables: no login shell was started");
    let timer: NodeJS.Timeout | undefined;
    try {
      return await new Promise<string>((resolve, reject) => {
        const fail = (why: string) => reject(new MoorageError("ENVIRONMENT_UNAVAILABLE", why));
        timer = setTimeout(() => fail(`no answer within ${limits.loginTimeoutMs} ms`), limits.loginTimeoutMs);
        void this.#gone.then(() => fail(this.#reason));
        let text = "";
        pipe.read((chunk) => {
          text += chunk.toString("latin1");
          const end = text.indexOf("\0");
          if (end >= 0) resolve(text.slice(0, end));
          else if (text.length > LOGIN_MAX) fail("a login shell has too many variables");
          return end >= 0;
        });
      });
    } finally {
      clearTimeout(timer);
      // What a profile left running may hold the other end.
      pipe.close();
    }
  }

  get lost(): MoorageError | null {
    return this.#lost;
  }

  /**
   * Starts a program in a session of its own.
   *
   * @param greeting first bytes of its standard input, one byte a character
   * @throws {MoorageError} ENVIRONMENT_LOST, or what `ready` rejects with
   */
  async open(
    argv: readonly string[],
    env: Readonly<Record<string, string>>,
    greeting = "",
  ): Promise<ShellStream> {
    if (this.#lost) {
      // One that was never made is not lost: it cannot be had.
      await this.ready;
      throw this.#lost;
    }
    const set = await this.#stock.take();
    writeFileSync(join(set.folder, "run"), runScript(set, { argv, env }, this.#options.workspace), {
      mode: 0o600,
    });
    const { owner } = this.#options;
    if (owner) chownSync(join(set.folder, "run"), owner.uid, owner.gid);
    const waiting = this.#expect(set);
    // Before the shell opens its own, so that it waits for nobody; what is written now waits for it in the pipe.
    const { stdin, stdout, stderr, settle } = openHostEnds(set);
    // A program that ended closes its input; `ended` tells how.
    stdin.on("error", () => {});
    if (greeting !== "") stdin.write(greeting, "latin1");
    void Promise.race([waiting.opened, waiting.ended]).then(settle);
    this.#expectLogin();
    this.#request(`open ${set.name}`);
    // Whoever cannot have it is told why; the ends go with the sandbox.
    try {
      await this.ready;
    } catch (error) {
      for (const end of [stdin, stdout, stderr]) end.destroy();
      throw error;
    }
    return {
      isGreeted: true,
      stdin,
      stdout,
      stderr,
      ended: waiting.ended,
      close: async () => {
        stdin.destroy();
        const { pid } = waiting.entry;
        if (pid !== null && this.#streams.has(set.name)) this.#request(`kill ${pid}`);
        // Commands can keep the supervisor from telling it; what is left ends with the sandbox.
        const late = setTimeout(() => this.#told(`exit ${set.name} ${KILLED}`), limits.killVerifyMs);
        await waiting.ended;
        clearTimeout(late);
        stdout.destroy();
        stderr.destroy();
      },
    };
  }

  /** The login shell is started with the first one. */
  #expectLogin(): void {
    if (this.#options.login === null || this.#login) return;
    this.#login = openReader(join(this.#options.channel, LOGIN_PIPE));
  }

  /** Loses it, as a path that was mounted in it, or that was to be, has become another. */
  abandon(path: string): void {
    this.#isReplaced = true;
    this.#lose(`"${path}", which is protected in it, was replaced outside`);
    this.#kill();
  }

  /** Ends everything inside; resolves when nothing of it is left. Idempotent. */
  async stop(): Promise<void> {
    this.#kill();
    // While the kernel takes it down.
    if (this.#next) this.#launchNext();
    await this.#gone;
    this.#login?.close();
    const deadline = performance.now() + limits.killVerifyMs;
    const init = this.#init;
    while (init !== null && lives(init)) {
      if (performance.now() > deadline) {
        throw new MoorageError("CLEANUP_FAILED", `Process ${init} of a sandbox is left behind`);
      }
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await this.#stock.close();
    // A start that was broken off may still be making pipes there.
    await rm(this.#options.channel, { recursive: true, force: true, maxRetries: 10, retryDelay: 10 });
  }

  #expect({ name }: PipeSet) {
    let opened: () => void = () => {};
    let end: (end: StreamEnd) => void = () => {};
    const openedPromise = new Promise<void>((resolve) => {
      opened = resolve;
    });
    const ended = new Promise<StreamEnd>((resolve) => {
      end = resolve;
    });
    const entry: Waiting = { opened, pid: null, end };
    this.#streams.set(name, entry);
    return { entry, opened: openedPromise, ended };
  }

  /** One of the pipes that were asked for; the types do not know all of them. */
  #pipe(descriptor: number): Socket {
    const pipe = (this.#child.stdio as readonly unknown[])[descriptor];
    if (!(pipe instanceof Socket))
      throw new MoorageError("INTERNAL", `Cannot start a sandbox: it has no pipe ${descriptor}`);
    return pipe;
  }

  /** Resolves when bwrap has them: it begins at their end, which Node tells only in its next turn. */
  #tellArguments(layout: readonly string[], variables: readonly string[]): Promise<void> {
    const pipe = this.#pipe(3);
    const rest = layoutArguments({ ...this.#options, layout });
    const words = [...variables, ...rest, "--setenv", WHOLE, "yes"];
    return new Promise((resolve) => {
      // One that has failed by now takes none; its end tells why.
      if (pipe.destroyed) return resolve();
      pipe.on("error", () => {}).once("close", resolve);
      pipe.end(words.join("\0"), () => pipe.destroy());
    });
  }

  /** Rejects when it cannot be made any more. */
  #untilFailed(): Promise<never> {
    return new Promise((_, reject) => this.ready.catch(reject));
  }

  async #untilReady(doorOpen: Promise<void>): Promise<void> {
    const { stdout } = this.#child;
    if (!stdout) throw new MoorageError("INTERNAL", "Cannot start a sandbox: it has no output");
    let text = "";
    const known = new Promise<number>((resolve) => {
      this.#pipe(5).on("data", (chunk: Buffer) => {
        text += chunk.toString("latin1");
        this.#init ??= Number(/"child-pid": *(\d+)/.exec(text)?.[1] ?? 0) || null;
        if (this.#init !== null) resolve(this.#init);
      });
    });
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(
        () => reject(unavailable(`it did not start within ${limits.openTimeoutMs} ms`)),
        limits.openTimeoutMs,
      );
      const made = async () => {
        this.#checkMounts(await known);
        await doorOpen;
        if (this.#lost) return;
        clearTimeout(timer);
        this.#isReady = true;
        resolve();
      };
      let isMade = false;
      onLines(stdout, (line) => {
        if (line !== "ready") return this.#told(line);
        // Commands can say it again.
        if (!isMade) made().catch(reject);
        isMade = true;
      });
      void this.#gone.then(() => {
        clearTimeout(timer);
        reject(unavailable(this.#reason));
      });
    });
  }

  /** Lets what waits inside go on, where all is mounted as it was to be. */
  #checkMounts(init: number): void {
    if (!this.#expected) throw new MoorageError("INTERNAL", "Cannot start a sandbox: it began by itself");
    // Of one that is gone by now its end tells.
    const wrong = this.#lost ? null : wrongMount(init, this.#expected);
    if (wrong !== null) this.abandon(wrong);
    const requests = this.#requests ?? [];
    this.#requests = null;
    if (!this.#lost) for (const line of requests) this.#request(line);
  }

  #request(line: string): void {
    if (this.#requests) this.#requests.push(line);
    else this.#child.stdin?.write(`${line}\n`);
  }

  #told(line: string): void {
    const [verb = "", name = "", number = ""] = line.split(" ");
    const entry = this.#streams.get(name);
    if (!entry) return;
    if (verb === "opened") {
      entry.pid = Number(number);
      entry.opened();
      this.#next ??= setTimeout(() => this.#launchNext(), NEXT_MS).unref();
    } else if (verb === "exit") {
      this.#streams.delete(name);
      entry.end({ exitCode: Number(number), signal: null, lost: null });
    }
  }

  /** Once. */
  #launchNext(): void {
    if (this.#isNextLaunched) return;
    this.#isNextLaunched = true;
    clearTimeout(this.#next ?? undefined);
    launchNext(this.#launched);
  }

  /** A number of a process that has ended may be another's by now. */
  #kill(): void {
    if (this.#child.exitCode === null && this.#child.signalCode === null) endGroup(this.#child);
  }

  #lose(reason: string): void {
    // What came first is why.
    this.#reason ||= reason;
    const lost = new MoorageError("ENVIRONMENT_LOST", `The sandbox is gone: ${reason}`);
    this.#lost ??= lost;
    for (const { end } of this.#streams.values()) end({ exitCode: null, signal: null, lost });
    this.#streams.clear();
  }
}

/** A process 1 becomes a zombie only when nothing else is left in its namespace; who waits for it may be slow. */
function lives(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    // It is gone.
    return false;
  }
}

export function unavailable(reason: string): MoorageError {
  return new MoorageError("ENVIRONMENT_UNAVAILABLE", `Cannot start a bubblewrap sandbox: ${reason}`, {
    suggestion: "Install bubblewrap and allow unprivileged user namespaces, or choose another environment.",
  });
}

/**
 * Kills bwrap with what it has forked by then: a first process inside that was still to be let go by one that is gone
 * would wait for that for ever.
 */
function endGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL");
  } catch {
    // Nobody of the group is left.
  }
}
