/** The `patch` tool: changes parts of files, by replacing a text or by a patch. */
import { z } from "zod";
import type { FileChange } from "../environments/base.ts";
import { isMoorageError, MoorageError } from "../src/errors.ts";
import { registerTool, type ToolContext, type ToolOutput, type ToolPaths } from "../src/registry.ts";
import { contentHash } from "./content-hash.ts";
import { planPatch } from "./patch-overlay.ts";
import { replaceText } from "./patch-replace.ts";
import { isUnifiedDiff, parseUnifiedDiff } from "./patch-unified.ts";
import { isV4a, type PatchOperation, parseV4a } from "./patch-v4a.ts";
import { decodeFile, encodeFile, toFileText } from "./text-encoding.ts";
import { unifiedDiff } from "./unified-diff.ts";

const parameters = z.object({
  mode: z
    .enum(["replace", "patch"])
    .default("replace")
    .describe("replace: one text in one file; patch: a patch text over any number of files"),
  path: z
    .string()
    .optional()
    .describe("File, for mode replace; absolute or relative to the working directory"),
  old_string: z
    .string()
    .optional()
    .describe(
      "Text to replace, copied exactly, with enough lines around it to be unique; empty only for an empty file",
    ),
  new_string: z.string().optional().describe("Text to put there"),
  replace_all: z.boolean().default(false).describe("Replace every occurrence"),
  patch: z
    .string()
    .optional()
    .describe("For mode patch: V4A text, from *** Begin Patch to *** End Patch, or a unified diff"),
});
type Arguments = z.output<typeof parameters>;

const changedFile = z.object({
  path: z.string(),
  change: z.enum(["added", "updated", "deleted", "moved"]),
  hash: z.string().nullable().describe("sha256 of the content now; null when deleted"),
  moved_from: z.string().optional(),
});

export const tool = registerTool({
  name: "patch",
  toolset: "files",
  title: "Change parts of files",
  description: [
    "Changes text files in place; everything that is not named stays byte for byte: line endings, byte order mark, missing final newline, mode, links.",
    "mode replace: path, old_string, new_string; old_string must be unique unless replace_all. A match that is not exact is reported in `matched`.",
    "mode patch: a V4A text with *** Add File, *** Update File (with *** Move to), *** Delete File; it is applied whole or not at all.",
    "Read the file first. For whole new contents use write_file. Binary files and files over 16 MiB are refused.",
  ].join(" "),
  parameters,
  output: z.object({
    files: z.array(changedFile),
    diff: z.string().optional(),
    replacements: z.number().optional(),
    matched: z.string().optional(),
    note: z.string().optional(),
    checkpoint: z.string().optional().describe("The user can restore the files as they were before."),
  }),
  handler: (args, context) =>
    args.mode === "patch" ? applyPatch(args, context) : replaceInFile(args, context),
  permissions: ["file:read", "file:write"],
  access: "operate",
  mutates: true,
  idempotent: false,
  parallel: "paths",
  paths: patchPaths,
});

async function replaceInFile(args: Arguments, context: ToolContext): Promise<ToolOutput> {
  const path = need(args, "path");
  const old = need(args, "old_string", true);
  const now = need(args, "new_string", true);
  if (old === now) throw invalid("old_string and new_string are the same");
  const { files } = context.environment;
  const cwd = context.cwd();
  const { abortSignal } = context;
  const before = await files.readFile(path, { cwd, abortSignal });
  const file = decodeFile(before.bytes);
  if (!file)
    throw new MoorageError("FILE_BINARY", `Cannot patch ${JSON.stringify(path)}: the file is binary`);
  const change = naming(path, () => {
    if (file.text === "" && old === "") {
      return { text: toFileText(file, now), count: 1, matched: "exact" as const, lines: [1] };
    }
    if (old.trim() === "") {
      const what = old === "" ? "is empty, which only an empty file allows" : "holds nothing but white space";
      throw invalid(`old_string ${what}`);
    }
    return replaceText(file.text, toFileText(file, old), toFileText(file, now), {
      replaceAll: args.replace_all,
      unicode: file.encoding !== "bytes",
    });
  });
  const bytes = encodeFile(file, change.text);
  if (bytes.equals(before.bytes)) {
    throw invalid("new_string makes no difference, since line endings are those of the file");
  }
  const receipt = await files.writeFile(path, bytes, {
    cwd,
    abortSignal,
    ...(before.hash !== null && { expectedHash: before.hash }),
  });
  const diff = unifiedDiff(path, before.bytes, bytes);
  return {
    files: [{ path, change: "updated", hash: receipt.hash }],
    replacements: change.count,
    matched: change.matched,
    ...(diff !== null && { diff }),
    ...(change.matched !== "exact" && {
      note: `old_string matched at ${change.lines.map((line) => `L${line}`).join(", ")} by ${change.matched}, not exactly`,
    }),
  };
}

async function applyPatch(args: Arguments, context: ToolContext): Promise<ToolOutput> {
  const { files } = context.environment;
  const cwd = context.cwd();
  const plan = await planPatch(files, parseOperations(need(args, "patch")), cwd);
  if (context.abortSignal.aborted) throw new MoorageError("ABORTED", "Cannot patch: the call was cancelled");
  await writeChanges(context, plan.changes);
  const diffs = plan.files.flatMap(({ path, before, after }) => unifiedDiff(path, before, after) ?? []);
  return {
    files: plan.files.map(({ path, before, after, movedFrom }) => ({
      path,
      change:
        after === null
          ? "deleted"
          : movedFrom !== undefined
            ? "moved"
            : before === null
              ? "added"
              : "updated",
      hash: after === null ? null : contentHash(after),
      ...(movedFrom !== undefined && { moved_from: movedFrom }),
    })),
    ...(diffs.length > 0 && { diff: diffs.join("") }),
    ...(plan.notes.length > 0 && { note: plan.notes.join(". ") }),
  };
}

/** One write needs no backup to be whole or not at all. */
async function writeChanges(context: ToolContext, changes: readonly FileChange[]): Promise<void> {
  const { files } = context.environment;
  const [first] = changes;
  if (changes.length === 1 && first?.kind === "write") {
    await files.writeFile(first.path, first.bytes, { ...first.options, abortSignal: context.abortSignal });
    return;
  }
  await files.apply(changes);
}

function parseOperations(text: string): readonly PatchOperation[] {
  if (!isV4a(text) && isUnifiedDiff(text)) return parseUnifiedDiff(text);
  return parseV4a(text);
}

/** The files of a call, as far as its patch text can be read; the handler tells what is wrong with it. */
function patchPaths(args: Arguments): ToolPaths {
  if (args.mode === "replace") {
    const paths = args.path === undefined ? [] : [args.path];
    return { reads: paths, writes: paths };
  }
  try {
    const operations = parseOperations(args.patch ?? "");
    const writes = operations.flatMap((operation) =>
      operation.kind === "update" && operation.moveTo !== undefined
        ? [operation.path, operation.moveTo]
        : [operation.path],
    );
    return { reads: writes, writes };
  } catch (error) {
    if (isMoorageError(error, "PATCH_INVALID")) return { reads: [], writes: [] };
    throw error;
  }
}

/** Puts the path into errors of the matching, which does not know it. */
function naming<T>(path: string, match: () => T): T {
  try {
    return match();
  } catch (error) {
    if (!isMoorageError(error, "PATCH_MISMATCH") && !isMoorageError(error, "PATCH_AMBIGUOUS")) throw error;
    throw new MoorageError(error.code, `Cannot patch ${JSON.stringify(path)}: ${error.message}`, {
      suggestion: error.suggestion,
      details: { path },
      cause: error,
    });
  }
}

function need(
  args: Arguments,
  name: "path" | "old_string" | "new_string" | "patch",
  mayBeEmpty = false,
): string {
  const value = args[name];
  if (value === undefined || (value === "" && !mayBeEmpty)) throw invalid(`mode ${args.mode} needs ${name}`);
  if (!value.isWellFormed()) throw invalid(`${name} holds half of a surrogate pair`);
  return value;
}

function invalid(reason: string): MoorageError {
  return new MoorageError("INVALID_ARGUMENTS", `Cannot patch: ${reason}`);
}
