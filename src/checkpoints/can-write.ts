/**
 * Whether a shell command can change files, decided on its syntax tree. Only a command made of nothing but known
 * readers cannot; whatever is not understood can.
 */
import { type Command, forEachChild, parse, type SyntaxNode, type Word } from "unbash";

/** What a command can do that matters here. */
export interface Effects {
  /** It can change files. */
  readonly writes: boolean;
  /** It can change what the names in later commands of the session mean: functions, aliases, variables, hashes. */
  readonly redefines: boolean;
}

/** Judges one command as a shell would read it. */
export function judgeCommand(text: string): Effects {
  let script: ReturnType<typeof parse>;
  try {
    script = parse(text);
  } catch {
    // A parser that gives up has understood nothing.
    return { writes: true, redefines: true };
  }
  if (script.errors !== undefined && script.errors.length > 0) return { writes: true, redefines: true };
  const effects = { writes: false, redefines: false };
  look(script, effects);
  return effects;
}

/** Programs and builtins that read and print and have no option to do more. */
const READERS: ReadonlySet<string> = new Set(
  `: [ basename cat cd cksum cmp comm cut df diff dirname du echo egrep expr false fgrep fold getent grep groups head
  hexdump hostname id join jq ls md5sum nl nproc od paste pgrep printf ps pwd readlink realpath rev seq sha1sum
  sha256sum sha512sum sleep stat strings sum tac tail test tr true tty type uname uptime wc which whoami`.split(
    /\s+/,
  ),
);

/** Readers but for these options, which write, run programs or change what is read. */
const READERS_BUT: Readonly<Record<string, RegExp>> = {
  date: /^(-[a-z]*s|--s)/,
  file: /^(-[a-zA-Z]*C|--c)/,
  find: /^-(exec|ok|delete|fprint|fls|files0-from)/,
  printf: /^-v/,
  rg: /^--(pre|hostname-bin|search-zip)|^-[a-zA-Z]*z/,
  sort: /^(-[a-zA-Z]*[oTS]|--o|--co|--t)/,
  tree: /^(-[a-zA-Z]*[oR]|--o)/,
};

/** Builtins that leave something behind in the session. `cd` and the readers do not. */
const HARMLESS_BUILTINS: ReadonlySet<string> = new Set([
  "break",
  "continue",
  "exit",
  "return",
  "shift",
  "wait",
]);
const REDEFINING: ReadonlySet<string> = new Set(
  `. alias bind builtin command complete declare enable eval exec export hash let local mapfile popd pushd read
  readarray readonly set shopt source trap typeset unalias unset`.split(/\s+/),
);
const SINKS: ReadonlySet<string> = new Set(["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"]);

function look(node: SyntaxNode, effects: { writes: boolean; redefines: boolean }): void {
  switch (node.type) {
    case "Command":
      lookAtCommand(node, effects);
      break;
    case "Function":
    case "Assignment":
    case "Coproc":
    case "For":
    case "Select":
    case "ArithmeticFor":
      // A variable may be PATH, or one that a program obeys.
      effects.writes ||= node.type !== "For";
      effects.redefines = true;
      break;
    case "ParameterExpansion":
      // `${x:=y}` assigns, `${x@P}` evaluates.
      if (node.operation?.type === "Transform" || node.operation?.type === "Unknown") effects.writes = true;
      if (node.operation?.type === "Default" && node.operation.operator.endsWith("="))
        effects.redefines = true;
      break;
    case "Redirect": {
      const reads = node.operator === "<" || node.operator === "<&";
      const duplicates = node.operator === ">&" && /^(\d+|-)$/.test(plain(node.target) ?? "");
      if (!reads && !duplicates && !SINKS.has(plain(node.target) ?? "")) effects.writes = true;
      break;
    }
    default:
  }
  forEachChild(node, (child) => look(child, effects));
}

function lookAtCommand(command: Command, effects: { writes: boolean; redefines: boolean }): void {
  if (command.name === undefined) return;
  const name = plain(command.name);
  if (name === null) {
    effects.writes = true;
    effects.redefines = true;
    return;
  }
  if (REDEFINING.has(name)) {
    effects.writes = true;
    effects.redefines = true;
    return;
  }
  if (HARMLESS_BUILTINS.has(name)) return;
  const dangerous = READERS_BUT[name];
  if (dangerous) {
    const words = command.args.map((word) => (word.type === "Word" ? plain(word) : null));
    if (words.some((word) => word === null || dangerous.test(word))) effects.writes = true;
    return;
  }
  if (!READERS.has(name)) effects.writes = true;
}

/** The word's text when nothing in it is expanded. */
function plain(word: Word | undefined): string | null {
  if (word === undefined) return null;
  const parts = word.parts ?? [];
  const isPlain = parts.every(
    (part) =>
      part.type === "Literal" ||
      part.type === "SingleQuoted" ||
      (part.type === "DoubleQuoted" && part.parts.every((inner) => inner.type === "Literal")),
  );
  return isPlain && !/^~/.test(word.text) ? word.value : null;
}
