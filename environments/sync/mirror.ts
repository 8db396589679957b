/**
 * Mirrors a folder of the host into an environment and back. The environment is not trusted: nothing is written
 * outside the host's folder, through a link, into our own state, into `.git` or over what the ignore rules name.
 */
import { createHash, hash } from "node:crypto";
import { lstatSync, realpathSync } from "node:fs";
import { relative } from "node:path";
import { isMoorageError, MoorageError } from "../../src/errors.ts";
import type { BaseEnvironment, TreeChanges, TreeEntry, TreeOutcome, TreeScan } from "../base.ts";
import { createHostTree, type HostTree } from "../tree/host.ts";
import { realRoot } from "../tree/host-folders.ts";
import { sweepStages } from "../tree/host-writer.ts";
import { EXCLUDE_FILE, hasRules, IgnoreRules, readRules, ruleFilesOf } from "../tree/ignore-rules.ts";
import { bytesOf, foldersOn, isUnder, showName } from "../tree/names.ts";
import { Baseline, baselineFile, type Kept } from "./baseline.ts";
import { type Decision, type Direction, decide } from "./decide.ts";
import { fileState, type Side, type Verdict, View } from "./side.ts";

export interface SyncOptions {
  readonly direction: Direction;
  /** Says what would be done and does nothing. @default false */
  readonly dryRun?: boolean;
  /** Our own state; what is in it, or would be, is never mirrored. */
  readonly stateDir: string;
  /** Whether names that differ in case alone are one file on the host. @default what the host's folder does */
  readonly ignoresCase?: boolean;
  /** Of the runs of this environment before. @default none, which costs a look at everything */
  readonly memory?: SyncMemory;
  readonly onProgress?: (progress: { readonly message: string; readonly fraction: number }) => void;
  readonly abortSignal?: AbortSignal;
}

export interface SyncReport {
  /** Changed in the environment, deletions too. */
  readonly pushed: readonly string[];
  /** Changed on the host. */
  readonly pulled: readonly string[];
  /** Changed on both sides: both stay, and the environment's content is beside the host's under `copy`. */
  readonly conflicts: readonly { readonly path: string; readonly copy: string | null }[];
  /** What was not mirrored, and why. */
  readonly skipped: readonly { readonly path: string; readonly reason: string }[];
}

/** Files of one go, after which the baseline is kept, so that what broke off goes on from there. */
const BATCH_FILES = 16_000;
const BATCH_BYTES = 128 * 1024 * 1024;
/** A file may be twice as long by the time that it is read, and so much: a log goes on. Nobody's disk is filled by more. */
const GROWTH_BYTES = 16 * 1024 * 1024;
const CONFLICT = /\.conflict-[0-9a-f]{8}$/;

/**
 * What mirrors of one environment know from one run to the next, so that the next one looks at what changed alone.
 * Nothing depends on it but time: what others did meanwhile is noticed.
 */
export class SyncMemory {
  readonly tree: HostTree = createHostTree();
  /** By the file of the pair's baseline. */
  readonly pairs = new Map<string, Pair>();
  /** Real paths of workspaces. */
  readonly roots = new Map<string, string>();
}

/** Two folders as the last run left them. */
interface Pair {
  readonly kept: Kept;
  readonly here: View;
  readonly there: View;
  readonly rules: IgnoreRules;
  /** Paths that both sides did not agree on in the end. */
  readonly open: ReadonlySet<string>;
}

/**
 * Runs one mirror. Two of the same pair wait for each other, whatever processes they are in.
 *
 * @throws {MoorageError} FILE_MISSING, NOT_A_DIRECTORY for the folder; ABORTED; ENVIRONMENT_*; what was done by then stays
 */
export async function mirror(
  hostFolder: string,
  environment: BaseEnvironment,
  options: SyncOptions,
): Promise<SyncReport> {
  const { direction, stateDir, abortSignal, dryRun = false, memory = new SyncMemory() } = options;
  await environment.start();
  const { workspace } = environment;
  const knownRoot = memory.roots.get(workspace);
  const thereRoot = knownRoot ?? (await makeWorkspace(environment));
  const bound = abortSignal ? { abortSignal } : {};
  const here: Side = { tree: memory.tree, root: realRoot(hostFolder) };
  const there: Side = { tree: environment.tree, root: thereRoot };
  const isHost = environment.info().exposedHostPaths.includes("/");
  if (isHost && here.root === there.root) {
    return {
      pushed: [],
      pulled: [],
      conflicts: [],
      skipped: [{ path: "", reason: "both sides are one folder" }],
    };
  }
  const place = isHost ? "" : await environment.tree.identity();
  const file = baselineFile(stateDir, here.root, `${environment.backend}:${place}:${there.root}`);
  using base = await Baseline.open(file, { known: () => memory.pairs.get(file)?.kept ?? null, ...bound });
  // Taken out, and put back when all went well: what a run that fails has noted is not what was kept.
  const last = base.isKnown ? memory.pairs.get(file) : undefined;
  memory.pairs.delete(file);
  memory.roots.delete(workspace);
  if (!dryRun) sweepStages(here.root);
  const scans = await scanBoth(here, there, knownRoot !== undefined, abortSignal);
  // The workspace is another one by now.
  if (!scans) {
    base[Symbol.dispose]();
    return mirror(hostFolder, environment, options);
  }
  const [hereScan, thereScan] = scans;
  // A side that was emptied or made anew begins anew: nobody's folder goes because of that.
  const isAnew = hereScan.entries.length === 0 || thereScan.entries.length === 0;
  if (isAnew) for (const path of [...base.states.keys()]) base.note(path, undefined);

  const hereView = last?.here ?? new View("here", base);
  const thereView = last?.there ?? new View("there", base);
  hereView.begin(base);
  thereView.begin(base);
  let [hereChanged, thereChanged] = [hereView.changed(hereScan), thereView.changed(thereScan)];
  const isWhole =
    !last ||
    isAnew ||
    hereView.isOtherwiseClosed(hereScan) ||
    thereView.isOtherwiseClosed(thereScan) ||
    [...hereChanged, ...thereChanged].some(hasRules);
  let rules = last?.rules;
  if (!rules || isWhole) {
    rules = new IgnoreRules(await ruleFiles(here, hereScan.entries, there, thereScan.entries));
    for (const view of [hereView, thereView]) view.forget();
    [hereChanged, thereChanged] = [hereView.changed(hereScan), thereView.changed(thereScan)];
  }
  const judge = judgeBy(rules, ownFolders(here.root, stateDir));
  hereView.take(hereScan, hereChanged, judge);
  thereView.take(thereScan, thereChanged, judge);
  if (isWhole) {
    for (const [side, { entries }] of [
      ["here", hereView],
      ["there", thereView],
    ] as const)
      for (const path of [...base.kept[side].keys()])
        if (!entries.has(path)) base.learn(side, path, undefined);
  }
  const paths = new Set([...hereChanged, ...thereChanged, ...(isWhole ? base.states.keys() : last.open)]);
  const { intent } = base;
  const intended = new Map(intent?.states ?? []);
  // What one side alone has, and always had alone, is hashed on its way.
  const compared = [...paths].filter(
    (path) =>
      dryRun ||
      base.states.has(path) ||
      intended.has(path) ||
      (hereView.entries.has(path) && thereView.entries.has(path)),
  );
  await Promise.all([
    hereView.look(here, compared, abortSignal),
    thereView.look(there, compared, abortSignal),
  ]);
  const skipped = new Map<string, string>();
  for (const view of [hereView, thereView]) {
    for (const [path, { kind }] of view.odd) skipped.set(path, `it is a ${kind}`);
    for (const path of view.unreadable) skipped.set(path, "it cannot be read, or is another file system");
  }
  // What a run that died had put in place is what both sides last agreed on.
  for (const [path, state] of intended) {
    const now = (intent?.side === "here" ? hereView : thereView).stateOf(path);
    if ((now ?? "") === state) base.note(path, now);
  }
  // The scan left them out on purpose; they must not look deleted.
  for (const path of paths) {
    const was = base.states.get(path);
    if (was === undefined || hereView.entries.has(path) || thereView.entries.has(path)) continue;
    if (rules.ignores(path, was.startsWith("folder"))) base.note(path, undefined);
  }
  const collisions = collisionsOf(hereView, thereView, options.ignoresCase ?? hostIgnoresCase(here.root));
  const mayPull = (path: string): string | null => {
    if (path.split("/").some(isGits)) return "git's own files never come from an environment";
    return [path, ...foldersOn(path)].flatMap((each) => collisions.get(each) ?? [])[0] ?? null;
  };
  const decision = decide(paths, hereView, thereView, base.states, direction, mayPull);
  if (direction !== "push") for (const { path, reason } of decision.held) skipped.set(path, reason);
  if (dryRun) return report(decision, [], skipped);

  for (const path of decision.equal) base.note(path, hereView.stateOf(path));
  const run = (
    from: Side,
    fromView: View,
    to: Side,
    toView: View,
    paths: readonly string[],
    message: string,
  ) => transfer({ from, fromView, to, toView, paths, message, base, skipped, options });
  const pushed = await run(here, hereView, there, thereView, decision.push, "sending");
  const pulled = await run(there, thereView, here, hereView, decision.pull, "fetching");
  const copies =
    direction === "push"
      ? []
      : await keepConflicts(decision.conflicts, there, thereView, here, hereView, skipped);
  base.save();
  const open = [...paths].filter((path) => {
    const [ours, theirs] = [hereView.stateOf(path), thereView.stateOf(path)];
    return ours !== theirs || ours !== base.states.get(path) || ours?.endsWith("?");
  });
  memory.pairs.set(file, { kept: base.kept, here: hereView, there: thereView, rules, open: new Set(open) });
  memory.roots.set(workspace, there.root);
  return report({ ...decision, push: pushed, pull: pulled }, copies, skipped);
}

/** @returns the workspace's path, links resolved */
async function makeWorkspace({ files, workspace }: BaseEnvironment): Promise<string> {
  await files.mkdir(workspace);
  return files.realPath(workspace);
}

/** @returns null when the environment's root is not, or no longer, what it is taken for; only where `mayMiss` */
async function scanBoth(
  here: Side,
  there: Side,
  mayMiss: boolean,
  abortSignal?: AbortSignal,
): Promise<readonly [TreeScan, TreeScan] | null> {
  const bound = abortSignal ? { abortSignal } : {};
  const [hereScan, thereScan] = await Promise.allSettled([
    here.tree.scan(here.root, bound),
    there.tree.scan(there.root, bound),
  ]);
  if (hereScan.status === "rejected") throw hereScan.reason;
  const isGone =
    thereScan.status === "rejected"
      ? isMoorageError(thereScan.reason, "FILE_MISSING") ||
        isMoorageError(thereScan.reason, "NOT_A_DIRECTORY")
      : thereScan.value.root !== there.root;
  if (mayMiss && isGone) return null;
  if (thereScan.status === "rejected") throw thereScan.reason;
  return [hereScan.value, thereScan.value];
}

/** @param own folders of our own state, as they compare where case does not matter */
function judgeBy(rules: IgnoreRules, own: readonly string[]): (entry: TreeEntry) => Verdict {
  return ({ path, kind }) => {
    if (kind !== "file" && kind !== "directory" && kind !== "symlink") return "odd";
    if (own.length > 0) {
      const folded = fold(path);
      if (own.some((folder) => folded === folder || isUnder(folded, folder))) return "left out";
    }
    const isCopy = path.includes(".conflict-") && CONFLICT.test(path);
    return isCopy || rules.ignores(path, kind === "directory") ? "left out" : "mirrored";
  };
}

interface Transfer {
  readonly from: Side;
  readonly fromView: View;
  readonly to: Side;
  readonly toView: View;
  readonly paths: readonly string[];
  readonly message: string;
  readonly base: Baseline;
  readonly skipped: Map<string, string>;
  readonly options: SyncOptions;
}

/** Makes the paths on one side what they are on the other, in goes that each leave a whole state behind. */
async function transfer(work: Transfer): Promise<readonly string[]> {
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
  { from, fromView, to, toView, message, base, skipped, options }: Transfer,
  files: readonly TreeEntry[],
  changes: TreeChanges,
  progress: { bytes: number; readonly totalBytes: number },
): Promise<readonly string[]> {
  const { onProgress, abortSignal } = options;
  const writer = to.tree.writer(to.root);
  const sent = new Map<string, string>();
  try {
    const seen = new Map(files.map((entry) => [entry.path, entry]));
    await from.tree.pack(
      from.root,
      files.map(({ path }) => path),
      async ({ path, size, content, bytes }) => {
        const entry = seen.get(path);
        if (!entry) return;
        if (hasGrown(entry, size)) {
          skipped.set(path, "it grew beyond measure while it was read");
          return;
        }
        const file = { path, size, mode: entry.mode & 0o777, modifiedAt: entry.modifiedAt };
        const tell = (length: number) => {
          progress.bytes += length;
          onProgress?.({ message, fraction: Math.min(1, progress.bytes / progress.totalBytes) });
        };
        if (bytes) {
          tell(size);
          await writer.stage(file, [bytes]);
          sent.set(path, hash("sha256", bytes));
          return;
        }
        const sum = createHash("sha256");
        const tee = async function* () {
          for await (const chunk of content) {
            sum.update(chunk);
            tell(chunk.length);
            yield chunk;
          }
        };
        await writer.stage(file, tee());
        sent.set(path, sum.digest("hex"));
      },
      abortSignal ? { abortSignal } : {},
    );
    for (const { path } of files)
      if (!sent.has(path) && !skipped.has(path)) skipped.set(path, "it cannot be read, or went away");
    abortSignal?.throwIfAborted();
    const kept = await changedSince(to, toView, [...sent.keys(), ...(changes.remove ?? [])]);
    for (const path of kept) {
      writer.unstage(path);
      skipped.set(path, "it was changed on both sides while the mirror ran");
    }
    const remove = (changes.remove ?? []).filter((path) => !kept.has(path));
    const next = [...remove, ...(changes.folders ?? []).map(pathOf), ...(changes.links ?? []).map(pathOf)];
    base.intend({
      side: message === "sending" ? "there" : "here",
      states: [
        ...next.map((path) => [path, fromView.stateOf(path) ?? ""] as const),
        ...[...sent].map(([path, hash]) => [path, sentState(fromView, path, hash)] as const),
      ],
    });
    const outcome = await writer.finish({ ...changes, remove });
    settle(outcome, sent, fromView, base, skipped);
    for (const path of outcome.done) {
      const hash = sent.get(path);
      if (hash !== undefined) fromView.learn(path, hash);
    }
    return outcome.done.filter((path) => !kept.has(path));
  } catch (error) {
    if (abortSignal?.aborted) throw new MoorageError("ABORTED", "The mirror was cancelled", { cause: error });
    throw error;
  } finally {
    await writer.discard();
  }
}

function settle(
  outcome: TreeOutcome,
  sent: ReadonlyMap<string, string>,
  view: View,
  base: Baseline,
  skipped: Map<string, string>,
): void {
  for (const path of outcome.done) {
    const hash = sent.get(path);
    base.note(path, hash === undefined ? view.stateOf(path) : sentState(view, path, hash));
  }
  for (const { path, reason } of outcome.failed) skipped.set(path, reason);
}

/** The state of a file whose content was hashed on its way. */
function sentState({ entries }: View, path: string, hash: string): string {
  return fileState(entries.get(path)?.mode ?? 0, hash);
}

function hasGrown(entry: TreeEntry, size: number): boolean {
  return size > entry.size * 2 + GROWTH_BYTES;
}

function pathOf({ path }: { readonly path: string }): string {
  return path;
}

/** Paths whose entry is another one than the scan saw: somebody wrote there meanwhile. */
async function changedSince(to: Side, view: View, paths: readonly string[]): Promise<ReadonlySet<string>> {
  const changed = new Set<string>();
  if (paths.length === 0) return changed;
  const now = new Map((await to.tree.scan(to.root, { paths })).entries.map((entry) => [entry.path, entry]));
  for (const path of paths) {
    const [before, after] = [view.entries.get(path), now.get(path)];
    if (before?.kind === "directory" && after?.kind === "directory") continue;
    if (before?.stamp !== after?.stamp) changed.add(path);
  }
  return changed;
}

/** Puts the environment's content beside the host's, under a name that says what it is and comes of what it holds. */
async function keepConflicts(
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
  const present = new Set(hereView.all.map(({ path }) => path));
  const writer = here.tree.writer(here.root);
  try {
    await there.tree.pack(there.root, files, async ({ path, size, content }) => {
      const copy = `${path}.conflict-${(thereView.hashOf(path) ?? "").slice(0, 8)}`;
      const entry = thereView.entries.get(path);
      if (!CONFLICT.test(copy) || !entry || hasGrown(entry, size)) return;
      copies.push({ path, copy });
      if (!present.has(copy)) {
        await writer.stage(
          { path: copy, size, mode: 0o600, modifiedAt: Math.floor(Date.now() / 1000) },
          content,
        );
      }
    });
    const { failed } = await writer.finish({});
    for (const { path, reason } of failed) skipped.set(path, reason);
    const lost = new Set(failed.map(({ path }) => path));
    return copies.filter(({ copy }) => !lost.has(copy));
  } finally {
    await writer.discard();
  }
}

/** Files with ignore rules: the host's; an environment's only in folders that the host has no rules in. */
async function ruleFiles(
  here: Side,
  hereEntries: readonly TreeEntry[],
  there: Side,
  thereEntries: readonly TreeEntry[],
): Promise<ReadonlyMap<string, string>> {
  const texts = new Map<string, string>();
  for (const [side, entries] of [
    [here, hereEntries],
    [there, thereEntries],
  ] as const) {
    const paths = ruleFilesOf(entries).filter(
      (path) => !texts.has(path) && (side === here || path !== EXCLUDE_FILE),
    );
    for (const [path, text] of await readRules(side.tree, side.root, paths)) texts.set(path, text);
  }
  return texts;
}

/**
 * Whether some file system takes the name for git's own folder: it ignores case, characters that do not show (HFS+),
 * dots and spaces at the end, or has a short name for it (NTFS).
 *
 * @see git's core.protectHFS and core.protectNTFS for the same list
 */
function isGits(part: string): boolean {
  const text = Buffer.from(part, "latin1").toString("utf8");
  const shown = text.replaceAll(/[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]/g, "").toLowerCase();
  return /^(\.git[. ]*|git~\d+)$/.test(shown);
}

/** Our own folders inside the mirrored one, as they compare where case does not matter. */
function ownFolders(root: string, stateDir: string): readonly string[] {
  let real = stateDir;
  try {
    real = realpathSync(stateDir);
  } catch {
    // It is not there yet; its name is protected all the same.
  }
  const inside = relative(root, real);
  return inside === "" || inside.startsWith("..") ? [] : [fold(bytesOf(inside))];
}

function fold(path: string): string {
  return Buffer.from(path, "latin1").toString("utf8").normalize("NFC").toLowerCase();
}

/** Paths of the environment that the host could not hold beside another one. */
function collisionsOf(here: View, there: View, ignoresCase: boolean): ReadonlyMap<string, string> {
  const collisions = new Map<string, string>();
  if (!ignoresCase) return collisions;
  const byFolded = new Map<string, Set<string>>();
  for (const path of new Set([...here.entries.keys(), ...there.entries.keys()])) {
    const key = fold(path);
    byFolded.set(key, (byFolded.get(key) ?? new Set()).add(path));
  }
  for (const twins of byFolded.values()) {
    if (twins.size < 2) continue;
    for (const path of twins) {
      const other = [...twins].find((each) => each !== path) ?? "";
      collisions.set(path, `on this host it would be the same as ${showName(other)}`);
    }
  }
  return collisions;
}

/** Whether the folder itself is found under its name in the other case. */
function hostIgnoresCase(root: string): boolean {
  const swapped = root.replaceAll(/[a-zA-Z]/g, (letter) =>
    letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
  );
  if (swapped === root) return false;
  try {
    return lstatSync(swapped, { bigint: true }).ino === lstatSync(root, { bigint: true }).ino;
  } catch {
    // Nothing is there under that name.
    return false;
  }
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

function report(
  decision: Pick<Decision, "push" | "pull" | "conflicts">,
  copies: readonly { readonly path: string; readonly copy: string }[],
  skipped: ReadonlyMap<string, string>,
): SyncReport {
  const copyOf = new Map(copies.map(({ path, copy }) => [path, copy]));
  return {
    pushed: decision.push.map(showName).sort(),
    pulled: decision.pull.map(showName).sort(),
    conflicts: decision.conflicts.map((path) => {
      const copy = copyOf.get(path);
      return { path: showName(path), copy: copy === undefined ? null : showName(copy) };
    }),
    skipped: [...skipped]
      .map(([path, reason]) => ({ path: showName(path), reason }))
      .sort((a, b) => (a.path < b.path ? -1 : 1)),
  };
}
