/**
 * Reads ssh_config files as `ssh` does: in order, the first value wins, `Host` and `Match` blocks switch what
 * follows on and off, `Include` reads further files in its place. Where a `Match final` asks for it, all is read once
 * more, for the name that the first reading gave. A `Match exec` is never run: it does not match, and a note says so.
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
  if (reader.beginFinal()) for (const file of files) reader.read(file, true, 0);
  return reader;
}

class Reader implements ConfigValues {
  readonly values = new Map<string, string[]>();
  readonly notes: string[] = [];
  readonly #query: ConfigQuery;
  /** What `Host` patterns are compared with. */
  #host: string;
  #isFinal = false;
  #wantsFinal = false;

  constructor(query: ConfigQuery) {
    this.#query = query;
    this.#host = query.originalHost;
    if (query.user !== null) this.values.set("user", [query.user]);
    if (query.port !== null) this.values.set("port", [String(query.port)]);
  }

  /** @returns whether the files ask for a second reading */
  beginFinal(): boolean {
    this.#isFinal = true;
    this.#host = this.#hostName.toLowerCase();
    return this.#wantsFinal || /^(?:yes|always)$/i.test(this.values.get("canonicalizehostname")?.[0] ?? "no");
  }

  get #hostName(): string {
    const { originalHost } = this.#query;
    const value = this.values.get("hostname")?.[0];
    return value?.replace(/%([%h])/g, (_, letter) => (letter === "h" ? originalHost : "%")) ?? originalHost;
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
      if (words === null) throw invalid(file.path, index + 1, "a quote has no end");
      const where = `${file.path}:${index + 1}`;
      const [first] = words;
      if (first === undefined) {
        if (active) throw invalid(file.path, index + 1, `"${keyword}" has no value`);
      } else if (keyword === "host") {
        active = outer && matchesList(this.#host, words, { caseCounts: true });
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
    // Of these two the one that comes first keeps the other out.
    const jump = this.values.get("proxyjump")?.[0]?.toLowerCase() ?? "none";
    if (keyword === "proxyjump" && this.values.has("proxycommand")) return;
    if (keyword === "proxycommand" && jump !== "none") return;
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
        this.#wantsFinal ||= criterion === "final";
        all &&= this.#isFinal !== negated;
        continue;
      }
      const value = rest.shift();
      if (value === undefined)
        throw new MoorageError("INVALID_CONFIG", `Cannot read ${where}: Match ${criterion} has no value`);
      const subject = this.#subject(criterion);
      if (subject === null) {
        const note = `${where}: Match ${criterion} is not followed`;
        if (!this.notes.includes(note)) this.notes.push(note);
        all = false;
      } else {
        const caseCounts = !criterion.endsWith("host");
        all &&= matchesList(subject, value.split(","), { caseCounts }) !== negated;
      }
    }
    return all;
  }

  #subject(criterion: string): string | null {
    const { originalHost } = this.#query;
    switch (criterion) {
      case "host":
        return this.values.has("hostname") ? this.#hostName : this.#host;
      case "originalhost":
        return originalHost;
      case "user":
        return this.values.get("user")?.[0] ?? userInfo().username;
      case "localuser":
        return userInfo().username;
      case "tagged":
        return this.values.get("tag")?.[0] ?? "";
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

/** Keyword and words of a line, the words null where a quote has no end; null for a comment or an empty line. */
function parseLine(
  line: string,
): { readonly keyword: string; readonly words: readonly string[] | null } | null {
  const [, name = "", rest = ""] = /^\s*([^\s=#"]+)\s*=?\s*(.*?)\s*$/.exec(line) ?? [];
  if (name === "") return null;
  const keyword = name.toLowerCase();
  return { keyword, words: keyword === "proxycommand" ? [rest] : splitWords(rest) };
}

/**
 * Words as ssh splits them: quotes of both kinds, a backslash before a quote or a backslash, `#` before a word.
 *
 * @returns null where a quote has no end
 */
function splitWords(text: string): string[] | null {
  const words: string[] = [];
  let end = 0;
  const pattern = /\s*(#.*|(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\\["'\\ ]|[^\s"'])+)/gy;
  for (const [whole, word = ""] of text.matchAll(pattern)) {
    if (word.startsWith("#")) return words;
    end += whole.length;
    words.push(
      word.replace(/"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|\\(["'\\ ])/g, (_, double, single, escaped) =>
        (double ?? single ?? escaped).replace(/\\(["'\\])/g, "$1"),
      ),
    );
  }
  return text.slice(end).trim() === "" ? words : null;
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
