/**
 * The process of the next sandbox, forked while nobody waits. A program that this process starts is a copy of this whole
 * process first, which takes Node milliseconds, and slows what it does after it: where a sandbox has come up, a small
 * bash is started just as bwrap would be, for the next one. It waits for what it is to become, on the descriptor of
 * bwrap's arguments, and becomes that by `exec`: number, group, parent and descriptors stay as they are.
 */
import { type ChildProcess, type StdioOptions, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { Socket } from "node:net";
import { getPriority } from "node:os";
import { quote, quoteAll } from "../../shell/quote.ts";
import { WORKER_MARKER } from "../../shell/worker.ts";

/** Digits of the length that stands before the text. */
const LENGTH_DIGITS = 8;
/**
 * `read -N` takes exactly so many bytes, in the locale that no variables make, and leaves what follows to bwrap. It fails at
 * an early end: one whose orchestrator is gone ends by it, also in the middle of the text.
 */
const WAIT = `IFS= read -r -N ${LENGTH_DIGITS} -u 3 length && IFS= read -r -N "$length" -u 3 text && eval "$text"`;
/** What bash puts into the environment of a program. bwrap makes a `PWD` of its own. */
const OF_BASH = ["_", "OLDPWD", "SHLVL"];
/** bwrap takes 9,000 words, of which each variable is three; most are for the layout. */
const VARIABLES_MAX = 200;
/** Parts of `/proc/self/status` that a program has from who started it. */
const INHERITED_STATUS = /^(?:Umask|Uid|Gid|Groups|Cap\w+|NoNewPrivs|Seccomp|SigIgn|Cpus_allowed):.*$/gm;

interface Waiting {
  readonly child: ChildProcess;
  readonly bash: string;
  readonly likeness: string;
}

export interface Becoming {
  /** Path of the host's bash, as it is found now. */
  readonly findBash: () => string | null;
  /** Descriptors that it must not have. */
  readonly inherited: readonly number[];
}

let waiting: Waiting | null = null;

/**
 * Starts a process that waits to become bwrap, unless there is one. It keeps nobody from their end, and ends with this
 * process. Where it cannot be had nothing is done: the next start does without.
 *
 * @param mark value of `WORKER_MARKER`, by which a sweep finds it
 * @param stdio as bwrap's
 */
export function waitAhead(
  { findBash, inherited }: Becoming,
  { mark, stdio }: { readonly mark: string; readonly stdio: StdioOptions },
): void {
  const bash = waiting ? null : findBash();
  if (bash === null) return;
  const child = spawn(bash, ["--noprofile", "--norc", "-c", WAIT], {
    cwd: "/",
    env: { [WORKER_MARKER]: mark },
    detached: true,
    stdio,
  });
  waiting = { child, bash, likeness: likeness(inherited) };
  const gone = () => {
    if (waiting?.child !== child) return;
    waiting = null;
    for (const pipe of pipesOf(child)) pipe.destroy();
  };
  child.once("error", gone).once("exit", gone);
  for (const pipe of pipesOf(child)) pipe.on("error", () => {});
  hold(child, false);
}

/** Whether variables can be told to bwrap as its arguments, exactly, and nothing of them is for bwrap's own loader. */
export function areTellable(env: Readonly<Record<string, string>>): boolean {
  const entries = Object.entries(env);
  return (
    entries.length <= VARIABLES_MAX &&
    entries.every(
      ([name, value]) =>
        name !== "" && !/[=\0]/.test(name) && !/^(?:LD_|GLIBC_|MALLOC_)/.test(name) && !value.includes("\0"),
    )
  );
}

/** Options of bwrap for variables that it has not itself, come from a pipe. */
export function variableArguments(env: Readonly<Record<string, string>>): string[] {
  return [
    ...OF_BASH.flatMap((name) => ["--unsetenv", name]),
    ...Object.entries(env).flatMap(([name, value]) => ["--setenv", name, value]),
  ];
}

/**
 * Has the waiting process become a program.
 *
 * @param argv begins with a path
 * @param env variables of that program, beside those of bash
 * @returns null when there is none, or it is not as one that is started now would be
 */
export function becomeOf(
  { findBash, inherited }: Becoming,
  { argv, env }: { readonly argv: readonly string[]; readonly env: Readonly<Record<string, string>> },
): ChildProcess | null {
  if (!waiting) return null;
  const { child, ...one } = waiting;
  waiting = null;
  const [, , , pipe] = pipesOf(child);
  if (!pipe || one.bash !== findBash() || one.likeness !== likeness(inherited) || !isWaiting(child)) {
    end(child);
    return null;
  }
  hold(child, true);
  const text = [
    "unset PWD OLDPWD SHLVL",
    ...Object.entries(env).map(([name, value]) => `export ${name}=${quote(value)}`),
    `exec ${quoteAll(argv)}`,
  ].join("\n");
  pipe.write(`${String(Buffer.byteLength(text)).padStart(LENGTH_DIGITS, "0")}${text}`);
  return child;
}

/** What a program has from this process without being told, as far as it can change in this one's life. */
function likeness(inherited: readonly number[]): string {
  const status = own("status").match(INHERITED_STATUS) ?? [];
  const files = ["limits", "cgroup", "oom_score_adj"].map(own);
  return JSON.stringify([inherited, status, getPriority(), ...files]);
}

function own(name: string): string {
  try {
    return readFileSync(`/proc/self/${name}`, "latin1");
  } catch {
    // A kernel without it.
    return "";
  }
}

/** One that was just killed, or stopped, sleeps no more, though its end is not told yet. */
function isWaiting({ pid, exitCode, signalCode }: ChildProcess): boolean {
  if (pid === undefined || exitCode !== null || signalCode !== null) return false;
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return /^S/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    // It is gone.
    return false;
  }
}

function end(child: ChildProcess): void {
  for (const pipe of pipesOf(child)) pipe.destroy();
  child.kill("SIGKILL");
}

function hold(child: ChildProcess, held: boolean): void {
  for (const each of [child, ...pipesOf(child)]) {
    if (held) each.ref();
    else each.unref();
  }
}

/** The pipes that stand in its `stdio`, in their order; the types do not know all of them. */
function pipesOf(child: ChildProcess): Socket[] {
  // There are none where there were no descriptors left.
  return ((child.stdio ?? []) as readonly unknown[]).filter((pipe) => pipe instanceof Socket);
}
