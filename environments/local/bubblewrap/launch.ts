/** Starts the process that is bwrap: one that waits to become it, or a new one. */
import { type ChildProcess, type StdioOptions, spawn } from "node:child_process";
import { closeSync, openSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { hostProgram } from "../../host-programs.ts";
import { WORKER_MARKER } from "../../shell/worker.ts";
import { areTellable, becomeOf, variableArguments, waitAhead } from "./ahead.ts";
import { covering, inheritedDescriptors } from "./inherited.ts";
import type { Owner } from "./sandbox.ts";

/**
 * Of bwrap: its standard streams; arguments and filter are read from 3 and 4; 5 tells what was made. The door's channel
 * comes after.
 */
export const DESCRIPTORS = 6;

export interface Launch {
  /** Begins with a path. */
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Value of `WORKER_MARKER`. */
  readonly mark: string;
  /** As whom, if not as who this process is. */
  readonly owner: Owner | null;
  readonly hasDoor: boolean;
  /** Descriptors that it must not have. */
  readonly inherited: readonly number[];
  /** Of system calls, as bwrap reads it. */
  readonly filter: Buffer;
  /** Folder that is ours alone. */
  readonly channel: string;
  readonly workspace: string;
}

export interface Launched {
  readonly child: ChildProcess;
  /** Options for the variables that bwrap has not from its start. */
  readonly variables: readonly string[];
}

/** @throws what `spawn` throws, and where no file can be made in `channel` */
export function launch(options: Launch): Launched {
  const { argv, env, mark, owner, hasDoor, inherited, channel, filter, workspace } = options;
  if (owner === null && !hasDoor && areTellable(env)) {
    const path = env.PATH === undefined ? {} : { PATH: env.PATH };
    const child = becomeOf(
      { findBash: () => hostProgram("bash", [workspace]), inherited },
      { argv, env: { ...path, [WORKER_MARKER]: mark } },
    );
    if (child) return { child, variables: variableArguments(env) };
  }
  const [file = "", ...words] = argv;
  const child = withDescriptors({ channel, filter, inherited, hasDoor }, (stdio) =>
    spawn(file, words, {
      // Where it stands must not keep a folder of the host's busy.
      cwd: "/",
      env: { ...env, [WORKER_MARKER]: mark },
      ...(owner && { uid: owner.uid, gid: owner.gid }),
      detached: true,
      stdio,
    }),
  );
  return { child, variables: [] };
}

/** Has a process wait for the next sandbox, where this one was such as it can become. */
export function launchNext({ owner, hasDoor, env, mark, filter, channel, workspace }: Launch): void {
  if (owner !== null || hasDoor || !areTellable(env)) return;
  try {
    const inherited = inheritedDescriptors(DESCRIPTORS);
    withDescriptors({ channel, filter, inherited, hasDoor }, (stdio) =>
      waitAhead({ findBash: () => hostProgram("bash", [workspace]), inherited }, { mark, stdio }),
    );
  } catch {
    // The folder is gone with its sandbox, or there are no more descriptors: whoever starts the next one does without.
  }
}

function withDescriptors<T>(
  { channel, filter, inherited, hasDoor }: Pick<Launch, "channel" | "filter" | "inherited" | "hasDoor">,
  start: (stdio: StdioOptions) => T,
): T {
  const opened = [openPrivate(channel, filter)];
  try {
    const nothing = openSync("/dev/null", "r+");
    opened.push(nothing);
    const first = hasDoor ? DESCRIPTORS + 1 : DESCRIPTORS;
    return start([
      "pipe",
      "pipe",
      "pipe",
      "pipe",
      ...opened.slice(0, 1),
      "pipe",
      ...(hasDoor ? (["ipc"] as const) : []),
      ...covering(inherited, { first, nothing }),
    ]);
  } finally {
    for (const descriptor of opened) closeSync(descriptor);
  }
}

/** A descriptor for reading a file that has no name any more. */
function openPrivate(folder: string, bytes: Buffer): number {
  const path = join(folder, "filter");
  writeFileSync(path, bytes, { mode: 0o600, flag: "wx" });
  const descriptor = openSync(path, "r");
  rmSync(path);
  return descriptor;
}
