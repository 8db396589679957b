/** Makes one side what the other is, in goes that each leave a whole state behind. */
import { createHash, hash } from "node:crypto";
import { MoorageError } from "../../src/errors.ts";
import type { TreeChanges, TreeEntry, TreeFile } from "../base.ts";
import { foldersOn } from "../tree/names.ts";
import type { Baseline } from "./baseline.ts";
import { CONFLICT } from "./guards.ts";
import type { SyncOptions } from "./mirror.ts";
import { fileState, type Side, type View } from "./side.ts";

/** Files of one go, after which the baseline is kept, so that what broke off goes on from there. */
const BATCH_FILES = 16_000;
const BATCH_BYTES = 128 * 1024 * 1024;
/** A file may be twice as long by the time that it is read, and so much: a log goes on. Nobody's disk is filled by more. */
const GROWTH_BYTES = 16 * 1024 * 1024;

export interface Transfer {
  readonly from: Side;
  readonly fromView: View;
  readonly to: Side;
  readonly toView: View;
  readonly paths: readonly string[];
  readonly message: string;
  readonly base: Baseline;
  readonly skipped: Map<string, string>;
  readonly options: SyncOptions;
  /** Has the environment's folder to itself until it is disposed of. */
  readonly hold: () => Promise<Disposable>;
}

/** Makes the paths on one side what they are on the other, in goes that each leave a whole state behind. */
export async function transfer(work: Transfer): Promise<readonly string[]> {
  const { fromView, toView, paths } = work;
  if (paths.length === 0) return [];
  const present = paths.flatMap((path) => fromView.entries.get(path) ?? []);
  const folders = present
    .filter(({ kind }) => kind === "directory")
    .map(({ path, mode }) => ({ path, mode }));
  const links = present.flatMap(({ path, linkTarget }) =>
    linkTarget === undefined ? [] : [{ path, target: linkTarget }],
  );
  const files = present.filter(({ kind }) => kind === "file");
  // What is gone, and what is of another kind there.
  const remove = paths.filter((path) => {
    const [next, now] = [fromView.entries.get(path), toView.entries.get(path)];
    return now !== undefined && (next === undefined || next.kind !== now.kind);
  });
  const done: string[] = [];
  const totalBytes = files.reduce((sum, { size }) => sum + size, 0) + 1;
  const progress = { bytes: 0, totalBytes };
  const goes = batchesOf(files);
  for (const [index, batch] of goes.entries()) {
    const isFirst = index === 0;
    const changes: TreeChanges = { folders, ...(isFirst && { remove, links }) };
    done.push(...(await oneGo(work, batch, changes, progress)));
    // The last go is kept with everything else, at the end.
    if (index < goes.length - 1) work.base.save();
  }
  // Folders are seen to in every go.
  return [...new Set(done)];
}

async function oneGo(
  { from, fromView, to, toView, message, base, skipped, options, hold }: Transfer,
  files: readonly TreeEntry[],
  changes: TreeChanges,
  progress: { bytes: number; readonly totalBytes: number },
): Promise<readonly string[]> {
  const { onProgress, abortSignal } = options;
  const writer = to.tree.writer(to.root);
  // What dies here leaves its folder for staged files to the next run, which knows by that whose it is.
  if (message === "sending") base.noteStage(writer.stageName);
  const sent = new Map<string, string>();
  const tell = (length: number) => {
    progress.bytes += length;
    onProgress?.({ message, fraction: Math.min(1, progress.bytes / progress.totalBytes) });
  };
  const send = (packed: TreeFile): Promise<void> | void => {
    // Of a small file nobody asks for the sequence.
    const { size, bytes } = packed;
    const entry = fromView.entries.get(packed.path);
    if (!entry) return;
    const { path } = entry;
    if (hasGrown(entry, size)) {
      skipped.set(path, "it grew beyond measure while it was read");
      return;
    }
    const file = { path, size, mode: entry.mode & 0o777, modifiedAt: Math.max(0, entry.modifiedAt) };
    if (!bytes) return sendLong(file, packed.content);
    tell(size);
    sent.set(path, hash("sha256", bytes));
    return writer.stage(file, [bytes]);
  };
  const sendLong = async (file: Parameters<typeof writer.stage>[0], content: AsyncIterable<Buffer>) => {
    const sum = createHash("sha256");
    const tee = async function* () {
      for await (const chunk of content) {
        sum.update(chunk);
        tell(chunk.length);
        yield chunk;
      }
    };
    await writer.stage(file, tee());
    sent.set(file.path, sum.digest("hex"));
  };
  try {
    await from.tree.pack(from.root, files.map(pathOf), send, {
      ...(abortSignal && { abortSignal }),
      onFilledUp: (path) => {
        writer.unstage(path);
        if (sent.delete(path)) skipped.set(path, "it became shorter while it was read");
      },
    });
    for (const { path } of files)
      if (!sent.has(path) && !skipped.has(path)) skipped.set(path, "it cannot be read, or went away");
    abortSignal?.throwIfAborted();
    const { remove = [], folders = [], links = [] } = changes;
    const states = new Map(
      [...remove, ...folders.map(pathOf), ...links.map(pathOf)].map((path) => [path, fromView.stateOf(path)]),
    );
    for (const [path, hash] of sent) states.set(path, fileState(fromView.entries.get(path)?.mode ?? 0, hash));
    base.intend({
      side: message === "sending" ? "there" : "here",
      states: [...states].map(([path, state]) => [path, state ?? ""] as const),
    });
    const expected = new Map(
      [...sent.keys(), ...links.map(pathOf), ...remove].map((path) => [
        path,
        toView.entries.get(path) ?? null,
      ]),
    );
    using _held = message === "sending" ? await hold() : null;
    const finishing = writer.finish({ ...changes, expected });
    // While the other side is at it, for what is most likely: that all of it is done.
    const before = new Map<string, string | undefined>();
    for (const [path, state] of states) {
      before.set(path, base.states.get(path));
      base.note(path, state);
    }
    // The content was hashed on its way.
    for (const [path, hash] of sent) fromView.learn(path, hash);
    base.prepare();
    const outcome = await finishing;
    for (const path of outcome.changed ?? [])
      skipped.set(path, "it was changed on both sides while the mirror ran");
    for (const path of outcome.done) before.delete(path);
    for (const [path, state] of before) base.note(path, state);
    for (const { path, reason } of outcome.failed) skipped.set(path, reason);
    return outcome.done;
  } catch (error) {
    if (abortSignal?.aborted) throw new MoorageError("ABORTED", "The mirror was cancelled", { cause: error });
    throw error;
  } finally {
    await writer.discard();
  }
}

function hasGrown(entry: TreeEntry, size: number): boolean {
  return size > entry.size * 2 + GROWTH_BYTES;
}

function pathOf({ path }: { readonly path: string }): string {
  return path;
}

/** Puts the environment's content beside the host's, under a name that says what it is and comes of what it holds. */
export async function keepConflicts(
  conflicts: readonly string[],
  there: Side,
  thereView: View,
  here: Side,
  hereView: View,
  skipped: Map<string, string>,
): Promise<readonly { readonly path: string; readonly copy: string }[]> {
  const copies: { path: string; copy: string }[] = [];
  const files = conflicts.filter((path) => thereView.entries.get(path)?.kind === "file");
  if (files.length === 0) return copies;
  const present = await copiesOf(here, hereView);
  const writer = here.tree.writer(here.root);
  const filled = new Set<string>();
  const onFilledUp = (path: string) => filled.add(path);
  const take = async ({ path, size, content }: TreeFile) => {
    const hash = thereView.hashOf(path) ?? "";
    // A copy that somebody has changed meanwhile is theirs.
    const copy = copyNames(path, hash).find((name) => [undefined, hash].includes(present.get(name)));
    const entry = thereView.entries.get(path);
    if (copy === undefined || !CONFLICT.test(copy) || !entry || hasGrown(entry, size)) return;
    copies.push({ path, copy });
    if (!present.has(copy)) {
      await writer.stage(
        { path: copy, size, mode: 0o600, modifiedAt: Math.floor(Date.now() / 1000) },
        content,
      );
    }
  };
  try {
    await there.tree.pack(there.root, files, take, { onFilledUp });
    for (const { path, copy } of copies) if (filled.has(path)) writer.unstage(copy);
    // A folder that is missing here is made as it is there.
    const around = new Set(copies.flatMap(({ copy }) => foldersOn(copy)));
    const folders = [...around].flatMap((path) => {
      const entry = hereView.entries.has(path) ? undefined : thereView.entries.get(path);
      return entry?.kind === "directory" ? [{ path, mode: entry.mode }] : [];
    });
    const { failed } = await writer.finish({ folders });
    for (const { path, reason } of failed) skipped.set(path, reason);
    const lost = new Set(failed.map(({ path }) => path));
    return copies.filter(({ path, copy }) => !lost.has(copy) && !filled.has(path));
  } finally {
    await writer.discard();
  }
}

/** Bytes of the longest name that file systems take. */
const NAME_MAX_BYTES = 255;

/** Hashes of the copies that are there, by path. */
async function copiesOf({ tree, root }: Side, view: View): Promise<ReadonlyMap<string, string>> {
  const copies = view.all.filter(({ path }) => CONFLICT.test(path)).map(pathOf);
  const hashes = await tree.hash(root, copies);
  return new Map(copies.map((path) => [path, hashes.get(path) ?? ""]));
}

function copyNames(path: string, hash: string): readonly string[] {
  return [0, 8, 16].map((at) => copyName(path, `.conflict-${hash.slice(at, at + 8)}`));
}

/** The path with the suffix, whose name is cut where there is no room for both, and not inside of a character. */
function copyName(path: string, suffix: string): string {
  const start = path.lastIndexOf("/") + 1;
  let end = Math.min(path.length, start + NAME_MAX_BYTES - suffix.length);
  if (end < path.length) while (end > start + 1 && isContinued(path, end)) end -= 1;
  return path.slice(0, end) + suffix;
}

/** Whether the byte goes on a character of UTF-8. */
function isContinued(path: string, at: number): boolean {
  return (path.charCodeAt(at) & 0xc0) === 0x80;
}

function batchesOf(files: readonly TreeEntry[]): readonly (readonly TreeEntry[])[] {
  const batches: TreeEntry[][] = [[]];
  let bytes = 0;
  for (const entry of files) {
    const last = batches.at(-1) ?? [];
    if (last.length > 0 && (last.length >= BATCH_FILES || bytes + entry.size > BATCH_BYTES)) {
      batches.push([entry]);
      bytes = entry.size;
    } else {
      last.push(entry);
      bytes += entry.size;
    }
  }
  return batches;
}
