/** The `search_files` tool: lines in files, or files by name. */
import { z } from "zod";
import { MoorageError } from "../src/errors.ts";
import { limits } from "../src/limits.ts";
import { registerTool, type ToolContext, type ToolOutput } from "../src/registry.ts";
import { enginePatterns, hasRegexSyntax, type PatternUse } from "./search-pattern.ts";
import {
  type LineInFile,
  type SearchMatch,
  type SearchPass,
  type SearchRequest,
  searchOnce,
} from "./search-run.ts";

const parameters = z.object({
  pattern: z
    .string()
    .min(1)
    .describe("Regular expression of one line; for target files a glob such as *.md or src/**/*.ts"),
  target: z.enum(["content", "files"]).default("content").describe("Search in contents, or for file names"),
  path: z
    .string()
    .min(1)
    .default(".")
    .describe("Folder or file to search; absolute, or relative to the working directory"),
  file_glob: z
    .string()
    .min(1)
    .optional()
    .describe("For target content: only files whose name fits, such as *.py"),
  limit: z.int().min(1).max(1_000).default(limits.searchDefaultLimit).describe("Results to show"),
  offset: z.int().min(0).default(0).describe("Results to skip"),
  output_mode: z
    .enum(["content", "files_only", "count"])
    .default("content")
    .describe("For target content: matching lines, paths only, or number of matches by file"),
  context: z.int().min(0).max(20).default(0).describe("Lines around each match"),
});
type Arguments = z.output<typeof parameters>;

const lineShape = z.object({ line: z.number(), text: z.string() });

export const tool = registerTool({
  name: "search_files",
  toolset: "files",
  title: "Search files",
  description: [
    "Searches file contents by regular expression, or files by glob, and gives results in order of path.",
    "A pattern that matches nothing as a regular expression is also searched as plain text.",
    "Ignored (.gitignore) and hidden files are searched when nothing else matches, or when path names them; a note says so.",
    `Binary files are skipped, links are not followed, lines are cut at ${limits.searchLineMaxChars} characters, and a search ends after ${limits.searchTimeoutMs / 1000} s. Use limit and offset to page.`,
  ].join(" "),
  parameters,
  output: z.object({
    matches: z
      .array(
        z.object({
          path: z.string(),
          line: z.number(),
          text: z.string(),
          before: z.array(lineShape).optional(),
          after: z.array(lineShape).optional(),
        }),
      )
      .optional(),
    files: z.array(z.string()).optional(),
    counts: z.array(z.object({ path: z.string(), count: z.number() })).optional(),
    total: z.number(),
    truncated: z.boolean(),
    next_offset: z.number().optional(),
    note: z.string().optional(),
  }),
  handler: (args, context) =>
    args.target === "files" ? searchNames(args, context) : searchContent(args, context),
  permissions: ["file:read"],
  access: "read",
  mutates: false,
  idempotent: true,
  parallel: "paths",
  paths: ({ path }) => ({ reads: [path], writes: [] }),
});

interface Attempt {
  readonly use: PatternUse;
  readonly everything: boolean;
  /** Said when this attempt is the one that found something. */
  readonly note: string | null;
}

/** From what was asked to what may have been meant. */
const ATTEMPTS: readonly Attempt[] = [
  { use: "regex", everything: false, note: null },
  {
    use: "literal",
    everything: false,
    note: "Nothing matches the pattern as a regular expression; it was searched as plain text",
  },
  {
    use: "both",
    everything: true,
    note: "Nothing matches in other files; these are ignored (.gitignore) or hidden ones",
  },
  {
    use: "literal",
    everything: true,
    note: "These are ignored (.gitignore) or hidden files, and the pattern was searched as plain text",
  },
];

async function searchContent(args: Arguments, context: ToolContext): Promise<ToolOutput> {
  checkText("pattern", args.pattern);
  checkText("path", args.path);
  if (/[\r\n]/.test(args.pattern)) throw invalid("the pattern holds a line break; search for one line of it");
  const notes: string[] = [];
  let pass: SearchPass | null = null;
  let invalidPattern: string | null = null;
  for (const attempt of ATTEMPTS) {
    const plain = attempt.use === "literal";
    if (plain && !hasRegexSyntax(args.pattern)) continue;
    if (attempt.use === "both" && invalidPattern !== null) continue;
    if (attempt.everything && pass && !pass.skips) continue;
    if (plain && attempt.everything && invalidPattern === null) continue;
    pass = await searchOnce(request(args, attempt), context);
    invalidPattern ??= pass.invalidPattern;
    if (pass.total > 0) {
      if (attempt.note !== null) notes.push(attempt.note);
      break;
    }
    if (pass.timedOut) break;
  }
  if (!pass) throw new MoorageError("INTERNAL", "Cannot search: no attempt was made");
  if (invalidPattern !== null) {
    if (pass.total === 0)
      throw invalid(
        `the pattern is no regular expression here (${refusalOf(invalidPattern)}), and nothing holds it as plain text`,
      );
    notes.push(`The pattern is no regular expression here (${refusalOf(invalidPattern)})`);
  }
  return present(args, pass, notes);
}

function request(args: Arguments, attempt: Attempt): SearchRequest {
  const listing = args.output_mode !== "content";
  return {
    target: "content",
    path: args.path,
    patterns: enginePatterns(args.pattern, attempt.use),
    fileGlob: args.file_glob ?? null,
    context: listing ? 0 : args.context,
    everything: attempt.everything,
    offset: args.offset,
    limit: listing ? 0 : args.limit,
  };
}

function present(args: Arguments, pass: SearchPass, notes: string[]): ToolOutput {
  const counts = [...pass.counts].map(([path, count]) => ({ path, count }));
  const page = <T>(items: readonly T[]): readonly T[] => items.slice(args.offset, args.offset + args.limit);
  addNotes(pass, notes);
  switch (args.output_mode) {
    case "files_only":
      return output(args, pass, notes, counts.length, { files: page(counts.map(({ path }) => path)) });
    case "count": {
      const extra = { counts: page(counts), total_matches: pass.total };
      return output(args, pass, notes, counts.length, extra);
    }
    case "content":
      return output(args, pass, notes, pass.total, {
        matches: pass.matches.map((match) => showMatch(match, args.pattern)),
      });
  }
}

async function searchNames(args: Arguments, context: ToolContext): Promise<ToolOutput> {
  checkText("pattern", args.pattern);
  checkText("path", args.path);
  const search = (everything: boolean, fileGlob: string): Promise<SearchPass> =>
    searchOnce(
      {
        target: "names",
        path: args.path,
        patterns: { ripgrep: "", grep: "", grepIgnoresCase: false, beyondGrep: null },
        fileGlob,
        context: 0,
        everything,
        offset: 0,
        limit: 0,
      },
      context,
    );
  const notes: string[] = [];
  let pass = await search(false, args.pattern);
  if (pass.total === 0 && pass.skips) {
    pass = await search(true, args.pattern);
    if (pass.total > 0) notes.push("Nothing else fits; these are ignored (.gitignore) or hidden files");
  }
  if (pass.total === 0 && !/[*?[{/]/.test(args.pattern)) {
    pass = await search(false, `*${args.pattern}*`);
    if (pass.total > 0) notes.push("No file has exactly that name; these hold it in their name");
  }
  addNotes(pass, notes);
  const names = [...pass.names].sort();
  return output(args, pass, notes, names.length, {
    files: names.slice(args.offset, args.offset + args.limit),
  });
}

function output(
  args: Arguments,
  pass: SearchPass,
  notes: readonly string[],
  total: number,
  results: ToolOutput,
): ToolOutput {
  const shownTo = args.offset + args.limit;
  const truncated = shownTo < total || pass.capped || pass.timedOut || pass.killed;
  return {
    ...results,
    total,
    truncated,
    ...(shownTo < total && { next_offset: shownTo }),
    ...(notes.length > 0 && { note: notes.join(". ") }),
  };
}

function addNotes(pass: SearchPass, notes: string[]): void {
  if (pass.timedOut)
    notes.push(`The search was ended after ${limits.searchTimeoutMs / 1000} s; name a smaller path`);
  if (pass.capped) notes.push(`Counting ended at ${pass.total}; narrow the pattern or the path`);
  if (pass.killed)
    notes.push(
      "Matches may be missing: the search was killed in a file, perhaps for want of memory for a very long line",
    );
  if (pass.unreadable) notes.push("Some files could not be read");
}

function showMatch(match: SearchMatch, pattern: string): ToolOutput {
  const show = ({ line, text }: LineInFile): LineInFile => ({ line, text: clampLine(text, 0) });
  const column =
    match.text.length > limits.searchLineMaxChars ? (match.column ?? guessColumn(match.text, pattern)) : 0;
  return {
    path: match.path,
    line: match.line,
    text: clampLine(match.text, column),
    ...(match.before.length > 0 && { before: match.before.map(show) }),
    ...(match.after.length > 0 && { after: match.after.map(show) }),
  };
}

/** Shows the part of a long line in which the match begins. */
function clampLine(text: string, column: number): string {
  const max = limits.searchLineMaxChars;
  if (text.length <= max) return text;
  const start = Math.max(0, Math.min(column - Math.floor(max / 5), text.length - max));
  const part = text.slice(start, start + max).toWellFormed();
  const after = text.length - start - max;
  return `${start > 0 ? `… (${start} characters before) ` : ""}${part}${after > 0 ? ` … (${after} more characters)` : ""}`;
}

function guessColumn(text: string, pattern: string): number {
  return Math.max(0, text.indexOf(pattern));
}

/** What an engine has against a pattern; ripgrep shows the pattern first, and may give advice about itself last. */
function refusalOf(text: string): string {
  const said = /^error: (.*)$/m.exec(text)?.[1] ?? text.split("\n").at(-1) ?? text;
  return said.trim();
}

function checkText(name: string, text: string): void {
  if (text.includes("\0")) throw invalid(`${name} holds a NUL byte`);
  if (!text.isWellFormed()) throw invalid(`${name} holds half of a surrogate pair`);
}

function invalid(reason: string): MoorageError {
  return new MoorageError("INVALID_ARGUMENTS", `Cannot search: ${reason}`);
}
