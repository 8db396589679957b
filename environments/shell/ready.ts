/**
 * The subshell that bash forks ahead of a call: what it does while nobody waits, and how a call's text reaches it. What a
 * fork has just made pays for each page that it touches, so it goes through the steps of a call once before there is one.
 */
import type { CallScript, Readied } from "./call-script.ts";
import {
  assignments,
  childrenScript,
  type Ends,
  endScript,
  FRAME,
  frame,
  LEAVE,
  shortNames,
  word,
} from "./phrases.ts";
import { isKeptVariable } from "./state.ts";

/**
 * What is read at once with the head of a text: most calls need no more. It is read in the place's locale, where only
 * ASCII has as many characters as bytes.
 */
const STAGE_BYTES = 512;
const DIGITS = 10;

/** Comes between the head of a text, which is a command, and statements that are to run only if it was one. */
export const READY_GUARD = " || exit; ";

/** They would change how bash waits, or what it takes its text for. */
const MEANT_FOR_BASH =
  /^(?:BASH|CDPATH|CHILD_MAX|COLUMNS|COMP|ENV$|EXECIGNORE|FUNC|GLOB|HIST|HOME$|IFS$|IGNOREEOF|LANG|LC_|LINES$|LOCPATH|MALLOC|OPT|POSIX|PS\d|SECONDS|SRANDOM|RANDOM|TEXTDOMAIN|TMOUT$|TZ$)/;

/** Longer ones are kept in the shell. */
const BROUGHT_BYTES = 2_048;

/** Whether a session's variables can be brought before its call. */
export function canBring(variables: ReadonlyMap<string, string | null>): boolean {
  let bytes = 0;
  for (const [name, value] of variables) {
    if (MEANT_FOR_BASH.test(name)) return false;
    bytes += name.length + (value?.length ?? 0);
  }
  return bytes <= BROUGHT_BYTES;
}

/**
 * Has a text leave the locale C, in which bash reads and parses sooner. Our own scripts stay there where no program is
 * told of it.
 *
 * @param base variables of a fresh shell
 */
export function leaveC(base: ReadonlyMap<string, string>, sound = false): string {
  const locale = base.get("LC_ALL");
  if (locale !== undefined) return `LC_ALL=${word("bash", locale)}; `;
  return sound ? "" : "unset LC_ALL; ";
}

/** Statements that turn the variables that a subshell has into a call's. */
export function changesOf(
  { variables: from, base }: Pick<Readied, "variables" | "base">,
  to: ReadonlyMap<string, string | null>,
): string {
  if (from === to) return "";
  const changed = new Map([...to].filter(([name, value]) => from?.get(name) !== value));
  for (const name of from?.keys() ?? []) if (!to.has(name)) changed.set(name, base.get(name) ?? null);
  return assignments("bash", changed, isKeptVariable).join("; ");
}

/** Undoes in the subshell what a command could see of `readyScript`. */
export function forgetReady(nonce: string): string {
  return `unset -f ${nonce} __moor_f __moor_e; `;
}

/**
 * Has bash fork the subshell of its next call before that call is known, so that the fork costs nobody time. It waits
 * for a text by `wireReady`, runs that, and its end is told as that of any call; so is its end without one. In either
 * case `afterwards` is to follow.
 *
 * The lines of a call are counted from the first line of this.
 */
export function readyScript(call: Ends & Pick<Readied, "variables" | "inC">): string {
  const { nonce, reaper, variables, inC } = call;
  const brought = variables === null ? [] : assignments("bash", variables, isKeptVariable);
  // The head of each text calls it.
  const enter = `${nonce}() { unset __moor_c; case $# in 1) return;; esac; cd -- "$2" || __moor_f "$2"; case $# in 2) unset OLDPWD;; *) OLDPWD=$3;; esac; }`;
  const fall = `__moor_f() { until cd -- "$1"; do set -- "\${1%/*}"; case $1 in /*) ;; *) cd /; break;; esac; done; printf ${frame(nonce, FRAME.moved, "%s")} "$PWD" >&8; }`;
  const rehearsal = `${nonce} 0; ${nonce} 0 / /; { : ''; } </dev/null >&8 2>&8 8>&- 9>&-; __moor_e${inC ? " 1" : ""} 2>/dev/null`;
  const wait = `IFS= read -r -N ${nonce.length + 1 + DIGITS + STAGE_BYTES} __moor_c`;
  const steps = [
    ...brought,
    `printf ${frame(nonce, FRAME.ready)} >&8`,
    // Only in the locale C is there a call with a stream for its errors.
    ...(inC ? [`printf ${frame(nonce, FRAME.ready)} >&9`] : []),
    enter,
    fall,
    toldScript(call),
    ...(inC ? ["LC_ALL=C"] : []),
    // Not while a text is there already.
    `read -t 0 || eval "${rehearsal}"`,
  ];
  return `{ unset __moor_c __moor_n __moor_q; ( ${steps.join("; ")}; ${wait} && eval "$__moor_c"
)
${endScript({ nonce, secret: call.secret, reaper })}
while LC_ALL=C IFS= read -r -N ${nonce.length + 1} __moor_t; do case $__moor_t in ${nonce}$'\\n') break;; ${nonce}' ') LC_ALL=C IFS= read -r -N ${DIGITS} __moor_n && LC_ALL=C IFS= read -r -N "$__moor_n" __moor_c; __moor_q=1;; *) ${LEAVE};; esac; done; unset __moor_t
}`;
}

/**
 * A function with which a subshell tells the end of its call. With an argument it is one of ours, which has a stream of its
 * own for errors and left no children.
 */
function toldScript({ nonce, secret, reaper }: Ends): string {
  // The reaper may have gone, of which nobody is to read.
  const look = reaper === null ? "" : `exec 2>&-; ${childrenScript(reaper)}`;
  const errors = `printf ${frame(nonce, FRAME.told, secret)} >&2`;
  const told = `printf ${frame(nonce, FRAME.told, `${secret}\\000%s\\000%s\\000%s`)} "$__moor_e" "$__moor_a" ""`;
  // The user's own IFS may be anything.
  return `__moor_e() { ${shortNames(`local __moor_e=$? __moor_a= __moor_k __moor_l __moor_i IFS=' '; case $# in 0) ${look};; *) ${errors};; esac; ${told}`)}; }`;
}

/** Asks a shell whose subshell ended without a word whether it had read its call: `FRAME.dropped` answers. */
export function droppedScript(nonce: string): string {
  return `printf ${frame(nonce, FRAME.dropped, "%s")} "$__moor_q" >&8\n`;
}

/**
 * The text of a plain line's call, without frames of its own: the least that a subshell must read.
 *
 * @param entering statements that go to the call's folder; null for those of `readyScript`
 * @param leaving see `leaveC`
 * @param variables statements that set the call's variables
 */
export function shortCall(
  call: CallScript,
  entering: readonly string[] | null,
  leaving: string,
  variables: readonly string[],
): string {
  const { cwd, nonce, state, separate } = call;
  const old = state.oldCwd === null ? "" : ` ${word("bash", state.oldCwd)}`;
  const unready = `{ printf ${frame(nonce, FRAME.unready)} >&8; exit; }`;
  const statements = [
    ...(entering ?? []),
    ...variables,
    `exec </dev/null >&8 2>&${separate ? 9 : 8} 8>&- 9>&- || ${unready}`,
    // Lest the command find a word of ours in `$_`.
    "\\builtin : ''",
  ];
  const head = entering === null ? ` ${word("bash", cwd)}${old}` : "";
  return `${head}${READY_GUARD}${leaving}${statements.join("; ")}; ${call.command}\n__moor_e${separate ? " 1" : ""}\n`;
}

/**
 * A text for a subshell of `readyScript`, whose shell drops one that comes too late for it. One byte a character.
 *
 * @param leaving see `leaveC`
 */
export function wireReady(
  { nonce, inC }: Pick<Readied, "inC"> & { readonly nonce: string },
  text: string,
  leaving: string,
): string {
  const isShort = text.length <= STAGE_BYTES && (inC || /^[\x00-\x7f]*$/.test(text));
  // Within what is read later, the head is said again.
  const rest = isShort ? "" : `${inC ? "" : leaving}${nonce} 0${text}`;
  const more = `${READY_GUARD}${inC ? "" : "LC_ALL=C; "}IFS= read -r -N ${rest.length} __moor_c && eval "$__moor_c"`;
  const stage = (isShort ? text : more).padEnd(STAGE_BYTES);
  return `${nonce} ${String(stage.length + rest.length).padStart(DIGITS, "0")}${stage}${rest}`;
}
