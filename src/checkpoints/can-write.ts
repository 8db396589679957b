/**
 * Whether a shell command can change files, decided on its syntax tree. Only a command made of nothing but known
 * readers cannot; whatever is not understood can.
 */
import {
  type Command,
  forEachChild,
  type ParameterExpansionPart,
  parse,
  type SyntaxNode,
  type Word,
} from "unbash";

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
  `: basename cat cd cksum cmp comm cut df diff dirname du echo egrep expr false fgrep fold getent grep groups head
  hexdump hostname id join jq ls md5sum nl nproc od paste pgrep printf ps pwd readlink realpath rev seq sha1sum
  sha256sum sha512sum sleep stat strings sum tac tail tr true tty type uname uptime wc which whoami`.split(
    /\s+/,
  ),
);

/** Readers but for these options, which write, run programs or change what is read. */
const READERS_BUT: ReadonlyMap<string, RegExp> = new Map(
  Object.entries({
    date: /^(-[a-z]*s|--s)/,
    file: /^(-[a-zA-Z]*C|--c)/,
    find: /^-(exec|ok|delete|fprint|fls|files0-from)/,
    printf: /^-v/,
    rg: /^--(pre|hostname-bin|search-zip)|^-[a-zA-Z]*z/,
    sort: /^(-[a-zA-Z]*[oTS]|--o|--co|--t)/,
    tree: /^(-[a-zA-Z]*[oR]|--o)/,
  }),
);

/** Builtins that evaluate the name after this option, or assign to it; any other expansion in them is harmless. */
const EVALUATING: ReadonlyMap<string, RegExp> = new Map(
  Object.entries({ "[": /^-v$/, test: /^-v$/, wait: /^-[a-z]*p/ }),
);

/** Builtins that leave something behind in the session. `cd` and the readers do not. */
const HARMLESS_BUILTINS: ReadonlySet<string> = new Set(["break", "continue", "exit", "return", "shift"]);
const REDEFINING: ReadonlySet<string> = new Set(
  `. alias bind builtin command complete declare enable eval exec export getopts hash let local mapfile popd pushd read
  readarray readonly set shopt source trap typeset unalias unset`.split(/\s+/),
);
/**
 * Where a number is asked for, bash takes a name too, and evaluates what that variable holds: `a[$(command)]` among
 * it, which runs the command.
 */
const NUMBER = /^-?\d[\da-zA-Z#]*$/;
const ARITHMETIC_TESTS: ReadonlySet<string> = new Set(["-eq", "-ne", "-lt", "-le", "-gt", "-ge"]);
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
      // `${x:=y}` assigns, `${x@P}` evaluates, and so does `${!x}`, whose value may name an element of an array.
      if (node.operation?.type === "Transform" || node.operation?.type === "Unknown") effects.writes = true;
      if (node.prefix === "!" || !numbersOf(node).every(isNumber)) effects.writes = true;
      if (node.operation?.type === "Default" && node.operation.operator.endsWith("="))
        effects.redefines = true;
      break;
    case "ArithmeticWord":
      if (!NUMBER.test(node.value)) effects.writes = true;
      break;
    case "AnsiCQuoted":
      // A plain sh does not know `$'...'`, and takes the quote behind a backslash for the end.
      if (node.text.includes("\\'")) effects.writes = true;
      break;
    case "TestUnary":
      if (node.operator === "-v") effects.writes = true;
      break;
    case "TestBinary":
      // A plain sh knows no `[[`, and takes the sign for a redirection.
      if (node.operator === "<" || node.operator === ">") effects.writes = true;
      if (ARITHMETIC_TESTS.has(node.operator) && ![node.left, node.right].every(isNumber))
        effects.writes = true;
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
  const words = command.args.map((word) => (word.type === "Word" ? plain(word) : null));
  const evaluating = EVALUATING.get(name);
  if (evaluating) {
    // The option may come of an expansion, so a name that would run something is told by itself.
    if (words.some((word) => word !== null && (evaluating.test(word) || /\$\(|`/.test(word))))
      effects.writes = true;
    if (name === "wait" && words.some((word) => word !== null && evaluating.test(word)))
      effects.redefines = true;
    return;
  }
  const dangerous = READERS_BUT.get(name);
  if (dangerous) {
    if (words.some((word) => word === null || dangerous.test(word))) effects.writes = true;
    if (name === "printf" && words.some((word) => word !== null && dangerous.test(word)))
      effects.redefines = true;
    return;
  }
  if (!READERS.has(name)) effects.writes = true;
}

/** The words of an expansion that are read as numbers: the subscript and what it cuts out. */
function numbersOf({ index, operation }: ParameterExpansionPart): readonly Word[] {
  const subscript = index && /^[@*]$/.test(index.text) ? undefined : index;
  const slice = operation?.type === "Slice" ? [operation.offset, operation.length] : [];
  return [subscript, ...slice].filter((word) => word !== undefined);
}

function isNumber(word: Word): boolean {
  return NUMBER.test(plain(word)?.trim() ?? "");
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
