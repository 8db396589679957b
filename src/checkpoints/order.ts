/** In which order contents are stored: where there is no time for all, a person's own files are the ones to have. */
import type { BaseEnvironment, TreeEntry } from "../../environments/base.ts";
import { IgnoreRules, readRules, ruleFilesOf } from "../../environments/tree/ignore-rules.ts";
import { isMoorageError } from "../errors.ts";
import { limits } from "../limits.ts";

/** Contents and files of one batch. What was asked for in a batch that takes too long may be lost. */
const BATCH_BYTES = 32 * 1024 * 1024;
const BATCH_FILES = 4_000;

/**
 * Files in batches: a person's own first, then what the ignore rules name and installed packages, git's folder last.
 *
 * @param all entries of the workspace, the files with rules among them
 * @param timeoutMs for reading the rules; without them the order is a coarser one
 */
export async function inBatches(
  environment: BaseEnvironment,
  root: string,
  all: readonly TreeEntry[],
  files: readonly TreeEntry[],
  timeoutMs: number,
): Promise<readonly (readonly TreeEntry[])[]> {
  if (files.length === 0) return [];
  const bytes = files.reduce((sum, { size }) => sum + size, 0);
  // What takes one quick request has no order that matters.
  if (bytes <= limits.checkpointFetchBytes && files.length <= BATCH_FILES / 4) return [files];
  const rules = await readIgnoreRules(environment, root, all, timeoutMs);
  const ranks: [TreeEntry[], TreeEntry[], TreeEntry[]] = [[], [], []];
  for (const file of files) ranks[rankOf(file.path, rules)].push(file);
  return ranks.flatMap(split);
}

function rankOf(path: string, rules: IgnoreRules): 0 | 1 | 2 {
  const parts = path.split("/");
  if (parts.includes(".git")) return 2;
  return parts.includes("node_modules") || rules.ignores(path, false) ? 1 : 0;
}

async function readIgnoreRules(
  environment: BaseEnvironment,
  root: string,
  all: readonly TreeEntry[],
  timeoutMs: number,
): Promise<IgnoreRules> {
  // Packages bring rules of their own, which say nothing about a person's files.
  const paths = ruleFilesOf(all).filter((path) => !path.split("/").includes("node_modules"));
  if (paths.length === 0) return new IgnoreRules(new Map());
  try {
    return new IgnoreRules(await readRules(environment.tree, root, paths, { timeoutMs }));
  } catch (error) {
    if (isMoorageError(error, "TOOL_TIMEOUT")) return new IgnoreRules(new Map());
    throw error;
  }
}

function split(files: readonly TreeEntry[]): readonly (readonly TreeEntry[])[] {
  const batches: TreeEntry[][] = [];
  let bytes = Number.POSITIVE_INFINITY;
  for (const file of files) {
    const last = batches.at(-1);
    if (last && bytes + file.size <= BATCH_BYTES && last.length < BATCH_FILES) {
      last.push(file);
      bytes += file.size;
    } else {
      batches.push([file]);
      bytes = file.size;
    }
  }
  return batches;
}
