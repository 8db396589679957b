/**
 * Mirrors a folder of the host into an environment and back. The environment is not trusted: nothing is written
 * outside the host's folder, through a link, into our own state, into `.git` or over what the ignore rules name.
 */
import { existsSync } from "node:fs";
import { isMoorageError } from "../../src/errors.ts";
import type { BaseEnvironment, TreeEntry, TreeScan } from "../base.ts";
import { createHostTree, type HostTree } from "../tree/host.ts";
import { realRoot } from "../tree/host-folders.ts";
import { sweepStages } from "../tree/host-writer.ts";
import { EXCLUDE_FILE, hasRules, type IgnoreRules, readRules, ruleFilesOf } from "../tree/ignore-rules.ts";
import { bytesOf, foldersOn, isUnder, showName } from "../tree/names.ts";
import { HostRepositories, isRepositoryEntry } from "../tree/repositories.ts";
import { Baseline, baselineFile, hasBaseline, holdPlace, type Kept } from "./baseline.ts";
import { type Decision, type Direction, decide } from "./decide.ts";
import { type FirstOutcome, mirrorFirst } from "./first.ts";
import {
  collisionsOf,
  hostIgnoresCase,
  isGits,
  judgeBy,
  ownFolders,
  requireApart,
  rulesOf,
} from "./guards.ts";
import { type Side, View } from "./side.ts";
import { keepConflicts, transfer } from "./transfer.ts";

export interface SyncOptions {
  readonly direction: Direction;
  /** Says what would be done and does nothing. @default false */
  readonly dryRun?: boolean;
  /**
   * Of a push or a pull: what was changed on both sides goes the direction's way at these paths and in these folders, and
   * the other side's content is lost. Relative to the folder, empty for all of it. @default none: both sides stay
   */
  readonly overwrite?: readonly string[];
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
  /** Which the rules came of, too. */
  readonly repositories: HostRepositories;
  /** Paths that both sides did not agree on in the end. */
  readonly open: ReadonlySet<string>;
  /** What was put in place there just now: its stamps prove nothing yet, so the next run hashes it. */
  readonly pushed: readonly string[];
}

/**
 * Runs one mirror. Two of the same pair wait for each other, whatever processes they are in.
 *
 * @throws {MoorageError} FILE_MISSING, NOT_A_DIRECTORY for the folder; PATH_DENIED, INVALID_ARGUMENTS for folders that
 * cannot be mirrored; ABORTED; ENVIRONMENT_*; what was done by then stays
 */
export async function mirror(
  hostFolder: string,
  environment: BaseEnvironment,
  options: SyncOptions,
): Promise<SyncReport> {
  const { direction, stateDir, abortSignal, dryRun = false, memory = new SyncMemory() } = options;
  const here: Side = { tree: memory.tree, root: realRoot(hostFolder) };
  const first = await tryFirst(here, environment, options);
  if (first && !first.isPart) return report({ ...NOTHING, push: first.pushed }, [], first.skipped);
  if (first) {
    const rest = await mirror(hostFolder, environment, options);
    return { ...rest, pushed: [...new Set([...first.pushed.map(showName), ...rest.pushed])].sort() };
  }
  // While the environment comes up. Only of a folder that no mirror knows: another one might change it meanwhile.
  using ahead = hasBaseline(stateDir, here.root) ? null : scanAhead(here, abortSignal);
  await environment.start();
  const { workspace } = environment;
  const knownRoot = memory.roots.get(workspace);
  const thereRoot = knownRoot ?? (await makeWorkspace(environment));
  const bound = abortSignal ? { abortSignal } : {};
  const there: Side = { tree: environment.tree, root: thereRoot };
  const { isolation, exposedHostPaths, sharedFolder } = environment.info();
  // A container may have the host's powers, and its paths are its own all the same.
  const isHost = isolation === "none" && exposedHostPaths.includes("/");
  const onHost = isHost ? there.root : (sharedFolder ?? null);
  requireApart(here.root, onHost, stateDir);
  if (here.root === onHost) {
    return {
      pushed: [],
      pulled: [],
      conflicts: [],
      skipped: [{ path: "", reason: "both sides are one folder" }],
    };
  }
  const place = isHost ? "" : await environment.tree.identity();
  const file = baselineFile(stateDir, here.root, pairName(environment, place, there.root));
  using base = await Baseline.open(file, { known: () => memory.pairs.get(file)?.kept ?? null, ...bound });
  // Taken out, and put back when all went well: what a run that fails has noted is not what was kept.
  const last = base.isKnown ? memory.pairs.get(file) : undefined;
  memory.pairs.delete(file);
  memory.roots.delete(workspace);
  if (!dryRun) {
    sweepStages(here.root);
    // Of a first mirror that died, which this process's own kind had made.
    if (knownRoot === undefined && environment.capabilities.has("host-user")) sweepStages(there.root);
    if (base.stage !== null) await removeStage(environment, there.root, base.stage);
  }
  const isInside = isHost && `${there.root}/`.startsWith(here.root === "/" ? "/" : `${here.root}/`);
  const isAhead = base.isNew && !isInside && ahead !== null && performance.now() - ahead.at < AHEAD_MAX_MS;
  if (!isAhead) ahead?.[Symbol.dispose]();
  const scans = await scanBoth(here, there, {
    ahead: isAhead ? ahead.scan : null,
    mayMiss: knownRoot !== undefined,
    hashed: last?.pushed ?? [],
    ...bound,
  });
  // The workspace is another one by now.
  if (!scans) {
    base[Symbol.dispose]();
    return mirror(hostFolder, environment, options);
  }
  const [hereScan, thereScan] = scans;
  // A side that was emptied or made anew begins anew: nobody's folder goes because of that.
  const [isHereEmpty, isThereEmpty] = [hereScan.entries.length === 0, thereScan.entries.length === 0];
  const isAnew = isHereEmpty || isThereEmpty;
  const wasAgreed = base.states.size > 0;
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
    last.repositories.isStale() ||
    [...hereChanged, ...thereChanged].some((path) => hasRules(path) || isRepositoryEntry(path));
  let [rules, repositories] = [last?.rules, last?.repositories];
  if (!rules || !repositories || isWhole) {
    const texts = await ruleFiles(here, hereScan.entries, there, thereScan.entries);
    repositories = new HostRepositories(here.root);
    rules = rulesOf(texts, repositories, hereScan.entries);
    for (const view of [hereView, thereView]) view.forget();
    [hereChanged, thereChanged] = [hereView.changed(hereScan), thereView.changed(thereScan)];
  }
  const own = [here.root, onHost].flatMap((root) => (root === null ? [] : ownFolders(root, stateDir)));
  const judge = judgeBy(rules, own);
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
  if (wasAgreed && isHereEmpty !== isThereEmpty && direction !== (isHereEmpty ? "pull" : "push")) {
    skipped.set("", isHereEmpty ? EMPTIED_HERE : EMPTIED_THERE);
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
    if (collisions.size === 0) return null;
    return [path, ...foldersOn(path)].flatMap((each) => collisions.get(each) ?? [])[0] ?? null;
  };
  const settled = (options.overwrite ?? []).map(bytesOf);
  const isSettled = (path: string) => settled.some((each) => path === each || isUnder(path, each));
  const decision = decide(paths, hereView, thereView, base.states, direction, mayPull, isSettled);
  if (direction !== "push") for (const { path, reason } of decision.held) skipped.set(path, reason);
  if (dryRun) return report(decision, [], skipped);

  for (const path of decision.equal) base.note(path, hereView.stateOf(path));
  const hold = () => holdPlace(stateDir, pairName(environment, place, there.root), abortSignal);
  const run = (
    from: Side,
    fromView: View,
    to: Side,
    toView: View,
    paths: readonly string[],
    message: string,
  ) => transfer({ from, fromView, to, toView, paths, message, base, skipped, options, hold });
  const pushed = await run(here, hereView, there, thereView, decision.push, "sending");
  const pulled = await run(there, thereView, here, hereView, decision.pull, "fetching");
  const copies =
    direction === "push"
      ? []
      : await keepConflicts(decision.conflicts, there, thereView, here, hereView, skipped);
  base.save();
  const open = [...paths].filter((path) => {
    const was = base.states.get(path);
    // Most often that tells, and costs no text of ours.
    if (thereView.stateOf(path) !== was) return true;
    const ours = hereView.stateOf(path);
    return ours !== was || ours?.endsWith("?");
  });
  memory.pairs.set(file, {
    kept: base.kept,
    here: hereView,
    there: thereView,
    rules,
    repositories,
    open: new Set(open),
    pushed,
  });
  memory.roots.set(workspace, there.root);
  return report({ ...decision, push: pushed, pull: pulled }, copies, skipped);
}

const NOTHING = { push: [], pull: [], conflicts: [] };

/** The first mirror of a pair, done by this process alone; null where the usual way is to be gone. */
async function tryFirst(
  { tree, root }: Side,
  environment: BaseEnvironment,
  { direction, stateDir, dryRun = false, onProgress, abortSignal }: SyncOptions,
): Promise<FirstOutcome | null> {
  const mayBeFirst = process.platform === "linux" && direction !== "pull" && !dryRun;
  if (!mayBeFirst || !environment.capabilities.has("host-user")) return null;
  let there: string;
  try {
    there = realRoot(environment.workspace);
  } catch {
    // The usual way tells what is wrong with it.
    return null;
  }
  if (there === root) return null;
  requireApart(root, there, stateDir);
  const file = baselineFile(stateDir, root, pairName(environment, "", there));
  if (existsSync(file)) return null;
  return mirrorFirst({
    tree,
    here: root,
    there,
    start: () => environment.start(),
    stateDir,
    file,
    ...(onProgress && { onProgress }),
    ...(abortSignal && { abortSignal }),
  });
}

function pairName({ backend }: BaseEnvironment, place: string, root: string): string {
  return `${backend}:${place}:${root}`;
}

/** @returns the workspace's path, links resolved */
async function makeWorkspace({ files, workspace }: BaseEnvironment): Promise<string> {
  await files.mkdir(workspace);
  return files.realPath(workspace);
}

/** Removes what a run that died had gathered in the environment. */
async function removeStage({ files }: BaseEnvironment, root: string, name: string): Promise<void> {
  try {
    await files.remove(`${root}/${name}`, { recursive: true });
  } catch (error) {
    // It died before it was made, or after it was removed.
    if (!isMoorageError(error, "FILE_MISSING")) throw error;
  }
}

const EMPTIED =
  "and one that was emptied or made anew removes nothing on the other side; empty both if that is meant";
const EMPTIED_HERE = `this host's folder was found empty, ${EMPTIED}`;
const EMPTIED_THERE = `the environment's folder was found empty, ${EMPTIED}`;

/** In a folder that was looked at longer ago, milliseconds, somebody may have worked since. */
const AHEAD_MAX_MS = 5_000;

/** A scan that nobody may come to ask for; then it is ended. */
function scanAhead({ tree, root }: Side, abortSignal: AbortSignal | undefined) {
  const ending = new AbortController();
  const scan = tree.scan(root, {
    abortSignal: AbortSignal.any([ending.signal, ...(abortSignal ? [abortSignal] : [])]),
  });
  // Whoever asks for it is told.
  scan.catch(() => undefined);
  return { scan, at: performance.now(), [Symbol.dispose]: () => ending.abort() };
}

/** @returns null when the environment's root is not, or no longer, what it is taken for; only where `mayMiss` */
async function scanBoth(
  here: Side,
  there: Side,
  {
    ahead,
    mayMiss,
    hashed,
    ...bound
  }: {
    readonly ahead: Promise<TreeScan> | null;
    readonly mayMiss: boolean;
    readonly hashed: readonly string[];
    readonly abortSignal?: AbortSignal;
  },
): Promise<readonly [TreeScan, TreeScan] | null> {
  const [hereScan, thereScan] = await Promise.allSettled([
    ahead ?? here.tree.scan(here.root, bound),
    there.tree.scan(there.root, { ...bound, hashed }),
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
    const paths = ruleFilesOf(entries).filter((path) => !texts.has(path) && path !== EXCLUDE_FILE);
    for (const [path, text] of await readRules(side.tree, side.root, paths)) texts.set(path, text);
  }
  return texts;
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
