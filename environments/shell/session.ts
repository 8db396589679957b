/** A shell session: a queue of calls and the state that goes from one to the next. */
import { randomBytes } from "node:crypto";
import { isMoorageError, MoorageError } from "../../src/errors.ts";
import type { Command, ExecOptions, ExecResult, ShellSession } from "../base.ts";
import { checkCommand, checkOptions } from "./checks.ts";
import { folderOf, type StateDump } from "./exports.ts";
import { isPlain } from "./plain.ts";
import { abortedResult, type RunOutcome, type RunRequest } from "./runner.ts";
import {
  difference,
  fromBytes,
  oversizedVariables,
  POSIX_SENTINEL,
  type ShellState,
  toBytes,
} from "./state.ts";
import { Stop } from "./stop.ts";
import { resolveCwd } from "./working-directory.ts";

export interface SessionHost {
  run(request: Omit<RunRequest, "home">): Promise<RunOutcome>;
  /** State of a session that has run nothing. Brings the environment up. */
  freshState(): Promise<ShellState>;
  home(): string;
  readonly workspace: string;
}

/**
 * The state after a call.
 *
 * @param base variables of a fresh shell, from which the kept difference is counted
 * @param callEnv names set for the call only; where the command left them alone, the earlier value comes back
 */
export function nextState(
  previous: ShellState,
  dump: StateDump,
  base: ReadonlyMap<string, string>,
  callEnv: ReadonlyMap<string, string>,
): ShellState {
  const current = new Map(dump.variables);
  const before = (name: string): string | undefined => {
    const kept = previous.variables.get(name);
    return kept === null ? undefined : (kept ?? base.get(name));
  };
  const restore = (name: string, value: string | undefined) => {
    if (value === undefined) current.delete(name);
    else current.set(name, value);
  };
  for (const [name, value] of callEnv) {
    if (current.get(name) === value) restore(name, before(name));
  }
  // The epilogue sets this one itself; exported, it was the user's, with a value that is no longer known.
  if (current.get("POSIXLY_CORRECT") === POSIX_SENTINEL)
    restore("POSIXLY_CORRECT", before("POSIXLY_CORRECT") ?? "y");
  return {
    cwd: folderOf(dump) ?? previous.cwd,
    oldCwd: current.get("OLDPWD") ?? null,
    variables: difference(base, current),
    functions: dump.functions,
    exportedFunctions: dump.exportedFunctions,
    aliases: dump.aliases,
  };
}

export class Session implements ShellSession {
  readonly id = `sess_${randomBytes(6).toString("hex")}`;
  readonly #host: SessionHost;
  readonly #start: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> };
  readonly #closing = new Stop();
  readonly #onClose: () => void;
  #state: ShellState | null = null;
  /** Whether a call has run, so that the first folder was there. */
  #entered = false;
  /** Whether the state was read back once: a fresh shell may have functions from its variables. */
  #wasRead = false;
  #queue: Promise<unknown> = Promise.resolve();

  constructor(
    host: SessionHost,
    start: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> },
    onClose: () => void,
  ) {
    this.#onClose = onClose;
    this.#host = host;
    this.#start = start;
  }

  get cwd(): string {
    return this.#state ? fromBytes(this.#state.cwd) : (this.#start.cwd ?? this.#host.workspace);
  }

  /** The state as it is between calls, for a background process that starts with it. */
  async state(): Promise<ShellState> {
    this.#state ??= await this.#fresh();
    return this.#state;
  }

  exec(command: Command, options: ExecOptions = {}): Promise<ExecResult> {
    let begun = false;
    const call = this.#queue.then(() => {
      begun = true;
      return this.#exec(command, options);
    });
    // The next call waits for this one, however it ends.
    this.#queue = call.catch(() => undefined);
    const { abortSignal } = options;
    if (!abortSignal) return call;
    // A call that is aborted in the queue answers at once; when its turn comes it does nothing.
    return new Promise((resolve, reject) => {
      const answer = () => {
        if (!begun) resolve(abortedResult(this.cwd));
      };
      abortSignal.addEventListener("abort", answer, { once: true });
      call.then(resolve, reject).finally(() => abortSignal.removeEventListener("abort", answer));
    });
  }

  async close(): Promise<void> {
    this.#closing.stop();
    await this.#queue;
    this.#onClose();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** What cannot be brought back is dropped, said, and does not keep the session from its next command. */
  async #exec(command: Command, options: ExecOptions): Promise<ExecResult> {
    try {
      return await this.#execOnce(command, options);
    } catch (error) {
      if (!isMoorageError(error, "INTERNAL") || error.details.unrestored !== true) throw error;
      const { cwd, oldCwd } = await this.state();
      this.#state = { ...(await this.#fresh()), cwd, oldCwd };
      this.#wasRead = false;
      const result = await this.#execOnce(command, options);
      const note = "The session's variables, functions and aliases could not be brought back and are dropped";
      return { ...result, notes: [note, ...result.notes] };
    }
  }

  async #execOnce(command: Command, options: ExecOptions): Promise<ExecResult> {
    checkCommand(command);
    checkOptions(options);
    if (this.#closing.stopped)
      throw new MoorageError("SESSION_CLOSED", `Cannot run: session ${this.id} is closed`);
    if (options.abortSignal?.aborted) return abortedResult(this.cwd);
    const state = await this.state();
    const plain = this.#wasRead && typeof command === "string" && isPlain(command, state);
    const atStart = !this.#entered && this.#start.cwd !== undefined && options.cwd === undefined;
    const { result, dump, worker, movedTo } = await this.#host.run({
      command,
      // The folder that the session was opened for must be there; one that it went to may be gone.
      options: atStart ? { ...options, cwd: fromBytes(state.cwd) } : options,
      stops: [this.#closing],
      state,
      base: fromBytes(state.cwd),
      dump: !plain,
      plain,
    });
    if (plain && movedTo !== null) this.#state = { ...state, cwd: movedTo };
    if (!dump || !worker) return result;
    this.#entered = true;
    this.#wasRead = true;
    const callEnv = new Map(
      Object.entries(options.env ?? {}).map(([name, value]) => [name, toBytes(value)] as const),
    );
    const next = nextState(state, dump, worker.facts.variables, callEnv);
    const oversized = oversizedVariables(next.variables).filter(
      (name) => !oversizedVariables(state.variables).includes(name),
    );
    // A folder asked for one command is left again with it.
    this.#state = options.cwd === undefined ? next : { ...next, cwd: state.cwd, oldCwd: state.oldCwd };
    if (oversized.length === 0) return result;
    return {
      ...result,
      notes: [
        ...result.notes,
        `Too long for the kernel to pass on, so kept as shell variables that are not exported: ${oversized.join(", ")}`,
      ],
    };
  }

  async #fresh(): Promise<ShellState> {
    const state = await this.#host.freshState();
    const variables = new Map(state.variables);
    for (const [name, value] of Object.entries(this.#start.env ?? {})) variables.set(name, toBytes(value));
    const { cwd } = this.#start;
    return {
      ...state,
      cwd: cwd === undefined ? state.cwd : toBytes(resolveCwd(cwd, this.#host.workspace, this.#host.home())),
      variables,
    };
  }
}
