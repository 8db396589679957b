/** Background processes of an environment that has a system shell. Their state lives in the environment alone. */
import { MoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import { shellLines } from "../../../src/line-ends.ts";
import type {
  Command,
  EnvironmentProcess,
  EnvironmentProcesses,
  ProcessInfo,
  ProcessOptions,
  PtySize,
  ShellSession,
} from "../../base.ts";
import { checkCommand, checkCondition, checkOptions, checkSlice } from "../checks.ts";
import { signalName } from "../signals.ts";
import { fromBytes } from "../state.ts";
import type { SystemShell } from "../stream.ts";
import { inTurn } from "../turns.ts";
import { resolveCwd } from "../working-directory.ts";
import { endProcesses, killProcess, listProcesses } from "./end.ts";
import { launch } from "./launch.ts";
import { LOG_DEFAULT_BYTES, readLog } from "./log.ts";
import { parseRecords, recordScript, recordsFolder } from "./record.ts";
import { JoinedWaits } from "./shared-wait.ts";
import { closeStdin, writeStdin } from "./stdin.ts";
import { isListening, waitFor } from "./wait.ts";

export interface ProcessesFacts {
  /** Part of the marker by which what a dead orchestrator left behind is found. */
  readonly environmentId: string;
  /** Variable that marks what a worker started. */
  readonly markerName: string;
  readonly workspace: () => string;
  /** Whether waits share requests, since each request costs much more than a look at a process. */
  readonly joinsWaits: boolean;
  /** cwd and variables, one byte a character, of a session, or of a fresh one. */
  readonly variables: (
    session: ShellSession | undefined,
  ) => Promise<{ readonly cwd: string; readonly variables: ReadonlyMap<string, string | null> }>;
}

export interface ShellProcesses extends EnvironmentProcesses {
  /**
   * Ends all processes of the environment with everything that they started, and removes their records.
   * @throws {MoorageError} CLEANUP_FAILED naming what survived; its records stay
   */
  stopAll(): Promise<void>;
  /** Whether something inside the environment listens on this TCP port. */
  listening(port: number): Promise<boolean>;
}

/** Members expect that the environment was started; options are checked as those of `exec` are. */
export function createProcesses(system: SystemShell, facts: ProcessesFacts): ShellProcesses {
  const list = async (): Promise<readonly ProcessInfo[]> =>
    listProcesses(system, await recordsFolder(system));
  const waits = facts.joinsWaits ? new JoinedWaits(system) : null;
  const handle = async (id: string): Promise<EnvironmentProcess> =>
    new ShellProcess(system, `${await recordsFolder(system)}/${id}`, id, waits);

  const start = async (command: Command, options: ProcessOptions = {}): Promise<EnvironmentProcess> => {
    checkCommand(command);
    const { cwd, env = {}, session, title } = options;
    checkOptions({ env, ...(cwd !== undefined && { cwd }) });
    if (title?.includes("\0")) {
      throw new MoorageError("INVALID_ARGUMENTS", "Cannot start the process: its title holds a NUL byte");
    }
    const state = await facts.variables(session);
    const base = session ? fromBytes(state.cwd) : facts.workspace();
    const pty = checkPty(options.pty ?? false);
    const variables = new Map<string, string | null>();
    for (const [name, value] of state.variables)
      variables.set(name, value === null ? null : fromBytes(value));
    for (const [name, value] of Object.entries(env)) variables.set(name, value);
    const request = {
      command: typeof command === "string" ? shellLines(command) : command,
      title: title ?? null,
      cwd: cwd === undefined ? base : resolveCwd(cwd, base, system.home),
      variables,
      pty,
      stdin: options.stdin !== "closed" || pty !== null,
      environmentId: facts.environmentId,
      markerName: facts.markerName,
    };
    const folder = await recordsFolder(system);
    let id = await launch(system, folder, request);
    if (id === null) {
      // Lost processes count until they are looked at.
      await list();
      id = await launch(system, folder, request);
    }
    if (id !== null) return handle(id);
    throw new MoorageError(
      "EXECUTION_REFUSED",
      `Cannot start the process: ${limits.maxProcesses} run already`,
      { suggestion: "End a background process first." },
    );
  };

  const get = async (id: string): Promise<EnvironmentProcess> => {
    const found = (await list()).filter(
      (info) => info.id === id || (id.length >= PREFIX_MIN && info.id.startsWith(id)),
    );
    const [only] = found;
    if (only && found.length === 1) return handle(only.id);
    throw new MoorageError(
      "PROCESS_MISSING",
      found.length === 0
        ? `There is no process "${id}"`
        : `"${id}" begins the ids of ${found.length} processes: ${found.map((info) => info.id).join(", ")}`,
    );
  };

  const stopAll = async (): Promise<void> => {
    const folder = await recordsFolder(system);
    const survivors = await endProcesses(system, folder, await listProcesses(system, folder));
    if (survivors.length === 0) return;
    const names = survivors.map(({ pid, command }) => `${pid} (${command})`).join(", ");
    throw new MoorageError("CLEANUP_FAILED", `Cannot end processes: ${names}`, { details: { survivors } });
  };

  return { start, list, get, stopAll, listening: (port) => isListening(system, port) };
}

const PREFIX_MIN = 4;

function checkPty(pty: boolean | PtySize): PtySize | null {
  if (pty === true) return { columns: 80, rows: 24 };
  if (pty === false) return null;
  for (const name of ["columns", "rows"] as const) {
    if (!(Number.isInteger(pty[name]) && pty[name] > 0 && pty[name] < 65_536)) {
      throw new MoorageError(
        "INVALID_ARGUMENTS",
        `Cannot open a terminal: ${name} must be between 1 and 65535, not ${pty[name]}`,
      );
    }
  }
  return pty;
}

class ShellProcess implements EnvironmentProcess {
  readonly id: string;
  readonly #system: SystemShell;
  readonly #folder: string;
  readonly #waits: JoinedWaits | null;

  constructor(system: SystemShell, folder: string, id: string, waits: JoinedWaits | null) {
    this.#system = system;
    this.#folder = folder;
    this.#waits = waits;
    this.id = id;
  }

  async info(): Promise<ProcessInfo> {
    const script = recordScript(this.#folder, 'show "$folder"\nfolder=${folder%/*}\nsizes');
    const { stdout } = await this.#system.run(script, { repeatable: true });
    const [info] = parseRecords(stdout);
    if (info) return info;
    throw this.#missing();
  }

  async log(options: { readonly offset?: number; readonly maxBytes?: number } = {}) {
    const { offset = 0, maxBytes = LOG_DEFAULT_BYTES } = options;
    checkSlice({ offset, maxBytes });
    const slice = await readLog(this.#system, this.#folder, { offset, maxBytes });
    if (slice) return slice;
    throw this.#missing();
  }

  write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    // Concurrent writes must not mix.
    return inTurn(this.#system, this.id, () => writeStdin(this.#system, this.#folder, this.id, bytes));
  }

  closeStdin(): Promise<void> {
    return inTurn(this.#system, this.id, () => closeStdin(this.#system, this.#folder, this.id));
  }

  async signal(signal: string): Promise<void> {
    const name = signalName(signal);
    // On a terminal the signal goes where a key would send it: to the foreground group.
    const script = recordScript(
      this.#folder,
      `look "$folder" || exit 2
[ $status = running ] && alive "$pid" "$start" || exit 3
[ "\${terminal:-0}" -gt 0 ] && group=$terminal
if [ "\${group:-0}" = "$pid" ] || [ "\${terminal:-0}" -gt 0 ]; then kill -${name} "-$group"; else kill -${name} "$pid"; fi`,
    );
    const { exitCode, stderr } = await this.#system.run(script);
    if (exitCode === 0) return;
    if (exitCode === 2) throw this.#missing();
    if (exitCode === 3) {
      throw new MoorageError("PROCESS_NOT_RUNNING", `Cannot signal ${this.id}: it has ended`);
    }
    throw new MoorageError("INTERNAL", `Cannot signal ${this.id}: ${stderr.trim()}`);
  }

  async kill() {
    const survivors = await killProcess(this.#system, this.#folder, this.id);
    return { info: await this.info(), survivors };
  }

  async wait(condition: Parameters<EnvironmentProcess["wait"]>[0] = {}) {
    checkCondition(condition);
    const { port, logPattern } = condition;
    const isForEnd = port === undefined && logPattern === undefined;
    const { reason, match, info } =
      this.#waits && isForEnd
        ? await this.#waits.wait(this.#folder.slice(0, this.#folder.lastIndexOf("/")), this.id, condition)
        : { ...(await waitFor(this.#system, this.#folder, condition)), info: null };
    if (reason === "missing") throw this.#missing();
    return { reason, match, info: info ?? (await this.info()) };
  }

  #missing(): MoorageError {
    return new MoorageError("PROCESS_MISSING", `There is no process "${this.id}"`, {
      details: { retentionMs: limits.processRetentionMs },
    });
  }
}
