/**
 * Reads ssh_config files as `ssh` does: in order, the first value wins, `Host` and `Match` blocks switch what
 * follows on and off, `Include` reads further files in its place. A `Match exec` is never run: it does not match,
 * and a note says so.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { userInfo } from "node:os";
import { isAbsolute, join } from "node:path";
import { MoorageError } from "../../src/errors.ts";
import { matchesList } from "./patterns.ts";

/** Keywords whose every value counts; of all others the first does. */
const REPEATED = new Set(["identityfile"]);
const MAX_INCLUDE_DEPTH = 16;

export interface ConfigQuery {
  /** The name as it was given, an alias or a host. */
  readonly originalHost: string;
  readonly user: string | null;
  readonly port: number | null;
  readonly home: string;
}

export interface ConfigValues {
  /** Values by keyword in lower case. */
  readonly values: ReadonlyMap<string, readonly string[]>;
  /** What the files ask for and is not followed. */
  readonly notes: readonly string[];
}

export interface ConfigFile {
  readonly path: string;
  /** Whether it may be missing. */
  readonly optional: boolean;
  /** Whether it is the user's own, which nobody else may be able to write. */
  readonly private: boolean;
  /** Folder of relative `Include`s. */
  readonly base: string;
}

/** @throws {MoorageError} INVALID_CONFIG naming file and line */
export function readConfig(files: readonly ConfigFile[], query: ConfigQuery): ConfigValues {
  const reader = new Reader(query);
  for (const file of files) reader.read(file, true, 0);
  return reader;
}

class Reader implements ConfigValues {
  readonly values = new Map<string, string[]>();
  readonly notes: string[] = [];
  readonly #query: ConfigQuery;

  constructor(query: ConfigQuery) {
    this.#query = query;
    if (query.user !== null) this.values.set("user", [query.user]);
    if (query.port !== null) this.values.set("port", [String(query.port)]);
  }

  read(file: ConfigFile, outer: boolean, depth: number): void {
    if (depth > MAX_INCLUDE_DEPTH) throw invalid(file.path, null, "Include goes deeper than 16 files");
    const text = readText(file);
    if (text === null) return;
    let active = outer;
    for (const [index, line] of text.split(/\r?\n/).entries()) {
      const directive = parseLine(line);
      if (!directive) continue;
      const { keyword, words } = directive;
      const where = `${file.path}:${index + 1}`;
      const [first] = words;
      if (first === undefined) {
        if (active) throw invalid(file.path, index + 1, `"${keyword}" has no value`);
      } else if (keyword === "host") {
        active = outer && matchesList(this.#query.originalHost, words);
      } else if (keyword === "match") {
        active = outer && this.#matches(words, where);
      } else if (keyword === "include") {
        for (const pattern of words) this.#include(pattern, file, active, depth);
      } else if (active) {
        this.#set(keyword, words);
      }
    }
  }

  #set(keyword: string, words: readonly string[]): void {
    const known = this.values.get(keyword);
    if (!known) this.values.set(keyword, [...words]);
    else if (REPEATED.has(keyword)) known.push(...words.filter((word) => !known.includes(word)));
  }

  #include(pattern: string, from: ConfigFile, active: boolean, depth: number): void {
    const expanded = pattern.startsWith("~/") ? join(this.#query.home, pattern.slice(2)) : pattern;
    for (const path of expandGlob(isAbsolute(expanded) ? expanded : join(from.base, expanded))) {
      this.read({ ...from, path, optional: true }, active, depth + 1);
    }
  }

  #matches(words: readonly string[], where: string): boolean {
    const rest = words.flatMap((word) => {
      const equals = word.indexOf("=");
      return equals > 0 ? [word.slice(0, equals), word.slice(equals + 1)] : [word];
    });
    let all = true;
    for (let next = rest.shift(); next !== undefined; next = rest.shift()) {
      const negated = next.startsWith("!");
      const criterion = next.slice(negated ? 1 : 0).toLowerCase();
      if (criterion === "all") continue;
      if (criterion === "canonical" || criterion === "final") {
        // Names are not made canonical here, so there is no second pass either.
        all &&= negated;
        continue;
      }
      const value = rest.shift();
      if (value === undefined)
        throw new MoorageError("INVALID_CONFIG", `Cannot read ${where}: Match ${criterion} has no value`);
      const subject = this.#subject(criterion);
      if (subject === null) {
        this.notes.push(`${where}: Match ${criterion} is not followed`);
        all = false;
      } else {
        all &&= matchesList(subject, value.split(",")) !== negated;
      }
    }
    return all;
  }

  #subject(criterion: string): string | null {
    const { originalHost } = this.#query;
    switch (criterion) {
      case "host":
        return this.values.get("hostname")?.[0]?.replaceAll("%h", originalHost) ?? originalHost;
      case "originalhost":
        return originalHost;
      case "user":
        return this.values.get("user")?.[0] ?? userInfo().username;
      case "localuser":
        return userInfo().username;
      default:
        return null;
    }
  }
}

function invalid(path: string, line: number | null, reason: string): MoorageError {
  return new MoorageError(
    "INVALID_CONFIG",
    `Cannot read ${path}${line === null ? "" : `:${line}`}: ${reason}`,
  );
}

function readText(file: ConfigFile): string | null {
  try {
    const stat = statSync(file.path);
    if (stat.isDirectory()) throw invalid(file.path, null, "it is a folder");
    // What somebody else can write, somebody else can aim at another host.
    const uid = process.getuid?.();
    if (
      file.private &&
      uid !== undefined &&
      ((stat.uid !== 0 && stat.uid !== uid) || (stat.mode & 0o022) !== 0)
    )
      throw invalid(file.path, null, "somebody else owns it or may write to it");
    return readFileSync(file.path, "utf8");
  } catch (error) {
    if (error instanceof MoorageError) throw error;
    const code = error instanceof Error && "code" in error ? error.code : null;
    if (file.optional && (code === "ENOENT" || code === "ENOTDIR")) return null;
    throw new MoorageError("INVALID_CONFIG", `Cannot read ${file.path}: ${String(code ?? error)}`, {
      cause: error,
    });
  }
}

/** Keyword and words of a line; null for a comment or an empty one. */
function parseLine(line: string): { readonly keyword: string; readonly words: readonly string[] } | null {
  const [, name = "", rest = ""] = /^\s*([^\s=#"]+)\s*=?\s*(.*?)\s*$/.exec(line) ?? [];
  if (name === "") return null;
  const keyword = name.toLowerCase();
  return { keyword, words: keyword === "proxycommand" ? [rest] : splitWords(rest) };
}

/** Words as ssh splits them: quotes of both kinds, a backslash before a quote or a backslash, `#` before a word. */
function splitWords(text: string): string[] {
  const words: string[] = [];
  const pattern = /\s*(#.*|(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\\["'\\ ]|[^\s"'])+)/gy;
  for (const [, word = ""] of text.matchAll(pattern)) {
    if (word.startsWith("#")) break;
    words.push(
      word.replace(/"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|\\(["'\\ ])/g, (_, double, single, escaped) =>
        (double ?? single ?? escaped).replace(/\\(["'\\])/g, "$1"),
      ),
    );
  }
  return words;
}

/** Existing paths that match, in order. */
function expandGlob(pattern: string): string[] {
  let found = [""];
  for (const part of pattern.split("/").filter((each) => each !== "")) {
    if (!/[*?[]/.test(part)) {
      found = found.map((folder) => `${folder}/${part}`);
      continue;
    }
    const source = part
      .replace(/[.+^${}()|\\]/g, "\\$&")
      .replaceAll("*", "[^/]*")
      .replaceAll("?", "[^/]")
      .replaceAll("[!", "[^");
    const expression = new RegExp(`^${source}$`);
    found = found.flatMap((folder) =>
      namesIn(folder || "/")
        .filter((name) => expression.test(name) && (!name.startsWith(".") || part.startsWith(".")))
        .sort()
        .map((name) => `${folder}/${name}`),
    );
  }
  return found;
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    // Nothing matches in a folder that is not there.
    return [];
  }
}
