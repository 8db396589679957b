/** One pass of the search script in the environment, collected page-wise. */
import { posix } from "node:path";
import picomatch from "picomatch";
import { MoorageError } from "../src/errors.ts";
import { limits } from "../src/limits.ts";
import type { ToolContext } from "../src/registry.ts";
import { type FoundLine, SearchReader } from "./search-parse.ts";
import type { EnginePatterns } from "./search-pattern.ts";
import { SEARCH_SCRIPT } from "./search-script.ts";

/** Counting stops here; nobody pages that far. */
const TOTAL_MAX = 100_000;

export interface SearchRequest {
  readonly target: "content" | "names";
  /** Root as the caller named it. */
  readonly path: string;
  readonly patterns: EnginePatterns;
  /** Names to keep; null keeps all. */
  readonly fileGlob: string | null;
  readonly context: number;
  /** Also what is hidden or ignored. */
  readonly everything: boolean;
  readonly offset: number;
  readonly limit: number;
}

export interface LineInFile {
  readonly line: number;
  readonly text: string;
}

export interface SearchMatch extends LineInFile {
  readonly path: string;
  /** Where the match begins, when it is known. */
  readonly column?: number;
  readonly before: LineInFile[];
  readonly after: LineInFile[];
}

export interface SearchPass {
  /** The page asked for. */
  readonly matches: readonly SearchMatch[];
  /** Matches by path, in order. */
  readonly counts: ReadonlyMap<string, number>;
  /** For names: every path that the glob let through. */
  readonly names: readonly string[];
  readonly total: number;
  readonly timedOut: boolean;
  /** Whether counting stopped at the bound. */
  readonly capped: boolean;
  /** Whether ignored and hidden files may have been left out. */
  readonly skips: boolean;
  readonly invalidPattern: string | null;
  readonly unreadable: boolean;
  /** Whether a signal ended the search of a file, as where there is no memory for a line of it. */
  readonly killed: boolean;
}

/** @throws {MoorageError} FILE_MISSING, FILE_NOT_REGULAR, FILE_PERMISSION, ABORTED, ENVIRONMENT_* */
export async function searchOnce(request: SearchRequest, context: ToolContext): Promise<SearchPass> {
  const collector = new Collector(request);
  const enough = new AbortController();
  const reader = new SearchReader({
    line: (found) => {
      if (collector.add(found)) enough.abort();
    },
    name: (path) => {
      if (collector.addName(path)) enough.abort();
    },
  });
  const plainGlob = request.fileGlob !== null && !/[/{}!]/.test(request.fileGlob) ? request.fileGlob : "";
  const result = await context.environment.exec(
    [
      "/bin/sh",
      "-c",
      SEARCH_SCRIPT,
      "moorage-search",
      request.target,
      request.path,
      plainGlob,
      request.everything ? "1" : "0",
      request.patterns.ripgrep,
      request.patterns.grep,
      String(request.context),
      request.patterns.grepIgnoresCase ? "i" : "",
      request.patterns.beyondGrep ?? "",
    ],
    {
      cwd: context.cwd(),
      timeoutMs: limits.searchTimeoutMs,
      abortSignal: AbortSignal.any([context.abortSignal, enough.signal]),
      output: "separate",
      captureBytes: 64 * 1024,
      onOutput: ({ stream, data }) => {
        if (stream === "stdout" && !enough.signal.aborted) reader.push(Buffer.from(data));
      },
    },
  );
  if (context.abortSignal.aborted) throw new MoorageError("ABORTED", "Cannot search: the call was cancelled");
  refuse(request.path, result.exitCode, result.stderr, reader.format);
  const ripgrep = reader.format?.startsWith("rg") ?? false;
  const invalid = result.exitCode === 65 || (ripgrep && /regex (parse )?error/i.test(result.stderr));
  return {
    ...collector.result(),
    timedOut: result.timedOut,
    capped: enough.signal.aborted,
    skips: ripgrep && !request.everything,
    invalidPattern: invalid ? result.stderr.trim() || "not a POSIX extended regular expression" : null,
    killed: result.exitCode === 70 || (result.exitCode ?? 0) > 128,
    unreadable: ripgrep && result.exitCode === 2 && !invalid,
  };
}

function refuse(path: string, exitCode: number | null, stderr: string, format: string | null): void {
  const fail = (
    code: "FILE_MISSING" | "FILE_NOT_REGULAR" | "FILE_PERMISSION" | "TOOL_FAILED",
    reason: string,
  ) => new MoorageError(code, `Cannot search ${JSON.stringify(path)}: ${reason}`, { details: { path } });
  if (format !== null || exitCode === null || exitCode === 0 || exitCode === 65) return;
  if (exitCode === 66) throw fail("FILE_MISSING", "no such file or directory");
  if (exitCode === 67) throw fail("FILE_NOT_REGULAR", "neither a regular file nor a folder");
  if (exitCode === 69) {
    const group = JSON.stringify(stderr.trim());
    throw new MoorageError(
      "INVALID_ARGUMENTS",
      `Cannot search: the environment has no ripgrep, and its grep knows no group ${group}; only (?i) at the start and (?:`,
      { suggestion: "Write the pattern without that group, or search by a simpler one and read the lines." },
    );
  }
  if (exitCode === 68) throw fail("FILE_PERMISSION", "permission denied");
  throw fail("TOOL_FAILED", stderr.trim() || `the search ended with code ${exitCode}`);
}

/** Keeps one page and the counts, whatever passes. */
class Collector {
  readonly #request: SearchRequest;
  readonly #accepts: (path: string) => boolean;
  readonly #matches: SearchMatch[] = [];
  readonly #counts = new Map<string, number>();
  readonly #names: string[] = [];
  #total = 0;
  /** Context lines that the next match may want. */
  #recent: FoundLine[] = [];
  #last: SearchMatch | null = null;
  #verdict: { readonly path: string; readonly accepted: boolean } = { path: "", accepted: false };

  constructor(request: SearchRequest) {
    this.#request = request;
    this.#accepts = globFilter(request.fileGlob, request.path);
  }

  /** @returns whether that is enough */
  add(found: FoundLine): boolean {
    if (this.#verdict.path !== found.path) {
      this.#verdict = { path: found.path, accepted: this.#accepts(found.path) };
      this.#recent = [];
      this.#last = null;
    }
    if (!this.#verdict.accepted) return false;
    if (!found.isMatch) {
      this.#addContext(found);
      return false;
    }
    const path = showPath(found.path);
    const { offset, limit, context } = this.#request;
    this.#counts.set(path, (this.#counts.get(path) ?? 0) + 1);
    this.#last = null;
    if (this.#total >= offset && this.#matches.length < limit) {
      this.#last = {
        path,
        line: found.line,
        text: found.text,
        ...(found.column !== undefined && { column: found.column }),
        before: this.#recent.filter(({ line }) => line >= found.line - context).map(lineInFile),
        after: [],
      };
      this.#matches.push(this.#last);
    }
    this.#recent = [];
    this.#total += 1;
    return this.#total >= TOTAL_MAX;
  }

  addName(path: string): boolean {
    if (!this.#accepts(path)) return false;
    this.#names.push(showPath(path));
    return this.#names.length >= TOTAL_MAX;
  }

  #addContext(found: FoundLine): void {
    const { context } = this.#request;
    this.#recent = [...this.#recent, found].slice(-context);
    if (this.#last && found.line <= this.#last.line + context) this.#last.after.push(lineInFile(found));
  }

  result(): Pick<SearchPass, "matches" | "counts" | "names" | "total"> {
    const total = this.#request.target === "names" ? this.#names.length : this.#total;
    return { matches: this.#matches, counts: this.#counts, names: this.#names, total };
  }
}

function lineInFile({ line, text }: FoundLine): LineInFile {
  return { line, text };
}

/** A glob without a slash is of the name alone, one with a slash of the path below the root. */
export function globFilter(glob: string | null, root: string): (path: string) => boolean {
  if (glob === null) return () => true;
  const plain = glob.replace(/^\.\//, "");
  const matches = picomatch(plain.replace(/^\//, ""), { dot: true });
  if (!plain.includes("/")) return (path) => matches(posix.basename(path));
  const base = posix.normalize(root.startsWith("~") ? "." : root);
  return (path) => {
    const normal = posix.normalize(path);
    return (
      matches(base === "." ? normal : posix.relative(base, normal)) || matches(normal.replace(/^\//, ""))
    );
  };
}

function showPath(path: string): string {
  return path.replace(/^(\.\/+)+/, "") || path;
}
