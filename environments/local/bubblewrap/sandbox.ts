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
import { DOOR_PORT, HANDING_DOOR } from "../../egress/door.ts";
import { hostProgram } from "../../host-programs.ts";
import { quoteAll } from "../../shell/quote.ts";
import type { ShellStream, StreamEnd } from "../../shell/stream.ts";
import { WORKER_MARKER } from "../../shell/worker.ts";
import { type Launch, launch, launchNext } from "./launch.ts";
import { openHostEnds, openReader, PASSABLE, type PipeSet, PipeStock, type WaitingReader } from "./pipes.ts";
import { ownMounts } from "./propagation.ts";
import { seccompFilter } from "./seccomp.ts";
import { firstProgram, LOGIN_PIPE, runScript, type SupervisorOptions, WHOLE } from "./supervisor.ts";
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

/** Own namespaces, no capabilities, no terminal. */
const ISOLATION = [
  "--unshare-user",
  "--disable-userns",
  "--unshare-pid",
  "--unshare-ipc",
  "--unshare-uts",
  "--unshare-cgroup-try",
  "--cap-drop",
  "ALL",
  "--new-session",
];

/** Process 1 inside, bwrap's own: it adopts every orphan. */
export const SANDBOX_INIT = "1";

/**
 * When the process of the next sandbox is forked, after the first shell of this one is there, milliseconds: nobody should
 * wait for its first small command by then. One that ends before has it done while it ends.
 */
const NEXT_MS = 50;

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
  #stderr = "";
  #isReady = false;
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
      await sandbox.#tellArguments([...variables, ...layout]);
      await stock.fill(options.login === null ? [] : [join(options.channel, LOGIN_PIPE)]);
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
    this.#child.stdin?.write(`open ${set.name}\n`);
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
        if (pid !== null && this.#streams.has(set.name)) this.#child.stdin?.write(`kill ${pid}\n`);
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

  /** Loses it for a reason of the host's. */
  abandon(reason: string): void {
    this.#lose(reason);
    endGroup(this.#child);
  }

  /** Ends everything inside; resolves when nothing of it is left. Idempotent. */
  async stop(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) endGroup(this.#child);
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
  #tellArguments(layout: readonly string[]): Promise<void> {
    const pipe = this.#pipe(3);
    const words = [...layoutArguments({ ...this.#options, layout }), "--setenv", WHOLE, "yes"];
    return new Promise((resolve) => {
      // One that has failed by now takes none; its end tells why.
      if (pipe.destroyed) return resolve();
      pipe.on("error", () => {}).once("close", resolve);
      pipe.end(words.join("\0"), () => pipe.destroy());
    });
  }

  async #untilReady(doorOpen: Promise<void>): Promise<void> {
    const { stdout } = this.#child;
    if (!stdout) throw new MoorageError("INTERNAL", "Cannot start a sandbox: it has no output");
    let text = "";
    this.#pipe(5).on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
      this.#init ??= Number(/"child-pid": *(\d+)/.exec(text)?.[1] ?? 0) || null;
    });
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(
        () => reject(unavailable(`it did not start within ${limits.openTimeoutMs} ms`)),
        limits.openTimeoutMs,
      );
      onLines(stdout, (line) => {
        if (line !== "ready") return this.#told(line);
        return void doorOpen.then(() => {
          clearTimeout(timer);
          this.#isReady = true;
          resolve();
        });
      });
      void this.#gone.then(() => {
        clearTimeout(timer);
        reject(unavailable(this.#reason));
      });
    });
  }

  #reason = "it ended";

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

  #lose(reason: string): void {
    this.#reason = reason;
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

interface Arguments extends Pick<SandboxOptions, "workspace" | "network"> {
  readonly layout: readonly string[];
}

/** All options of bwrap. A filter is read from descriptor 4, what was made is told on 5. */
export function bwrapArguments(options: Arguments): string[] {
  return [...isolationArguments(options), ...layoutArguments(options)];
}

/** Nobody's secret, so they stand in its command line. */
function isolationArguments({ network }: Pick<Arguments, "network">): string[] {
  return [...ISOLATION, ...(network === "none" ? ["--unshare-net"] : [])];
}

function layoutArguments({ layout, workspace }: Pick<Arguments, "layout" | "workspace">): string[] {
  return [
    ...layout,
    // Told with the rest: one that gets none of it, as this process has ended, must not be ended in its middle.
    "--die-with-parent",
    "--chdir",
    workspace,
    // bwrap's own, by which it is found; a program inside has the mark of its shell or none.
    "--unsetenv",
    WORKER_MARKER,
    "--seccomp",
    "4",
    "--json-status-fd",
    "5",
  ];
}

/**
 * With a door there are two layers: the outer makes the network namespace, in which the door is opened while the
 * sandbox is made. That happens outside of the sandbox, where commands can neither see nor end it.
 */
function command(
  { network, owner, ...options }: SandboxOptions,
  program: (name: string) => string,
  inherited: readonly number[],
): string[] {
  const bwrap = program("bwrap");
  const isolation = isolationArguments({ network });
  const sandbox = [bwrap, ...isolation, "--args", "3", "--", ...firstProgram(options, inherited)];
  if (typeof network === "string") return sandbox;
  const outer = [bwrap, "--unshare-user", "--unshare-net", "--cap-drop", "ALL", "--die-with-parent"];
  // Without it the kernel refuses a root in the inner layer, as it is the outer one's root.
  if (process.getuid?.() === 0 && owner === null) outer.push("--cap-add", "CAP_SETFCAP");
  const door = [process.execPath, "-e", HANDING_DOOR, "--", String(DOOR_PORT)];
  // Without its door the sandbox is nothing that was asked for.
  const script = `{ ${quoteAll(door)} </dev/null >&2 3<&- 4<&- 5>&- || kill -KILL $$; } &
unset NODE_CHANNEL_FD NODE_CHANNEL_SERIALIZATION_MODE
exec 6>&-
exec "$@"`;
  return [...outer, "--dev-bind", "/", "/", "--", program("sh"), "-c", script, "sh", ...sandbox];
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
