/** Starts the process that is bwrap: one that waits to become it, or a new one. */
import { type ChildProcess, type StdioOptions, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, openSync } from "node:fs";
import { Socket } from "node:net";
import { hostProgram } from "../../host-programs.ts";
import { ownerLabel } from "../../owner.ts";
import { WORKER_MARKER } from "../../shell/worker.ts";
import { areTellable, becomeOf, type Start, waitAhead } from "./ahead.ts";
import { covering, inheritedDescriptors } from "./inherited.ts";
import type { Owner } from "./sandbox.ts";

/** Ends the mark of bwrap's own processes. */
export const SANDBOX_MARK = ".sandbox";
/** Begins the mark of one that waits, followed by a name, a dot and its owner: no record tells of it. */
const WAITING_MARK = "ahead-";

/** Whose process waits by that mark; null for every other mark. */
export function ownerOfWaiting(mark: string): { readonly name: string; readonly owner: string } | null {
  if (!mark.startsWith(WAITING_MARK) || !mark.endsWith(SANDBOX_MARK)) return null;
  const [name = "", owner = ""] = mark.slice(0, -SANDBOX_MARK.length).split(".");
  return { name, owner };
}

/**
 * Of bwrap: its standard streams; arguments and filter are read from 3 and 4; 5 tells what was made. The door's channel
 * comes after.
 */
export const DESCRIPTORS = 6;

export interface Launch extends Pick<Start, "bwrap"> {
  readonly wrapper: () => Start["wrapper"];
  readonly env: () => Readonly<Record<string, string>>;
  /** Value of `WORKER_MARKER`. */
  readonly mark: string;
  /** As whom, if not as who this process is. */
  readonly owner: Owner | null;
  readonly hasDoor: boolean;
  /** Of system calls, as bwrap reads it. */
  readonly filter: Buffer;
  readonly workspace: string;
}

export interface Launched {
  readonly child: ChildProcess;
  /** Options for the variables that bwrap has not from its start. */
  readonly variables: readonly string[];
  /** Descriptors that this process was started with, which lead nowhere in it. */
  readonly inherited: readonly number[];
  /** Its value of `WORKER_MARKER`, which is another where it was started ahead. */
  readonly mark: string;
}

/** @throws what `spawn` throws */
export function launch(options: Launch): Launched {
  const { bwrap, wrapper, mark, owner, hasDoor, filter } = options;
  const ahead = owner === null && !hasDoor ? becomeOf(startOf(options), options) : null;
  if (ahead) return ahead;
  const inherited = inheritedDescriptors(hasDoor ? DESCRIPTORS + 1 : DESCRIPTORS);
  const [file = "", ...words] = [...wrapper(), ...bwrap(inherited)];
  const child = withDescriptors({ filter, inherited, hasDoor }, (stdio) =>
    spawn(file, words, {
      // Where it stands must not keep a folder of the host's busy.
      cwd: "/",
      env: { ...options.env(), [WORKER_MARKER]: mark },
      ...(owner && { uid: owner.uid, gid: owner.gid }),
      detached: true,
      stdio,
    }),
  );
  return { child, variables: [], inherited, mark };
}

function startOf({ bwrap, wrapper, workspace }: Launch): Start {
  return { bwrap, wrapper: wrapper(), findBash: () => hostProgram("bash", [workspace]) };
}

/** Has a process wait for the next sandbox, where this one was such as it can become. */
export function launchNext(options: Launch): void {
  const { owner, hasDoor, env, filter } = options;
  if (owner !== null || hasDoor || !areTellable(env())) return;
  try {
    const inherited = inheritedDescriptors(DESCRIPTORS);
    const mark = `${WAITING_MARK}${randomBytes(6).toString("hex")}.${ownerLabel()}${SANDBOX_MARK}`;
    withDescriptors({ filter, inherited, hasDoor }, (stdio) =>
      waitAhead(startOf(options), { mark, stdio, inherited }),
    );
  } catch {
    // There are no more descriptors, say: whoever starts the next one does without.
  }
}

/** Starts a program with bwrap's descriptors; what it is to read of the filter waits for it. */
function withDescriptors<Started extends ChildProcess | null>(
  { filter, inherited, hasDoor }: Pick<Launch, "filter" | "hasDoor"> & Pick<Launched, "inherited">,
  start: (stdio: StdioOptions) => Started,
): Started {
  const nothing = openSync("/dev/null", "r+");
  try {
    const first = hasDoor ? DESCRIPTORS + 1 : DESCRIPTORS;
    const child = start([
      ...Array.from({ length: DESCRIPTORS }, () => "pipe" as const),
      ...(hasDoor ? (["ipc"] as const) : []),
      ...covering(inherited, { first, nothing }),
    ]);
    const pipe: unknown = child?.stdio?.[4];
    if (pipe instanceof Socket) {
      // One that ends before it has read it takes none.
      pipe.on("error", () => {});
      pipe.end(filter, () => pipe.destroy());
    }
    return child;
  } finally {
    closeSync(nothing);
  }
}
