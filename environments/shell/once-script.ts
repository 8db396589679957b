/**
 * The text of calls in shells that end with them, where a place can only run a program to its end. Such a shell pays in
 * page faults for each word that it reads and in system calls for each that it runs, and its text travels with each
 * call: in JSON, and where a server of ours hands it on, through another shell. So it is short, and what is seldom needed
 * stands in it as a quoted word, which is read but not parsed.
 */

import type { CallScript } from "./call-script.ts";
import {
  assignments,
  FRAME,
  frame,
  holdersScript,
  type ShellKind,
  shortNames,
  untilWhole,
  word,
} from "./phrases.ts";
import { quote } from "./quote.ts";
import { bootArgv, enter, oldFolder, STARTUP_VARIABLES } from "./script.ts";
import { isKeptVariable, isSettableVariable } from "./state.ts";

/**
 * Variables that bring a call where its text must not stand in a command line, which every user of the machine can
 * read.
 */
export const ONCE_VARIABLES = { preamble: "MOORAGE_PREAMBLE", call: "MOORAGE_CALL" } as const;

/**
 * The first words of a call's text in a shell by `bashOnceArgv`. They stand on the line of the command, so that the line
 * numbers in its messages count from there.
 */
export const BASH_ONCE_HEAD = `unset ${ONCE_VARIABLES.call} BASH_EXECUTION_STRING BASH_ENV ENV; `;

/** In a shell of one call: preamble and call as arguments, or the files that hold them. */
const ONCE = `__moor_p=\${${ONCE_VARIABLES.preamble}-$1} __moor_c=\${${ONCE_VARIABLES.call}-$2}
unset ${ONCE_VARIABLES.preamble} ${ONCE_VARIABLES.call}
[ -z "$3" ] || { __moor_p=$(cat -- "$3"); __moor_c=$(cat -- "$4"); rm -f -- "$3" "$4"; }
shift $#
eval "$__moor_p"; unset __moor_p BASH_EXECUTION_STRING
eval "$__moor_c"`;

/**
 * The first lines of a call's preamble: the descriptors as they are in a resident shell, and what `FRAME.before` tells.
 */
export function oncePreamble(reaper: string | null): string {
  const look = reaper === null ? "" : `read -r __moor_b </proc/${reaper}/task/${reaper}/children; `;
  return `exec 8>&1 9>&2 >/dev/null 2>&1; __moor_b= __moor_t=; ${look}IFS= read -r __moor_t </proc/$$/stat; `;
}

export interface OnceOptions {
  /** The login shell's variables are wanted first; see `bootArgv`. */
  readonly loginNonce: string | null;
  /** Whether stdout travels as base64; `live` sends each piece as it is written, at the price of a program for each. */
  readonly encoded: boolean | "live";
}

/** `base64` itself waits for its input's end, or for a full buffer. Each piece ends in a line of its own. */
const LIVE_BASE64 =
  'while __moor_t=$(dd bs=65536 count=1 2>/dev/null | base64) && [ "$__moor_t" ]; do printf "%s\\n" "$__moor_t"; done';

/**
 * A shell for one call. Five arguments follow: preamble, call, and the paths of standard input, preamble and call,
 * each empty when there is none; the files are removed once they are open.
 */
export function onceArgv(kind: ShellKind | "auto", { loginNonce, encoded }: OnceOptions): string[] {
  const [, , boot = ""] = bootArgv(kind, loginNonce);
  const prepare = boot.slice(0, boot.lastIndexOf(`unset ${STARTUP_VARIABLES.join(" ")}`));
  const words = '"$1" "$2" "$4" "$5"';
  const start = encoded ? "" : "exec ";
  const pipe = encoded ? ` | ${encoded === "live" ? LIVE_BASE64 : "base64"}` : "";
  const bash = `${start}bash --noprofile --norc -c ${quote(ONCE)} bash ${words}${pipe}`;
  const sh = `${start}sh -c ${quote(ONCE)} sh ${words}${pipe}`;
  const pick =
    kind === "auto" ? `if command -v bash >/dev/null 2>&1; then ${bash}; else ${sh}; fi` : { bash, sh }[kind];
  const script = `${prepare}unset ${STARTUP_VARIABLES.join(" ")}
if [ -n "$3" ]; then exec <"$3"; rm -f -- "$3"; fi
${pick}`;
  return ["/bin/sh", "-c", script, "sh"];
}

/** Variables under which `bashOnceArgv` is to be started: no file is read before its first line. */
export const BASH_ONCE_VARIABLES = { BASH_ENV: "" } as const;

/**
 * A shell for one call where bash is known to be there and POSIXLY_CORRECT is not set: no other shell starts it, and all
 * of its text comes in one variable.
 *
 * @param path of bash, so that neither who starts it nor bash itself looks through the folders of PATH
 */
export function bashOnceArgv(path: string): string[] {
  return [path, "--noprofile", "--norc", "-c", `eval "$${ONCE_VARIABLES.call}"`, "bash"];
}

/** Follows a greeting: where bash is, and the shell's own stat line, as `FRAME.before` tells it. */
export function bornScript(nonce: string): string {
  return `IFS= read -r __moor_t </proc/$$/stat; printf ${frame(nonce, FRAME.before, "%s\\000%s")} "\${BASH-}" "$__moor_t" >&9`;
}

/**
 * Statements that tell the children of the reaper, and which of the new ones hold an output, where two looks at the list
 * in `$1` show others than one before the call.
 */
const ADOPTED = `a="$k " b=$__moor_b i=0; { ${shortNames(untilWhole("$1"))}; } 2>/dev/null; ${shortNames(holdersScript("$b", 1, 2))}`;

/**
 * All of a call whose line is plain and whose state is not wanted: no word of it can end its shell, which runs it without
 * a subshell, none can stand for a function or an alias, and none can name a parameter by its number, so that ours are
 * safe there. Nothing is told before the end but a folder that is gone, since each message wakes everyone on its way.
 */
export function plainOnceScript(call: CallScript & { readonly command: string }): string {
  const { shell, command, cwd, state, reaper, nonce, secret } = call;
  const mark = `"\\000${nonce}"`;
  const list = reaper === null ? "/dev/null" : `/proc/${reaper}/task/${reaper}/children`;
  // Each folder that is tried is told; the last one is where the command runs.
  const enterNearest = `until cd -- "\${3:-/}" || [ "$3" = "\${3%/*}" ]; do set -- "$1" "$2" "\${3%/*}"; printf "$2${FRAME.moved}%s$2;" "\${3:-/}"; done`;
  const posix = call.env.get("POSIXLY_CORRECT");
  const prepare = [
    "read -r __moor_b <$1",
    ...(call.cwdRequired ? enter(call, 1) : [enterNearest, oldFolder(call)]),
    ...assignments(shell, state.variables, isKeptVariable),
    ...assignments(shell, call.env, isSettableVariable),
    ...(posix ? [`export POSIXLY_CORRECT=${word(shell, posix)}`] : []),
  ].join("; ");
  // What no plain line can be is known of bash's grammar.
  const line =
    shell === "bash" ? command : `eval ${quote(command.startsWith("-") ? ` ${command}` : command)}`;
  const errors = call.separate ? `printf "$2${FRAME.end}${secret}$2;" >&2; ` : "";
  return [
    `{ exec </dev/null${call.separate ? "" : " 2>&1"} || exit; set -- ${list} ${mark} ${word(shell, cwd)}`,
    `{ ${prepare}; } 2>/dev/null`,
    // Without the empty word, the command would find one of ours in `$_`.
    ': ""',
    line,
    // The user's own IFS may be anything.
    'e=$? a= b= h= k= l= IFS=" "; { read -r k <$1; read -r l <$1; } 2>/dev/null',
    `[ "$k,$l" = "$__moor_b,$__moor_b" ] || eval ${quote(ADOPTED)}`,
    `${errors}printf "$2${FRAME.end}${secret}\\000%s\\000%s\\000%s\\000%s$2;" "$e" "$a" "$h" "$b"; }`,
  ].join("; ");
}
