/**
 * Reads what `export -p` prints, in bash (`declare -x A="…"`, or `export A="…"` in POSIX mode, `$'…'` for odd
 * bytes), dash and BusyBox sh (`export A='…'`). The text is only ever read here, never given back to a shell, so a
 * value can hold anything without becoming code. Strings are latin1: one character is one byte.
 */

const SIMPLE_ESCAPES: Readonly<Record<string, string>> = {
  a: "\x07",
  b: "\b",
  e: "\x1b",
  E: "\x1b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

class Reader {
  at = 0;
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  get done(): boolean {
    return this.at >= this.text.length;
  }

  peek(): string {
    return this.text.charAt(this.at);
  }

  match(pattern: RegExp): string | null {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found) return null;
    this.at += found[0].length;
    return found[0];
  }

  skipLine(): void {
    const end = this.text.indexOf("\n", this.at);
    this.at = end < 0 ? this.text.length : end + 1;
  }
}

function readSingle(reader: Reader): string {
  const end = reader.text.indexOf("'", reader.at + 1);
  const stop = end < 0 ? reader.text.length : end;
  const value = reader.text.slice(reader.at + 1, stop);
  reader.at = stop + 1;
  return value;
}

function readDouble(reader: Reader): string {
  let value = "";
  reader.at += 1;
  while (!reader.done) {
    const char = reader.peek();
    reader.at += 1;
    if (char === '"') break;
    if (char === "\\") {
      const next = reader.peek();
      reader.at += 1;
      if (next === "\n") continue;
      value += '"$`\\'.includes(next) ? next : `\\${next}`;
    } else {
      value += char;
    }
  }
  return value;
}

function readAnsi(reader: Reader): string {
  let value = "";
  reader.at += 2;
  while (!reader.done) {
    const char = reader.peek();
    reader.at += 1;
    if (char === "'") break;
    if (char !== "\\") {
      value += char;
      continue;
    }
    const octal = reader.match(/[0-7]{1,3}/y);
    if (octal) {
      value += String.fromCharCode(Number.parseInt(octal, 8) & 0xff);
      continue;
    }
    const next = reader.peek();
    reader.at += 1;
    if (next === "x") {
      const hex = reader.match(/[0-9a-fA-F]{1,2}/y);
      value += hex ? String.fromCharCode(Number.parseInt(hex, 16)) : "\\x";
    } else if (next === "u" || next === "U") {
      const hex = reader.match(next === "u" ? /[0-9a-fA-F]{1,4}/y : /[0-9a-fA-F]{1,8}/y);
      value += hex
        ? Buffer.from(String.fromCodePoint(Number.parseInt(hex, 16)), "utf8").toString("latin1")
        : `\\${next}`;
    } else {
      value += SIMPLE_ESCAPES[next] ?? next;
    }
  }
  return value;
}

/** Reads one shell word that `export -p` printed; null for an array, which no environment variable can be. */
function readValue(reader: Reader): string | null {
  let value = "";
  for (;;) {
    if (reader.done || reader.peek() === "\n") return value;
    const char = reader.peek();
    if (char === "'") value += readSingle(reader);
    else if (char === '"') value += readDouble(reader);
    else if (char === "$" && reader.text.charAt(reader.at + 1) === "'") value += readAnsi(reader);
    else if (char === "\\") {
      value += reader.text.charAt(reader.at + 1);
      reader.at += 2;
    } else if (char === "(" && value === "") {
      while (!reader.done && reader.peek() !== "\n") {
        if (reader.peek() === '"') readDouble(reader);
        else if (reader.peek() === "'") readSingle(reader);
        else reader.at += 1;
      }
      return null;
    } else {
      value += char;
      reader.at += 1;
    }
  }
}

/** Reads `NAME=word` at the reader's place, and the rest of its line. */
function readAssignment(reader: Reader, name: RegExp): [name: string, value: string] | null {
  const found = reader.match(name);
  if (!found || reader.peek() !== "=") {
    reader.skipLine();
    return null;
  }
  reader.at += 1;
  const value = readValue(reader);
  reader.skipLine();
  return value === null ? null : [found, value];
}

const EXPORT = /(?:declare|typeset|export)(?: +-(?!f)[A-Za-z-]+)* +/y;
const VARIABLE = /[A-Za-z_][A-Za-z0-9_]*/y;

function readExports(reader: Reader, skipOther: boolean): Map<string, string> {
  const variables = new Map<string, string>();
  while (!reader.done) {
    if (reader.match(EXPORT)) {
      const found = readAssignment(reader, VARIABLE);
      if (found) variables.set(...found);
    } else if (skipOther) {
      reader.skipLine();
    } else {
      break;
    }
  }
  return variables;
}

/**
 * @param text what the shell printed, one byte a character
 * @returns names and values of the variables that have a value, one byte a character
 */
export function parseExports(text: string): Map<string, string> {
  return readExports(new Reader(text), true);
}

/** What a shell printed at the end of a call, one byte a character. */
export interface StateDump {
  readonly variables: ReadonlyMap<string, string>;
  /** Aliases of bash by name. */
  readonly aliases: ReadonlyMap<string, string>;
  readonly exportedFunctions: readonly string[];
  /** Function definitions as bash prints them. */
  readonly functions: string;
}

/** The folder that the shell was in; null when the command gave the variable another meaning. One byte a character. */
export function folderOf({ variables }: StateDump): string | null {
  const folder = variables.get("PWD");
  return folder?.startsWith("/") ? folder : null;
}

/** Reads `export -p`, `alias -p`, `declare -F` and `declare -f`, one after the other. */
export function parseState(text: string): StateDump {
  const reader = new Reader(text);
  const variables = readExports(reader, false);
  const aliases = new Map<string, string>();
  while (reader.match(/alias (?:-- )?/y)) {
    const found = readAssignment(reader, /[^=\n]+/y);
    if (found) aliases.set(...found);
  }
  const exportedFunctions: string[] = [];
  for (;;) {
    const flags = reader.match(/declare -f[a-z]* /y);
    if (!flags) break;
    const name = reader.match(/[^\n]+/y);
    reader.skipLine();
    if (name && flags.includes("x")) exportedFunctions.push(name);
  }
  return { variables, aliases, exportedFunctions, functions: text.slice(reader.at) };
}
