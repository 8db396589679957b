/** What the texts for a shell are made of: frames, words, assignments, the end of a call. */

import { quote } from "./quote.ts";
import { oversizedVariables } from "./state.ts";

export type ShellKind = "bash" | "sh";

/** Frames on the control stream unless said otherwise. */
export const FRAME = {
  /** Login environment: exports. */
  login: "l",
  /** Shell is up: shell, pid, home, cwd, uid, reaper, its children, functions that bash has of its variables, exports. */
  hello: "h",
  /**
   * On each stream that the command writes to: everything that the session keeps was brought back, and what follows
   * is the command's. What came before belongs to a child of an earlier one.
   */
  begun: "b",
  /** The shell waits for the standard input's bytes. */
  stdin: "i",
  /** The asked working directory cannot be entered: reason. */
  workdir: "w",
  /** The session's cwd is gone: the folder used instead. */
  moved: "m",
  /** State after the call: exports (PWD and OLDPWD among them), then in bash aliases, function flags, functions. */
  state: "s",
  /**
   * With the last `begun`, where no earlier call has told of them: children of the reaper before the call, and the
   * shell's own stat line. With a greeting: the path of bash instead of the children.
   */
  before: "k",
  /**
   * On both streams: secret, exit code, children of the reaper, and of the new ones, where the shell ends with its
   * call, those that hold its outputs. Nothing of the call follows. Where nothing came before it, the children before
   * the call too; if they are the same, none are told.
   */
  end: "e",
  /** On each stream that its call may have: a subshell of `readyScript` waits, and what follows is its call's. */
  ready: "r",
  /** What `end` tells, from a call's own subshell. */
  told: "t",
  /** On the data stream: the subshell could not be set up for its call, and the command did not run. */
  unready: "u",
  /** On the data stream: whether the shell had to drop the text of a call that nobody was left to run. */
  dropped: "d",
} as const;

/** `printf` format that writes a frame whose body is `body`, itself a format. It has no quote that would end another. */
export function frame(nonce: string, kind: string, body = ""): string {
  return `"\\000${nonce}${kind}${body}\\000${nonce};"`;
}

/** Exit code of a shell that does not know where the next call begins, and runs none. */
export const PLACE_LOST = 121;

/** Has a shell end that lost its place. */
export const LEAVE = `trap - EXIT; exit ${PLACE_LOST}`;

/** A text that no shell reads otherwise than as it is written, also behind the `=` of an assignment. */
const BARE = /^[\w./:@%+,=-]+$/;

/** One word on one line: in bash, text after it keeps its line number. */
export function word(shell: ShellKind, text: string): string {
  if (BARE.test(text)) return text;
  if (shell === "sh" || !text.includes("\n")) return quote(text);
  return `$'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'").replaceAll("\n", "\\n")}'`;
}

/** In few statements. Variables too long for the kernel stay in the shell, lest no program could be started. */
export function assignments(
  shell: ShellKind,
  variables: ReadonlyMap<string, string | null>,
  isAllowed: (name: string) => boolean,
): string[] {
  const tooLong = new Set(oversizedVariables(variables));
  const words: Readonly<Record<"unset" | "keep" | "export", string[]>> = { unset: [], keep: [], export: [] };
  for (const [name, value] of variables) {
    if (!isAllowed(name) || (name === "POSIXLY_CORRECT" && value !== null)) continue;
    if (value === null) words.unset.push(name);
    else words[tooLong.has(name) ? "keep" : "export"].push(`${name}=${word(shell, value)}`);
  }
  return [
    ...(words.unset.length > 0 ? [`unset ${words.unset.join(" ")}`] : []),
    ...words.keep,
    ...(words.export.length > 0 ? [`export ${words.export.join(" ")}`] : []),
  ];
}

/**
 * Statements that add the children of a process to `__moor_a`. The kernel leaves one out when another is gone in the
 * middle of the list; that other is then missing in the next one, so two equal lists are whole. The usual case comes
 * without a loop, since who waits for it has just been forked, and every word costs.
 */
export function childrenScript(pid: string): string {
  const list = `/proc/${pid}/task/${pid}/children`;
  return `__moor_k= __moor_l= __moor_i=0; read -r __moor_k <${list}; read -r __moor_l <${list}; __moor_a="$__moor_a$__moor_k "; ${untilWhole(list)}`;
}

/**
 * Reads a list whose last answers are in `__moor_k` and `__moor_l` until two of them agree; each is added to
 * `__moor_a`.
 */
export function untilWhole(list: string): string {
  return `while [ "$__moor_k" != "$__moor_l" ] && [ "$__moor_i" -lt 20 ]; do __moor_a="$__moor_a$__moor_l " __moor_k=$__moor_l __moor_l= __moor_i=$((__moor_i + 1)); read -r __moor_l <${list}; done`;
}

/**
 * Defines `environ PID`, which is true when `marked` is of a line of the variables with which that process began, and
 * otherwise sets `seen` when they were read whole. While a process begins another program it has none for a moment, and
 * what a shell has read by then, dash and BusyBox byte by byte, is all that it gets: only two readings that agree tell
 * that something is not among them.
 */
export const READ_ENVIRON = `environ() {
  seen= before= tries=0 most=50
  [ -r "/proc/$1/environ" ] || return 1
  while [ -z "$seen" ] && [ "$tries" -lt "$most" ]; do
    tries=$((tries + 1)) all=
    while IFS= read -r l || [ -n "$l" ]; do
      if marked "$l"; then return 0; fi
      all=$all$l
    done <"/proc/$1/environ"
    if [ -n "$all" ]; then
      if [ "$all" = "$before" ]; then seen=1; fi
      before=$all most=1000
    fi
  done 2>/dev/null
  return 1
}`;

/**
 * For what follows a command in a shell that ends with it: shorter names are read sooner, and nobody's are in the
 * way.
 */
export function shortNames(script: string): string {
  return script.replaceAll("__moor_", "");
}

/** What the end of a call depends on. */
export interface Ends {
  readonly nonce: string;
  /** Proves an end frame. The nonce can be read by the command, in the text of its EXIT trap; this cannot. */
  readonly secret: string;
  /** The process that adopts this shell's orphans, whose children are listed at the end; null when it is not known. */
  readonly reaper: string | null;
  /**
   * Whether the shell ends with the call, so that nobody can ask later what its descriptors were. The call's text comes
   * after `oncePreamble`. @default false
   */
  readonly once?: boolean;
}

/** `printf` with the frame that ends a call. */
export function endFrame({ nonce, secret }: Ends): string {
  return `printf '\\000${nonce}${FRAME.end}${secret}\\000%s\\000%s\\000%s\\000${nonce};' "$__moor_e" "$__moor_a" "$__moor_h"`;
}

/** `printf` with the end of a stream that is told nothing more. */
export function streamEndFrame({ nonce, secret }: Ends): string {
  return `printf '\\000${nonce}${FRAME.end}${secret}\\000${nonce};'`;
}

/** Ends a call: the exit code with the children of the one who adopts our orphans, and an end on each stream. */
export function endScript(call: Ends): string {
  const { reaper, once } = call;
  // The shell's own stderr goes nowhere, so a list that cannot be read is an empty one.
  const look = reaper === null ? "" : `${childrenScript(reaper)}; `;
  return `__moor_e=$? __moor_a= __moor_h=; ${look}${once && reaper !== null ? `${holdersScript("$__moor_b", 8, 9)}; ` : ""}${endFrame(call)} >&8
${streamEndFrame(call)} >&9
unset __moor_e __moor_a __moor_k __moor_l __moor_i __moor_h`;
}

/**
 * Which of the reaper's new children hold an output of this shell: a child may have cleared its variables.
 *
 * @param before the children that it had before, as a word
 * @param output and `errors`: the outputs' descriptors
 */
export function holdersScript(before: string, output: number, errors: number): string {
  return `for __moor_p in $__moor_a; do case " ${before} " in *" $__moor_p "*) continue;; esac; for __moor_f in /proc/$__moor_p/fd/*; do if [ "$__moor_f" -ef /proc/$$/fd/${output} ] || [ "$__moor_f" -ef /proc/$$/fd/${errors} ]; then __moor_h="$__moor_h $__moor_p"; break; fi; done; done`;
}
