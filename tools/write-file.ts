/** The `write_file` tool: whole new content, byte for byte as given. */
import { z } from "zod";
import { registerTool } from "../src/registry.ts";
import { DIFF_INPUT_MAX_BYTES, unifiedDiff } from "./unified-diff.ts";

const parameters = z.object({
  path: z.string().min(1).describe("File; absolute, or relative to the working directory"),
  content: z.string().describe("The whole new content, written exactly as given"),
  expected_hash: z
    .string()
    .optional()
    .describe(
      'Hash that read_file gave: refuses when the file has changed since; "absent" refuses when it exists',
    ),
});

export const tool = registerTool({
  name: "write_file",
  toolset: "files",
  title: "Write a file",
  description: [
    "Replaces the whole content of a file, or makes it with its missing folders.",
    "The bytes are exactly those of `content` as UTF-8: line endings and final newline are not changed.",
    "Mode, owner and a link at the path are kept. Give expected_hash from read_file so that nobody's change is lost.",
    "To change parts of a file use patch.",
  ].join(" "),
  parameters,
  output: z.object({
    path: z.string(),
    hash: z.string(),
    created: z.boolean(),
    bytes_written: z.number(),
    diff: z.string().optional(),
    files: z.array(z.object({ path: z.string(), change: z.enum(["added", "updated"]), hash: z.string() })),
    note: z.string().optional(),
    checkpoint: z.string().optional().describe("The user can restore the files as they were before."),
  }),
  handler: async ({ path, content, expected_hash }, context) => {
    const receipt = await context.environment.files.writeFile(path, content, {
      cwd: context.cwd(),
      abortSignal: context.abortSignal,
      previousMaxBytes: DIFF_INPUT_MAX_BYTES,
      ...(expected_hash !== undefined && { expectedHash: expected_hash }),
    });
    const previous = receipt.previous ?? null;
    const comparable = receipt.created || previous !== null;
    const diff = comparable ? unifiedDiff(path, previous, Buffer.from(content)) : null;
    const change = receipt.created ? "added" : "updated";
    return {
      path,
      hash: receipt.hash,
      created: receipt.created,
      bytes_written: receipt.bytesWritten,
      ...(diff !== null && { diff }),
      files: [{ path, change, hash: receipt.hash }],
      ...(diff === null && { note: "No difference is shown: a side is binary or too large" }),
    };
  },
  permissions: ["file:write"],
  access: "operate",
  mutates: true,
  idempotent: true,
  parallel: "paths",
  paths: ({ path }) => ({ reads: [], writes: [path] }),
});
