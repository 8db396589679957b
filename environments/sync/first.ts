/**
 * The first mirror into an empty folder of this machine, where commands run as this process's own user: nothing is to be
 * compared, so files are read once, and copied as they are met.
 */
import { MoorageError } from "../../src/errors.ts";
import { NotPlain } from "../tree/copy-files.mjs";
import { DirectCopy, isFault, type Listed, type Listing } from "../tree/direct-copy.ts";
import type { HostTree } from "../tree/host.ts";
import { sweepStages } from "../tree/host-writer.ts";
import { EXCLUDE_FILE, hasRules, readRules } from "../tree/ignore-rules.ts";
import { parentOf } from "../tree/names.ts";
import { HostRepositories } from "../tree/repositories.ts";
import { Baseline, FIRST_SEPARATOR, pathsOfFirst } from "./baseline.ts";
import { judgeBy, ownFolders, rulesOf } from "./guards.ts";
import { folderState, linkState } from "./side.ts";

/** Entries and bytes of a first go; so much is copied in some seconds, and what breaks off begins anew. */
const MAX_ENTRIES = 50_000;
const MAX_BYTES = 512 * 1024 * 1024;

export interface FirstMirror {
  readonly tree: HostTree;
  /** Real paths of both folders, neither of which is in the other. */
  readonly here: string;
  readonly there: string;
  /** Brings the environment up. */
  readonly start: () => Promise<void>;
  readonly stateDir: string;
  /** The baseline's, which no mirror has had open. */
  readonly file: string;
  /** Bytes after which no file is begun. @default {536_870_912} */
  readonly maxBytes?: number;
  readonly onProgress?: (progress: { readonly message: string; readonly fraction: number }) => void;
  readonly abortSignal?: AbortSignal;
}

export interface FirstOutcome {
  readonly pushed: readonly string[];
  readonly skipped: ReadonlyMap<string, string>;
  /** Whether another mirror has something left to do. */
  readonly isPart: boolean;
}

/**
 * @returns null when nothing was done, and another way must do it or tell why it cannot be done
 * @throws {MoorageError} ABORTED; what was in the folders stays
 */
export async function mirrorFirst(work: FirstMirror): Promise<FirstOutcome | null> {
  const { here, there, file, abortSignal } = work;
  const bound = abortSignal ? { abortSignal } : {};
  try {
    await using copy = new DirectCopy(here, there, FIRST_SEPARATOR, bound);
    if (!copy.isTargetEmpty()) return null;
    await work.start();
    const listing = await copy.list(MAX_ENTRIES);
    if (listing.entries.length === 0) return null;
    using base = await Baseline.open(file, bound);
    // Another mirror may have been first.
    if (!base.isNew || !copy.isTargetEmpty()) return null;
    sweepStages(there);
    const chosen = await choose(listing, work);
    const folders = chosen.mirrored.filter(({ kind }) => kind === "directory");
    const files = chosen.mirrored.filter(({ kind }) => kind === "file").map(pathOf);
    const { skipped } = chosen;
    const outcome = await copy.copy({
      folders,
      links: chosen.mirrored.filter(({ kind }) => kind === "symlink").map(pathOf),
      files,
      maxBytes: work.maxBytes ?? MAX_BYTES,
      onFiles: (count) =>
        work.onProgress?.({ message: "sending", fraction: Math.min(1, count / files.length) }),
    });
    for (const path of outcome.unreadable) skipped.set(path, "it cannot be read, or went away");
    const records = [
      ...folders.map(({ path, mode }) => `${path}\0${folderState(mode)}\0`),
      ...outcome.links.map(({ path, target }) => `${path}\0${linkState(target)}\0`),
      ...outcome.records,
    ];
    const text = records.join(FIRST_SEPARATOR);
    const staged = outcome.isPart || outcome.unreadable.length > 0 ? new Set(pathsOfFirst(text)) : null;
    const done = chosen.mirrored.map(pathOf).filter((path) => staged?.has(path) ?? true);
    base.intendFirst(text);
    const { placed, isWhole } = await copy.place(done.filter(isAtTop), folders);
    if (isWhole) {
      base.confirmFirst();
      return { pushed: done, skipped, isPart: outcome.isPart };
    }
    // Whoever looks next finds out by what was intended.
    abortSignal?.throwIfAborted();
    return { pushed: done.filter((path) => placed.has(topOf(path))), skipped, isPart: true };
  } catch (error) {
    if (abortSignal?.aborted) throw new MoorageError("ABORTED", "The mirror was cancelled", { cause: error });
    if (!isFault(error)) throw error;
    return null;
  }
}

async function choose(
  { entries, closed }: Listing,
  { tree, here, there, stateDir }: FirstMirror,
): Promise<{ readonly mirrored: readonly Listed[]; readonly skipped: Map<string, string> }> {
  const withRules = entries.filter(
    ({ path, kind }) => kind === "file" && hasRules(path) && path !== EXCLUDE_FILE,
  );
  const texts = await readRules(tree, here, withRules.map(pathOf));
  const rules = rulesOf(texts, new HostRepositories(here), entries);
  const judge = judgeBy(
    rules,
    [here, there].flatMap((root) => ownFolders(root, stateDir)),
  );
  const skipped = new Map<string, string>();
  const isClosed = new Set(closed);
  const mirrored = entries.filter((entry) => {
    const verdict = judge(entry);
    if (verdict === "odd") skipped.set(entry.path, `it is a ${entry.kind}`);
    return verdict === "mirrored" && !isClosed.has(entry.path);
  });
  for (const path of closed) skipped.set(path, "it cannot be read, or is another file system");
  const folders = new Set(mirrored.filter(({ kind }) => kind === "directory").map(pathOf));
  const hasFolder = (path: string) => parentOf(path) === "" || folders.has(parentOf(path));
  if (!mirrored.every(({ path }) => hasFolder(path)))
    throw new NotPlain("a folder is left out, but not all that is in it");
  return { mirrored, skipped };
}

function isAtTop(path: string): boolean {
  return !path.includes("/");
}

function topOf(path: string): string {
  const slash = path.indexOf("/");
  return slash < 0 ? path : path.slice(0, slash);
}

function pathOf({ path }: Listed): string {
  return path;
}
