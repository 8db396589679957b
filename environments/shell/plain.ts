/**
 * Tells commands that cannot change what a session keeps, so that its state need not be read back: in most calls of
 * an agent that reading is the larger part of our time. When in doubt, a command may.
 */
import type { ShellState } from "./state.ts";

/** A word: letters that mean nothing to a shell beyond file names, quoted text, and variables that are only read. */
const WORD = String.raw`(?:[\w./:,@%^+=*?~-]|'[^']*'|"(?:[^"$\x60\\]|\$[A-Za-z_])*"|\$[A-Za-z_])+`;
/** What is run: no reserved word has other letters, and no assignment lacks its sign. A number may be a descriptor's. */
const PROGRAM = String.raw`(?!\d+[<>])[\w./+-]+`;
/** A number right before a redirection is a descriptor's, and none to redirect to. */
const REDIRECTION = String.raw`[0-9]?(?:[<>]&[0-9]|(?:>>|>|<)[ \t]*(?!\d+[<>])${WORD})`;
const SIMPLE = String.raw`[ \t]*(${PROGRAM})(?:[ \t]+${WORD}|[ \t]*${REDIRECTION})*[ \t]*`;
const FIRST = new RegExp(SIMPLE, "y");
const OPERATOR = /(?:&&|\|\|?|;|\n)[ \t\n]*/y;

/**
 * Reserved words and builtins of bash, dash, BusyBox sh and ksh, but for those that only print (`echo`, `pwd`, `true`,
 * `false`). `time` and `command` run what follows them; `printf` and `read` can set variables.
 */
const CHANGING = new Set(
  `if then elif else fi case esac for select while until do done in function time coproc
  . : alias bg bind break builtin caller cd chdir command compgen complete compopt continue declare dirs disown enable
  eval exec exit export fc fg float getopts hash help history integer jobs kill let local login logout mapfile nameref
  newgrp popd print printf pushd read readarray readonly redirect return set setvar shift shopt source suspend test
  times trap type typeset ulimit umask unalias unset wait`.split(/\s+/),
);

/** Whether the session is the same after the command, whatever its programs do. */
export function isPlain(command: string, { functions, aliases, variables }: ShellState): boolean {
  // A name may be a function or an alias then.
  if (functions !== "" || aliases.size > 0) return false;
  // `pwd -P` sets PWD then.
  if (variables.has("POSIXLY_CORRECT")) return false;
  for (let at = 0; ; ) {
    FIRST.lastIndex = at;
    const [text = "", program = ""] = FIRST.exec(command) ?? [];
    if (program === "" || CHANGING.has(program)) return false;
    at += text.length;
    if (at === command.length) return true;
    OPERATOR.lastIndex = at;
    const operator = OPERATOR.exec(command)?.[0];
    if (operator === undefined) return false;
    at += operator.length;
  }
}
