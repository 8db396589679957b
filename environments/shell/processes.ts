/** Background processes of an environment that has a system shell. Their state lives in the environment alone. */
import { constants } from "node:os";
import { posix } from "node:path";
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type {
  Command,
  EnvironmentProcess,
  EnvironmentProcesses,
  LeftProcess,
  ProcessInfo,
  ProcessOptions,
  ShellSession,
} from "../base.ts";
import { endRecords, killProcess, listRecords } from "./process-end.ts";
import { launch } from "./process-launch.ts";
import { LOG_DEFAULT_BYTES, readLog } from "./process-log.ts";
import { parseRecords, recordScript, recordsFolder } from "./process-record.ts";
import { closeStdin, writeStdin } from "./process-stdin.ts";
import { waitFor } from "./process-wait.ts";
import type { SystemShell } from "./stream.ts";

/** What a process takes over from a session. */
export interface SessionState {
  readonly cwd: string;
  /** Shell text that sets the session's variables, functions and aliases. */
  readonly prelude: string;
}

export interface ShellProcessesOptions {
  readonly system: SystemShell;
  /** Processes of this id are found again by a later orchestrator. No line breaks. */
  readonly environmentId: string;
  /** Names this orchestrator so that another can tell whether it lives, such as host, pid and start time. No line breaks. */
  readonly owner: string;
  /** Read at each use, since some backends learn it at their start. */
  readonly workspace: () => string;
  /** Whether the processes are to outlive the environment's `stop`. @default false */
  readonly keep?: boolean;
  readonly sessionState?: (session: ShellSession) => Promise<SessionState>;
}

export interface ShellProcesses extends EnvironmentProcesses {
  /**
   * Ends all processes of the environment with everything that they started, and removes their records.
   * @returns what survived; its records stay
   */
  stopAll(): Promise<readonly LeftProcess[]>;
}

export function createShellProcesses(options: ShellProcessesOptions): ShellProcesses {
  const { system, environmentId, owner } = options;

  const records = async () =>
    listRecords(system, await recordsFolder(system), {
      adopt: { environmentId, owner },
      retentionMs: limits.processRetentionMs,
    });
  const list = async (): Promise<readonly ProcessInfo[]> => (await records()).map(({ info }) => info);
  const handle = async (id: string): Promise<EnvironmentProcess> =>
    new ShellProcess(system, `${await recordsFolder(system)}/${id}`, id);

  const start = async (command: Command, startOptions: ProcessOptions = {}): Promise<EnvironmentProcess> => {
    const state = startOptions.session ? await options.sessionState?.(startOptions.session) : undefined;
    const base = state?.cwd ?? startOptions.session?.cwd ?? options.workspace();
    const pty = startOptions.pty ?? false;
    const request = {
      command,
      title: startOptions.title ?? null,
      cwd: startOptions.cwd === undefined ? base : posix.resolve(base, startOptions.cwd),
      env: startOptions.env ?? {},
      prelude: state?.prelude ?? "",
      pty: pty === true ? { columns: 80, rows: 24 } : pty || null,
      stdin: startOptions.stdin !== "closed" || pty !== false,
      environmentId,
      owner,
      kept: options.keep ?? false,
    };
    const folder = await recordsFolder(system);
    let id = await launch(system, folder, request);
    if (id === null) {
      // Lost processes count until they are looked at.
      await records();
      id = await launch(system, folder, request);
    }
    if (id !== null) return handle(id);
    throw new MoorageError(
      "EXECUTION_REFUSED",
      `Cannot start the process: ${limits.maxProcesses} run already`,
      { suggestion: "End a background process first; list shows them." },
    );
  };

  const get = async (id: string): Promise<EnvironmentProcess> => {
    const found = (await list()).filter(
      (info) => info.id === id || (id.length >= 4 && info.id.startsWith(id)),
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

  const stopAll = async (): Promise<readonly LeftProcess[]> =>
    endRecords(system, await recordsFolder(system), await records());

  return { start, list, get, stopAll };
}

class ShellProcess implements EnvironmentProcess {
  readonly id: string;
  readonly #system: SystemShell;
  readonly #folder: string;

  constructor(system: SystemShell, folder: string, id: string) {
    this.#system = system;
    this.#folder = folder;
    this.id = id;
  }

  async info(): Promise<ProcessInfo> {
    const script = recordScript(this.#folder, 'show "$folder"\nfolder=${folder%/*}\nsizes');
    const { stdout } = await this.#system.run(script);
    const [record] = parseRecords(stdout);
    if (record) return record.info;
    throw this.#missing();
  }

  async log(options: { readonly offset?: number; readonly maxBytes?: number } = {}) {
    const { offset = 0, maxBytes = LOG_DEFAULT_BYTES } = options;
    if (!Number.isSafeInteger(offset)) throw new RangeError("offset must be a whole number");
    if (!Number.isSafeInteger(maxBytes) || maxBytes < 1)
      throw new RangeError("maxBytes must be a positive whole number");
    const { status } = await this.info();
    return readLog(this.#system, this.#folder, { offset, maxBytes, whole: status !== "running" });
  }

  write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    return inTurn(this.#system, this.id, () => writeStdin(this.#system, this.#folder, this.id, bytes));
  }

  closeStdin(): Promise<void> {
    return inTurn(this.#system, this.id, () => closeStdin(this.#system, this.#folder, this.id));
  }

  async signal(signal: string): Promise<void> {
    const name = signal.toUpperCase().replace(/^SIG/, "");
    if (!(`SIG${name}` in constants.signals)) throw new RangeError(`"${signal}" is not a POSIX signal`);
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
    const { port } = condition;
    if (port !== undefined && !(Number.isInteger(port) && port > 0 && port < 65_536)) {
      throw new RangeError("port must be between 1 and 65535");
    }
    const { reason, match } = await waitFor(this.#system, this.#folder, condition);
    if (reason === "missing") throw this.#missing();
    return { reason, match, info: await this.info() };
  }

  #missing(): MoorageError {
    return new MoorageError("PROCESS_MISSING", `There is no process "${this.id}"`, {
      details: { retentionMs: limits.processRetentionMs },
    });
  }
}

/** The last write of each process, by system shell, so that concurrent writes do not mix. */
const turns = new WeakMap<SystemShell, Map<string, Promise<void>>>();

async function inTurn(system: SystemShell, id: string, action: () => Promise<void>): Promise<void> {
  const bySystem = turns.get(system) ?? new Map<string, Promise<void>>();
  turns.set(system, bySystem);
  const turn = (bySystem.get(id) ?? Promise.resolve()).then(action, action);
  bySystem.set(id, turn);
  try {
    await turn;
  } finally {
    if (bySystem.get(id) === turn) bySystem.delete(id);
  }
}
