/**
 * How a program is started through an account's login shell, whatever that shell is. Its command line is one fixed
 * text that bash, dash, fish, csh and tcsh read alike: no newline, no `!`, no backslash, no quote inside quotes, no
 * variable of the login shell's. It starts /bin/sh, which takes one line from its standard input and runs it; that
 * line has the program and its variables, which so stand in no process list of the login shell.
 */
import { quote, quoteAll } from "../shell/quote.ts";

/** What the login shell is given. */
export const LOGIN_COMMAND = `exec /bin/sh -c 'IFS= read -r moorage_line && eval "$moorage_line"'`;

/** Written to stderr when the login shell has handed over: all before it is noise of rc files. */
export function readyMark(nonce: string): string {
  return `\0moorage ready ${nonce}\0`;
}

/**
 * Where a server leaves its sessions in one process group, a signal to a group would reach the shells of all; setsid
 * is asked for there only, since it would fork in the leader of a group.
 */
const APART = `if IFS= read -r moorage_line </proc/$$/stat && command -v setsid; then
moorage_line=\${moorage_line##*) }; set -- $moorage_line
[ "$3" = $$ ] && set -- || set -- setsid
else set --; fi >/dev/null 2>&1`;

/** Where an account's files leave a PATH without the programs that every system has, these are found all the same. */
const FIND = "command -v sh >/dev/null || PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin";

/** The line that turns the shell into a program with further variables. One line, ASCII. */
export function startLine(
  nonce: string,
  argv: readonly string[],
  env: Readonly<Record<string, string>>,
): string {
  const variables = Object.entries(env).map(([name, value]) => `export ${name}=${quote(value)}`);
  const script = [FIND, APART, "unset moorage_line", ...variables, `exec "$@" ${quoteAll(argv)}`].join("\n");
  return `${announce(nonce)}eval "$(printf %b ${quote(percentB(script))})"\n`;
}

/** The line that runs a script of ours in that shell. */
export function scriptLine(nonce: string, script: string): string {
  return `${announce(nonce)}eval "$(printf %b ${quote(percentB(script))})"\n`;
}

function announce(nonce: string): string {
  return `printf '\\0moorage ready %s\\0' ${nonce} >&2; `;
}

/** As `printf %b` reads it in every shell: a backslash, a zero and three octal digits for all that is special. */
function percentB(text: string): string {
  let escaped = "";
  for (const byte of Buffer.from(text, "utf8")) {
    const plain = byte >= 0x20 && byte < 0x7f && byte !== 0x5c;
    escaped += plain ? String.fromCharCode(byte) : `\\0${byte.toString(8).padStart(3, "0")}`;
  }
  return escaped;
}
