/**
 * The process of the next sandbox, forked while nobody waits. A program that this process starts is a copy of this whole
 * process first, which takes Node milliseconds, and slows what it does after it: where a sandbox has come up, the next
 * one's process is started just as it would be then, and waits on the descriptor of bwrap's arguments. It is bwrap itself,
 * which looks at nothing of the machine before it has them. Where bwrap is to begin in mounts of its own, which must be
 * those of that moment, it is a small bash, which is told what to become and becomes that by `exec`: number, group, parent
 * and descriptors stay as they are.
 */
import { type ChildProcess, type StdioOptions, spawn } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { Socket } from "node:net";
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
const INHERITED_STATUS =
  /^(?:Umask|Uid|Gid|Groups|Cap\w+|NoNewPrivs|Seccomp|SigIgn|Cpus_allowed|Mems_allowed):.*$/gm;

/** What a sandbox is started with, as far as it can be known ahead. */
export interface Start {
  /** The command of bwrap; begins with a path. For a process to which these descriptors lead nowhere. */
  readonly bwrap: (inherited: readonly number[]) => readonly string[];
  /** Words before it, of a program that makes mounts of its own; begins with a path, or is empty. */
  readonly wrapper: readonly string[];
  /** Path of the host's bash, as it is found now. */
  readonly findBash: () => string | null;
}

interface Waiting {
  readonly child: ChildProcess;
  readonly argv: readonly string[];
  readonly likeness: string;
  readonly inherited: readonly number[];
  readonly mark: string;
}

let waiting: Waiting | null = null;

/**
 * Starts a process that waits to become a sandbox, unless there is one. It keeps nobody from their end, and ends with this
 * process: without its arguments bwrap has no file system to find its program in. Where it cannot be had nothing is done:
 * the next start does without.
 *
 * @param start as it is at present, which the next one's must be like
 * @param mark value of `WORKER_MARKER`, by which a sweep finds it
 * @param stdio as bwrap's
 * @param inherited descriptors that it must not have, and that lead nowhere by `stdio`
 * @returns null where it starts none
 */
export function waitAhead(
  start: Start,
  { mark, stdio, inherited }: Pick<Waiting, "mark" | "inherited"> & { readonly stdio: StdioOptions },
): ChildProcess | null {
  const argv = waiting ? null : waitingArgv(start, start.bwrap(inherited));
  if (argv === null) return null;
  const [file = "", ...words] = argv;
  const one = { argv, likeness: likeness(file), inherited, mark };
  const child = spawn(file, words, { cwd: "/", env: { [WORKER_MARKER]: mark }, detached: true, stdio });
  waiting = { ...one, child };
  const gone = () => {
    if (waiting?.child !== child) return;
    waiting = null;
    for (const pipe of pipesOf(child)) pipe.destroy();
  };
  child.once("error", gone).once("exit", gone);
  for (const pipe of pipesOf(child)) pipe.on("error", () => {});
  hold(child, false);
  return child;
}

/** Null where there is nobody who could wait. */
function waitingArgv({ wrapper, findBash }: Start, command: readonly string[]): readonly string[] | null {
  if (wrapper.length === 0) return command;
  const bash = findBash();
  return bash === null ? null : [bash, "--noprofile", "--norc", "-c", WAIT];
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
function variableArguments(env: Readonly<Record<string, string>>): string[] {
  return [
    ...OF_BASH.flatMap((name) => ["--unsetenv", name]),
    ...Object.entries(env).flatMap(([name, value]) => ["--setenv", name, value]),
  ];
}

/**
 * Has the waiting process become a sandbox's. It begins at once, and what else is to be known is looked up meanwhile: bwrap
 * makes nothing before it has its arguments.
 *
 * @param mark value of `WORKER_MARKER`, if it is not to have another
 * @param env variables that it is to have
 * @returns the process, by what a sweep finds it, which descriptors lead nowhere in it, and bwrap's options for the
 * variables; null when there is none, or it is not as one that is started now would be
 */
export function becomeOf(
  start: Start,
  { mark, env }: { readonly mark: string; readonly env: () => Readonly<Record<string, string>> },
): (Pick<Waiting, "child" | "mark" | "inherited"> & { readonly variables: readonly string[] }) | null {
  if (!waiting) return null;
  const { child, inherited, ...one } = waiting;
  const command = start.bwrap(inherited);
  const argv = waitingArgv(start, command);
  waiting = null;
  const [, , , pipe] = pipesOf(child);
  if (!pipe || !isSame(argv, one.argv) || !isWaiting(child)) {
    end(child);
    return null;
  }
  hold(child, true);
  if (argv !== command) {
    const text = [
      "unset PWD OLDPWD SHLVL",
      `export ${WORKER_MARKER}=${quote(mark)}`,
      `exec ${quoteAll([...start.wrapper, ...command])}`,
    ].join("\n");
    pipe.write(`${String(Buffer.byteLength(text)).padStart(LENGTH_DIGITS, "0")}${text}`);
  }
  const variables = env();
  if (one.likeness !== likeness(argv[0]) || !areTellable(variables)) {
    end(child);
    return null;
  }
  return {
    child,
    inherited,
    mark: argv === command ? one.mark : mark,
    variables: variableArguments(variables),
  };
}

function isSame(one: readonly string[] | null, other: readonly string[]): one is readonly string[] {
  return one !== null && one.length === other.length && one.every((word, index) => word === other[index]);
}

/** What a program has from this process without being told, as far as it can change in this one's life, and its file. */
function likeness(file = ""): string {
  const status = own("status").match(INHERITED_STATUS) ?? [];
  const files = ["limits", "cgroup", "oom_score_adj"].map(own);
  const stat = statSync(file, { throwIfNoEntry: false });
  return JSON.stringify([status, scheduling(), ...files, stat?.dev, stat?.ino, stat?.ctimeMs]);
}

/** Niceness, and the priority and policy of the 40th and 41st field. */
function scheduling(): readonly string[] {
  const stat = own("stat");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return [16, 37, 38].map((index) => fields[index] ?? "");
}

function own(name: string): string {
  try {
    return readFileSync(`/proc/self/${name}`, "utf8");
  } catch {
    // A kernel without it.
    return "";
  }
}

/** One that was just killed, or stopped, sleeps no more, though its end is not told yet. */
function isWaiting({ pid, exitCode, signalCode }: ChildProcess): boolean {
  if (pid === undefined || exitCode !== null || signalCode !== null) return false;
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return /^S/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    // It is gone.
    return false;
  }
}

function end(child: ChildProcess): void {
  // First of all: by the end of its arguments bwrap would begin, and what it has forked by its end would wait for ever.
  child.kill("SIGKILL");
  for (const pipe of pipesOf(child)) pipe.destroy();
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
