/**
 * The text that our side writes to a resident shell. It is read by bash, dash and BusyBox sh alike, so it is plain
 * POSIX except where it says bash. One call is one compound command: a shell runs nothing of it before it has read
 * its end, so a call whose last byte was not sent provably did not start. docs/decisions/0001-resident-shells.md
 * tells why each line is as it is.
 *
 * Descriptors in the resident shell: 8 is the data stream (the program's stdout), 9 the control stream (its
 * stderr); its own 1 and 2 go nowhere, so that job notices and the like never reach a stream.
 */
import type { CallScript } from "./call-script.ts";
import {
  assignments,
  childrenScript,
  endFrame,
  endScript,
  FRAME,
  frame,
  LEAVE,
  type ShellKind,
  shortNames,
  streamEndFrame,
  word,
} from "./phrases.ts";
import { quote, quoteAll } from "./quote.ts";
import { changesOf, forgetReady, leaveC, READY_GUARD, shortCall } from "./ready.ts";
import {
  isKeptVariable,
  isSettableVariable,
  oversizedVariables,
  POSIX_SENTINEL,
  type ShellState,
} from "./state.ts";

/**
 * bash takes its calls from a loop on the first line of a `-c` script, so that line numbers in its messages count
 * from the first line of a command, as they do in `bash -c`; a shell that reads a script cannot be told to start anew.
 */
const BASH_LOOP =
  'while IFS= read -r __moor_n && LC_ALL=C IFS= read -r -N "$__moor_n" __moor_c; do eval "$__moor_c"; done';

/**
 * A text as the shell takes it from its stream. bash reads its number of bytes first, since it takes a text of
 * known length at once and one of unknown length byte by byte, five times as slowly.
 */
export function wire(shell: ShellKind, text: string): string {
  return shell === "bash" ? `${text.length}\n${text}` : `${text}\n`;
}

/**
 * Follows what another process than the resident shell reads from its stream: a standard input, a text by
 * `wireReady`.
 */
export function afterwards(nonce: string): string {
  return `${nonce}\n`;
}

/**
 * Looks for `afterwards`. Where it does not come, whoever read before was ended in the middle, and the rest of a text or
 * an input would be taken for calls: the shell ends then, which is no loss of its orchestrator. The stream's end is one.
 */
function keepPlaceScript(shell: ShellKind, nonce: string): string {
  const leave = `{ ${LEAVE}; }`;
  if (shell === "sh") {
    return `if IFS= read -r __moor_t || [ "$__moor_t" ]; then [ "$__moor_t" = ${nonce} ] || ${leave}; fi; unset __moor_t`;
  }
  return `if LC_ALL=C IFS= read -r -N ${nonce.length + 1} __moor_t; then [[ $__moor_t == ${nonce}$'\\n' ]] || ${leave}; fi; unset __moor_t`;
}

/**
 * First program of a stream: the best shell there is, told by no file of the user's. With a login nonce it first
 * has a login shell print its variables, whose own output goes nowhere.
 */
export function bootArgv(kind: ShellKind | "auto", loginNonce: string | null): string[] {
  const bash = `exec ${quoteAll(BASH_BOOT_ARGV)}`;
  const pick = {
    auto: `command -v bash >/dev/null 2>&1 && ${bash}\nexec sh`,
    bash,
    sh: "exec sh",
  }[kind];
  const login = loginNonce
    ? `exec 9>&2
printf '\\000${loginNonce}${FRAME.login}' >&9
${
  kind === "sh"
    ? loginScript(kind, 9)
    : `if [ "\${__moor_login-}" ]; then printf %s "$__moor_login" >&9; else
${loginScript(kind, 9)}
fi`
}
printf '\\000${loginNonce};' >&9
exec 9>&-
`
    : "";
  return ["/bin/sh", "-c", `${login}unset ${STARTUP_VARIABLES.join(" ")}\n${pick}`];
}

/** They make a shell read files or change its grammar, so none of ours is started with them. */
export const STARTUP_VARIABLES: readonly string[] = ["BASH_ENV", "ENV", "POSIXLY_CORRECT"];

/**
 * `bootArgv` where bash is known to be there and no variable of `STARTUP_VARIABLES` is set: one program instead of
 * two.
 */
export const BASH_BOOT_ARGV: readonly string[] = ["bash", "--noprofile", "--norc", "-c", BASH_LOOP];

/**
 * Statements that have a login shell write its variables to a descriptor.
 *
 * @param end what it writes after them, as `printf` takes it
 * @param last whether it takes the place of the shell that runs them
 */
export function loginScript(
  kind: ShellKind | "auto",
  descriptor: number,
  { end = null, last = false }: { readonly end?: string | null; readonly last?: boolean } = {},
): string {
  const told = end === null ? "" : `; printf "${end}" >&${descriptor}`;
  return `__moor_l=${kind === "sh" ? "sh" : "bash"}; command -v "$__moor_l" >/dev/null 2>&1 || __moor_l=sh
${last ? "exec " : ""}"$__moor_l" -l -c 'export -p >&${descriptor}${told}' </dev/null >/dev/null 2>/dev/null`;
}

/** For a shell that will run the text of `bootArgv` later: reads the login shell's variables ahead. */
export const LOGIN_AHEAD = `__moor_login=$({ ${loginScript("auto", 9)}; } 9>&1)\n`;

export interface Hello {
  /** Shell functions defined once. */
  readonly library: string;
  /** Script that the shell runs when its stream ends. */
  readonly atLoss?: string | undefined;
  /** Who adopts orphans here, where that is known. @default found by an orphan of its own */
  readonly reaper?: string | undefined;
  /** Descriptors to close, in bash. @default none */
  readonly unwanted?: readonly number[] | undefined;
}

const FIND_REAPER = `__moor_r=$( ( IFS=' ' read -r m l </proc/self/stat; ( i=0 p=
while [ "$i" -lt 5000 ]; do i=$((i + 1)); IFS= read -r l </proc/self/stat || break; l=\${l##*) }; l=\${l#? }; p=\${l%% *}; [ "$p" = "$m" ] || break; done
printf %s "$p" ) & ) )`;

/**
 * Sets the descriptors up, defines the library, finds who adopts orphans here, and says hello. A byte on the data stream
 * tells that all of it is there.
 */
export function helloScript(nonce: string, { library, atLoss, reaper, unwanted = [] }: Hello): string {
  return `unset __moor_c __moor_n BASH_EXECUTION_STRING
exec ${["8>&1", "9>&2", ">/dev/null", "2>/dev/null", ...unwanted.map((descriptor) => `${descriptor}>&-`)].join(" ")}
${library}
${atLoss === undefined ? "" : `trap ${quote(`( ${atLoss}\n) </dev/null 8>&- 9>&-`)} EXIT`}
{ ${reaper === undefined ? FIND_REAPER : `__moor_r=${reaper}`}
__moor_a=; ${childrenScript("$__moor_r")}; [ -r /proc/$__moor_r/task/$__moor_r/children ] || __moor_r=
__moor_u=\${UID-}; [ "$__moor_u" ] || __moor_u=$(id -u)
printf '\\000${nonce}${FRAME.hello}%s\\000%s\\000%s\\000%s\\000%s\\000%s\\000%s\\000' "\${BASH_VERSION-}" "$$" "\${HOME-}" "$PWD" "$__moor_u" "$__moor_r" "$__moor_a" >&9
unset __moor_r __moor_u __moor_a __moor_k __moor_l __moor_i
[ -z "\${BASH_VERSION-}" ] || declare -Fx >&9
printf '\\000' >&9
export -p >&9
printf '\\000${nonce};' >&9
printf . >&8
}
`;
}

/** Undoes what the command's options, traps and functions would do to the words of our epilogue. */
function calmScript(shell: ShellKind): string {
  if (shell === "sh") return "set +aeuvx; unset -f printf pwd";
  // In POSIX mode, which an assignment turns on, special builtins are found before functions. `set -a` would export it.
  return `__moor_w=\${POSIXLY_CORRECT+set}; POSIXLY_CORRECT=${POSIX_SENTINEL}; \\set +aeuvxn; \\unset -f builtin; \\builtin trap - DEBUG ERR RETURN; [[ -n $__moor_w ]] || \\builtin export -n POSIXLY_CORRECT`;
}

/**
 * Writes the state to stdout, in as few writes as there are: each may wake the reader.
 *
 * @param unexported variables of the state that no program could be handed; here they are shown if they are still set
 */
function dumpScript(shell: ShellKind, nonce: string, unexported: readonly string[]): string {
  const show = (name: string, word: string) => `case \${${name}+x} in x) ${word} ${name};; esac; `;
  // PWD is a variable like any other, and need not name the folder that the shell is in. Of a deleted one bash tells nothing.
  if (shell === "sh") {
    return `case $PWD in /*) [ "$PWD" -ef . ];; *) false;; esac || PWD=$(pwd || printf %s "$PWD"); export PWD OLDPWD; ${unexported.map((name) => show(name, "export")).join("")}printf '\\000${nonce}${FRAME.state}'; export -p; printf '\\000${nonce};'`;
  }
  return [
    '[[ $PWD == /* && $PWD -ef . ]] || PWD=$(\\builtin pwd || \\builtin printf %s "$PWD")',
    `${unexported.map((name) => show(name, "\\builtin export")).join("")}\\builtin export PWD OLDPWD`,
    `\\builtin printf '\\000${nonce}${FRAME.state}'`,
    "\\builtin export -p",
    "\\builtin alias -p",
    "\\builtin declare -F",
    "\\builtin declare -f",
    `\\builtin printf '\\000${nonce};'`,
  ].join("; ");
}

/**
 * Statements that go to the call's folder.
 *
 * @param told the descriptor of the stream that is told when it cannot be entered
 */
export function enter(call: CallScript, told: number): string[] {
  const target = word(call.shell, call.cwd);
  const old = oldFolder(call);
  if (call.cwdRequired) {
    const refuse = (reason: string) =>
      `printf ${frame(call.nonce, FRAME.workdir, reason)} >&${told}; exit 126`;
    return [
      `cd -P -- ${target} || { ${refuse("missing")}; }`,
      `case "$PWD" in /proc|/proc/*|/sys|/sys/*|/dev/fd|/dev/fd/*) ${refuse("kernel")};; esac`,
      `cd -- ${target}`,
      old,
    ];
  }
  return [
    `cd -- ${target} || { set -- ${target}; until cd -- "$1"; do set -- "\${1%/*}"; case $1 in /*) ;; *) cd /; break;; esac; done; set --; printf ${frame(call.nonce, FRAME.moved, "%s")} "$PWD" >&${told}; }`,
    old,
  ];
}

/** The statement that sets the folder before the session's. */
export function oldFolder({ shell, state: { oldCwd } }: CallScript): string {
  return oldCwd === null ? "unset OLDPWD" : `OLDPWD=${word(shell, oldCwd)}`;
}

/** Statements that bring functions and aliases of bash back. */
function define(state: ShellState): string[] {
  const statements: string[] = [];
  if (state.functions !== "") {
    statements.push(
      `shopt -s extglob; builtin eval ${word("bash", state.functions)}; builtin shopt -u extglob`,
    );
    if (state.exportedFunctions.length > 0) {
      statements.push(`builtin export -f ${quoteAll(state.exportedFunctions)}`);
    }
  }
  if (state.aliases.size > 0) {
    const words = [...state.aliases].map(([name, value]) => word("bash", `${name}=${value}`));
    statements.push(`builtin shopt -s expand_aliases; builtin alias -- ${words.join(" ")}`);
  }
  return statements;
}

/** What the end of a command's subshell needs to know of its call. */
interface Ending {
  readonly shell: ShellKind;
  /** See `calmScript`. */
  readonly calm: string;
  /** See `dumpScript`. */
  readonly dump: string;
  /**
   * Whether the command may have made its bash a restricted one, which redirects no output: the dump is then written
   * to stdout.
   */
  readonly restricts: boolean;
  /**
   * Whether the command may list traps, and is then not shown ours: its state is kept only if it does not end in an
   * `exit`.
   */
  readonly listsTraps: boolean;
}

function endingOf({ shell, nonce, state, env }: CallScript, line: string): Ending {
  const unexported = new Set([...oversizedVariables(state.variables), ...oversizedVariables(env)]);
  return {
    shell,
    calm: calmScript(shell),
    dump: dumpScript(shell, nonce, [...unexported]),
    restricts: shell === "bash" && RESTRICTS.test(line),
    listsTraps: LISTS_TRAPS.test(line),
  };
}

/** A command that may make its bash a restricted one; `set -x` shows a little of our own words then. */
const RESTRICTS = /\bset[ \t]+[-+][A-Za-z]*r|\brestricted\b/;

/** For a call whose command ends in an `exit`: the same dump, unless the epilogue has made it. */
function exitTrap({ shell, calm, dump, restricts }: Ending): string {
  if (shell === "sh") return `case \${__moor_n-} in '') { ${calm}; ${dump}; } >&9 2>/dev/null;; esac`;
  // bash does not always undo a group's redirections before this trap; its copy of descriptor 9 is then the first free
  // one, 10. It does where the text was read by the subshell itself.
  // The group comes first, since `set -x` would tell of anything else.
  const at = (copy: number, or = "") =>
    `[[ ${or}/proc/self/fd/${copy} -ef /proc/$$/fd/9 ]] && __moor_d=${copy}; `;
  const usual = `{ case \${__moor_n-} in '') ${calm}; __moor_d=; ${at(10, "! -e /proc/self/fd || ")}${at(9)}if [[ -n $__moor_d ]]; then { ${dump}; } >&"$__moor_d"; fi;; esac; } >/dev/null 2>&1`;
  if (!restricts) return usual;
  return `case $- in *r*) case \${__moor_n-} in '') ${calm}; ${dump};; esac;; *) ${usual};; esac`;
}

/** What follows the command in its subshell: the dump, then the command's exit code. */
function epilogue({ shell, calm, dump, restricts }: Ending): string {
  if (shell === "sh") return `{ __moor_n=$?; ${calm}; ${dump}; } >&9 2>/dev/null\nexit "$__moor_n"`;
  const leave = "\\unset -f exit; \\builtin unset POSIXLY_CORRECT";
  const usual = (save: string) => `{ ${save}${calm}; { ${dump}; } >&9; ${leave}; } >/dev/null 2>&1`;
  return `${
    restricts
      ? `__moor_n=$?; case $- in *r*) ${calm}; ${dump}; ${leave};; *) ${usual("")};; esac`
      : usual("__moor_n=$?; ")
  }
\\exit "$__moor_n"`;
}

const LISTS_TRAPS = /\btrap[ \t]*(?:-p\b|$|[;&|)}<>\n])/;

/** Ends a call from within its subshell, where the command's streams are the first descriptors. */
function earlyEndScript(call: CallScript): string {
  // Of our own scripts nobody asks what they left behind.
  const isAsked = call.reaper !== null && !call.sound;
  const look = isAsked ? `{ ${childrenScript(call.reaper)}; } 2>/dev/null; ` : "";
  const errors = call.separate ? `${streamEndFrame(call)} >&2; ` : "";
  // The user's own IFS may be anything.
  return shortNames(`__moor_e=$? __moor_a= __moor_h= IFS=' '; ${look}${errors}${endFrame(call)}`);
}

export interface CallText {
  /** Sent before, unless the shell has it from its last call; null when the state is short. */
  readonly setup: string | null;
  /** The compound command. */
  readonly call: string;
  /** Whether all of the call is told on the data stream. */
  readonly isOneStream: boolean;
  /** Whether no frame tells the command's beginning, but `FRAME.ready` before the call and `FRAME.told` at its end. */
  readonly isShort: boolean;
}

/** A longer state is kept in the shell between calls, since it reads its text byte by byte, bytes. */
const INLINE_STATE_BYTES = 4_096;

/** From this size on it is worth a program to ask for a faster one, bytes. */
const LARGE_INPUT_BYTES = 1_048_576;

/**
 * Takes exactly so many bytes from the stream. `head` moves them in small pieces, each a wake-up of who reads it; a `dd`
 * that can count bytes, as GNU's and BusyBox' can, moves as many as there are.
 */
function takeScript(bytes: number): string {
  const head = `head -c ${bytes}`;
  if (bytes < LARGE_INPUT_BYTES) return head;
  const dd = (count: number) => `dd bs=65536 iflag=fullblock,count_bytes count=${count}`;
  return `{ if ${dd(0)} </dev/null >/dev/null 2>&1; then exec ${dd(bytes)} 2>/dev/null; else exec ${head}; fi; }`;
}

/** The text of one call. One byte a character. */
export function callScript(call: CallScript): CallText {
  const { shell, nonce, command, state } = call;
  const shellLine = typeof command === "string";
  const ending = call.dump && shellLine ? endingOf(call, command) : null;
  const endsItself = call.plain === true && shellLine && !ending && call.stdinBytes === null && !call.once;
  const ready = call.ready ?? null;
  // In POSIX mode some functions cannot be defined, and an error ends the shell: it comes last.
  const posix = call.env.get("POSIXLY_CORRECT") ?? state.variables.get("POSIXLY_CORRECT");
  const isDefining = shell === "bash" && (shellLine || state.exportedFunctions.length > 0);
  const defined = isDefining ? define(state).join("; ") : "";
  const isBrought = ready !== null && ready.variables === state.variables;
  const exported =
    isBrought && !defined ? "" : assignments(shell, state.variables, isKeptVariable).join("; ");
  const inline = exported.length + defined.length <= INLINE_STATE_BYTES;
  const changed = ready === null ? exported : changesOf(ready, state.variables);
  const options = assignments(shell, call.env, isSettableVariable);
  const leaving = ready?.inC ? leaveC(ready.base, call.sound) : "";
  if (
    ready !== null &&
    endsItself &&
    // Who may have left a process behind is told on one stream, lest its last words and our own overtake each other.
    ((call.sound && ready.inC) || !call.separate) &&
    call.reaper !== null &&
    inline &&
    !defined &&
    !posix
  ) {
    const entering = call.cwdRequired ? enter(call, 8) : null;
    return {
      setup: null,
      call: shortCall(
        call,
        entering,
        leaving,
        [changed, ...options].filter((statement) => statement !== ""),
      ),
      isOneStream: !call.separate,
      isShort: true,
    };
  }
  const prepare = [
    ...enter(call, endsItself ? 8 : 9),
    ...(inline
      ? ["unset __moor_s __moor_d", changed]
      : [ready === null ? "" : changesOf(ready, new Map()), 'eval "$__moor_s"; unset __moor_s']),
    ...options,
    ...(ending && !ending.listsTraps ? [`trap ${quote(exitTrap(ending))} EXIT`] : []),
  ]
    .filter((statement) => statement !== "")
    .join("; ");
  // The user's functions come last: from here on, no word of ours is safe from them but those behind `builtin`.
  const definitions = inline ? defined : 'eval "$__moor_d"; unset __moor_d';
  // A function named eval may be kept, one named builtin never is.
  const evaluate = shell === "bash" ? "\\builtin eval" : "eval";
  // A space before a hyphen, lest `eval` take the command for an option.
  const isSound = call.sound || (endsItself && shell === "bash");
  const line = (text: string) =>
    isSound ? text : `${evaluate} ${quote(text.startsWith("-") ? ` ${text}` : text)}`;
  const run = shellLine
    ? line(command)
    : `${shell === "bash" ? "\\builtin exec" : "exec"} ${quoteAll(command)}`;
  const errors = call.separate ? "2>&9" : "2>&8";
  const bringUp = [
    ...(definitions ? [definitions] : []),
    ...(posix ? [`${shell === "bash" ? "\\builtin " : ""}export POSIXLY_CORRECT=${word(shell, posix)}`] : []),
  ].join("; ");
  const own = shell === "bash" ? "\\builtin " : "";
  const mark = `${own}printf ${frame(nonce, FRAME.begun)}`;
  const lastMark = call.once
    ? `${own}printf ${frame(nonce, FRAME.before, "%s\\000%s")}${frame(nonce, FRAME.begun)} "$__moor_b" "$__moor_t"; ${own}unset __moor_b __moor_t`
    : mark;
  const marks = call.separate ? `${mark}; { ${lastMark}; } >&2` : lastMark;
  // Without the last word, bash would have the command find the mark in `$_`.
  const begin = `${marks}${shell === "bash" ? "; \\builtin : ''" : ""}`;
  const isOneStream = endsItself && !call.separate;
  const body = `${prepare}; exec >&8 ${errors} 8>&-${isOneStream ? " 9>&-" : ""}; ${bringUp && `{ ${bringUp}; } >/dev/null 2>&1; `}${begin}; ${isOneStream ? run : `{ ${run}\n} 9>&-`}
${ending ? epilogue(ending) : endsItself ? earlyEndScript(call) : ""}`;
  const forget = shell === "bash" ? `unset __moor_c __moor_n; ${ready ? forgetReady(call.nonce) : ""}` : "";
  // The standard input is asked for before its reader starts: a command that ends at once writes its state beside it,
  // and a frame in the middle of another is lost.
  const withInput = `printf ${frame(nonce, FRAME.stdin)} >&9; ${takeScript(call.stdinBytes ?? 0)} | { ( ${body}
)
__moor_e=$?
cat >/dev/null
exit $__moor_e
}`;
  // The input of a shell that ends with its call comes from a file.
  const isFed = call.stdinBytes !== null && !call.once;
  const subshell = call.stdinBytes === null ? `( ${body}\n) </dev/null` : withInput;
  // One compound command here too: what follows a syntax error in an `eval` is parsed wrongly after it.
  const text = call.ready
    ? `{ ${forget}${call.stdinBytes === null ? `exec </dev/null || exit; ${body}` : withInput}\n}`
    : `{ ${forget}${subshell}\n${endScript(call)}\n${isFed ? `${keepPlaceScript(shell, nonce)}\n` : ""}}`;
  return {
    setup: inline ? null : `__moor_s=${quote(exported)} __moor_d=${quote(defined)}`,
    call: ready === null ? text : `${READY_GUARD}${leaving}${text}`,
    isOneStream,
    isShort: false,
  };
}
