/** Checkpoints of the workspaces of one runtime: taken, listed, compared and restored. */
import type { BaseEnvironment } from "../../environments/base.ts";
import { byPath, isUnder, showName } from "../../environments/tree/names.ts";
import { isMoorageError, MoorageError } from "../errors.ts";
import { limits } from "../limits.ts";
import { shellWord } from "../shell-word.ts";
import { askedPath } from "./asked-path.ts";
import { type Moment, momentOf } from "./moment.ts";
import { planRestore, type RestorePlan } from "./plan.ts";
import { applyPlan } from "./restore.ts";
import type { PathState, Skipped } from "./states.ts";
import type { CheckpointInfo, CheckpointStore, ScanMemory, StoredCheckpoint } from "./store.ts";
import { findPlace, type Place, type PlaceNames, type TakenTree, takeFiles, takeTree } from "./take.ts";

export interface CheckpointSettings {
  /**
   * `call`: before each call that can change files. `turn`: of the whole workspace, before the first such call of a
   * turn. `never`: only by hand. @default "call"
   */
  readonly each?: "call" | "turn" | "never";
  /** Files beyond this, or beyond 1 GiB, are left out, bytes. @default limits.checkpointFileMaxBytes */
  readonly maxFileBytes?: number;
  /** Time for a tree before a command, milliseconds. @default limits.checkpointBudgetMs */
  readonly budgetMs?: number;
  /** All contents, bytes. @default limits.checkpointStoreMaxBytes */
  readonly maxStoreBytes?: number;
}

export interface RestoreOptions {
  /** Only these paths and what is in them, relative to the workspace or absolute. @default everything */
  readonly paths?: readonly string[];
  /** Changes nothing and says what would be. @default false */
  readonly dryRun?: boolean;
  /** Also removes what no call made. @default false: it stays, and is listed */
  readonly removeOthers?: boolean;
  /**
   * Takes a checkpoint of another place too: another folder, or a container in the stead of one that is gone. What is
   * there now and was not in the other place counts as made by no call. @default false: refused
   */
  readonly otherPlace?: boolean;
}

export interface RestoreReport {
  readonly checkpoint: string;
  /** Checkpoint of what was there before the restore; null for a dry run. */
  readonly undo: string | null;
  readonly restored: readonly string[];
  readonly removed: readonly string[];
  readonly failed: readonly Skipped[];
  /** There now and not then, made by no call: they stay. */
  readonly others: readonly string[];
  /** Untouched, and why: no checkpoint holds its content, or it is another environment's. */
  readonly left: readonly Skipped[];
}

/** A checkpoint that was taken for a call, to be told what came of the call. */
export interface TakenCheckpoint {
  readonly id: string;
  /** What the caller should know; null when all is well. */
  readonly note: string | null;
  /** Looks for what the call made. */
  finish(): Promise<void>;
}

/** The checkpoints of one state folder. Opens nothing before the first use. */
export class Checkpoints implements AsyncDisposable {
  readonly #stateDir: string;
  readonly #settings: CheckpointSettings;
  #store: Promise<CheckpointStore> | null = null;
  #opened: CheckpointStore | null = null;
  /** Those whose file is not the index any more; what is at work still uses them. */
  readonly #replaced: CheckpointStore[] = [];
  readonly #places = new WeakMap<BaseEnvironment, ReturnType<typeof findPlace>>();
  readonly #names = new WeakMap<BaseEnvironment, PlaceNames>();
  readonly #memories = new Map<string, { readonly losses: number; readonly taken: TakenTree }>();
  /** Until when a place goes without checkpoints of its tree. */
  readonly #resting = new Map<string, number>();
  readonly #queues = new Map<string, Promise<unknown>>();
  #pruning: Promise<unknown> = Promise.resolve();
  #taken = 0;

  constructor(stateDir: string, settings: CheckpointSettings = {}) {
    this.#stateDir = stateDir;
    this.#settings = settings;
  }

  /** Notes what people know an environment by, for the checkpoints that are taken from now on. */
  name(environment: BaseEnvironment, names: PlaceNames): void {
    this.#names.set(environment, { ...this.#names.get(environment), ...names });
  }

  /**
   * Before a call that writes to these paths.
   *
   * @param call.onlyOutside keeps those alone that lie outside of the workspace; null when there is none
   */
  async beforeFiles(
    environment: BaseEnvironment,
    paths: readonly string[],
    call: {
      readonly reason: string;
      readonly callId: string;
      readonly cwd: string;
      readonly onlyOutside?: boolean;
    },
  ): Promise<TakenCheckpoint | null> {
    const place = await this.#place(environment);
    return this.#healed(async (store) => {
      const taken = await once(() =>
        takeFiles(store, environment, place, paths, { ...call, ...this.#cap() }),
      );
      if (call.onlyOutside && taken.states.size === 0) return null;
      const checkpoint = entered(taken.checkpoint);
      this.#pruneSoon(store);
      return { id: checkpoint.id, note: noteOn(checkpoint.skipped), finish: async () => {} };
    });
  }

  /** Before a call that may write anywhere in the workspace. Null while the place rests after a budget was passed. */
  async beforeTree(
    environment: BaseEnvironment,
    call: { readonly reason: string; readonly callId: string },
  ): Promise<TakenCheckpoint | null> {
    const place = await this.#place(environment);
    return this.#healed(async (store) => {
      const rest = this.#resting.get(place.key) ?? 0;
      if (performance.now() < rest) return null;
      const budgetMs = this.#settings.budgetMs ?? limits.checkpointBudgetMs;
      try {
        const taken = await this.#tree(store, environment, place, { ...call, budgetMs });
        if (!taken.inTime) this.#rest(place);
        const checkpoint = entered(taken.checkpoint);
        const before = new Set(taken.entries.map(({ path }) => path));
        return {
          id: checkpoint.id,
          note: noteOn(checkpoint.skipped),
          finish: async () => {
            const { entries } = await environment.tree.scan(place.root, {
              sideBySide: true,
              timeoutMs: budgetMs,
            });
            // What a call opens was there before.
            const isHidden = (path: string) => taken.closed.some((folder) => isUnder(path, folder));
            const made = entries.map(({ path }) => path).filter((path) => !before.has(path));
            store.addMade(
              checkpoint.seq,
              made.filter((path) => !isHidden(path)),
            );
          },
        };
      } catch (error) {
        if (!isMoorageError(error, "TOOL_TIMEOUT")) throw error;
        this.#rest(place);
        throw new MoorageError(
          "CHECKPOINT_FAILED",
          `Looking at the workspace took more than ${budgetMs} ms; commands go without a checkpoint for ${limits.checkpointBackOffMs / 1000} s`,
          { cause: error },
        );
      }
    });
  }

  /** By hand: the whole workspace, without a time budget. */
  async create(environment: BaseEnvironment, reason = "by hand"): Promise<CheckpointInfo> {
    const place = await this.#place(environment);
    return this.#healed(async (store) =>
      withoutStore(entered((await this.#tree(store, environment, place, { reason })).checkpoint)),
    );
  }

  /** Newest first. @param environment only those of its workspace */
  async list(environment?: BaseEnvironment): Promise<readonly CheckpointInfo[]> {
    const place = environment && (await this.#place(environment));
    return this.#healed(async (store) => store.list(place?.key).map(withoutStore));
  }

  /** @throws {MoorageError} INVALID_ARGUMENTS, CHECKPOINT_MISSING */
  async get(id: string): Promise<CheckpointInfo> {
    return this.#healed(async (store) => withoutStore(store.get(id)));
  }

  /** What a checkpoint knows: each path with its kind. @throws {MoorageError} INVALID_ARGUMENTS, CHECKPOINT_MISSING */
  async show(
    id: string,
  ): Promise<{ readonly info: CheckpointInfo; readonly states: readonly (readonly [string, PathState])[] }> {
    return this.#healed(async (store) => {
      const checkpoint = store.get(id);
      const states = [...store.states(checkpoint)].map(([path, state]) => [showName(path), state] as const);
      return { info: withoutStore(checkpoint), states };
    });
  }

  /**
   * A unified difference from the checkpoint to the present.
   *
   * @throws {MoorageError} INVALID_ARGUMENTS, also for a checkpoint of another place and for a path that it knows nothing
   * of; CHECKPOINT_MISSING
   */
  async diff(
    id: string,
    environment: BaseEnvironment,
    options: Pick<RestoreOptions, "paths" | "otherPlace"> = {},
  ): Promise<string> {
    const { store, checkpoint, place } = await this.#find(id, environment);
    const isElsewhere = isOfOtherPlace(checkpoint, place, options);
    const moment = momentOf(store, checkpoint, place.environment);
    const present = await this.#present(store, environment, place, moment, null);
    const givesOwners = await canGiveAway(environment);
    const how = { ...options, givesOwners, isElsewhere };
    const plan = this.#plan(moment, present.states, place, environment, how);
    const { comparePlan } = await import("./compare.ts");
    return comparePlan(store, environment, place, plan, present.states);
  }

  /**
   * Makes the workspace what it was. The present is checkpointed first, and `undo` names that checkpoint.
   *
   * @throws {MoorageError} INVALID_ARGUMENTS, also for a checkpoint of another place and for a path that it knows nothing
   * of; CHECKPOINT_MISSING, and what keeps the present from being saved: then nothing is changed
   */
  async restore(
    id: string,
    environment: BaseEnvironment,
    options: RestoreOptions = {},
  ): Promise<RestoreReport> {
    const { store, checkpoint, place } = await this.#find(id, environment);
    const isElsewhere = isOfOtherPlace(checkpoint, place, options);
    return this.#inTurn(place.key, async () => {
      // The present that is checkpointed first may be what makes the store too full.
      using _held = store.hold(checkpoint);
      const moment = momentOf(store, checkpoint, place.environment);
      const reason = options.dryRun ? null : `before restore of ${id}`;
      const present = await this.#present(store, environment, place, moment, reason);
      const givesOwners = await canGiveAway(environment);
      const how = { ...options, givesOwners, isElsewhere };
      const plan = this.#plan(moment, present.states, place, environment, how);
      if (!store.isCurrent())
        throw new MoorageError("CHECKPOINT_FAILED", `Cannot restore ${id}: the index was removed meanwhile`);
      const shown = { others: plan.others.map(showName), left: leftOf(plan) };
      if (options.dryRun) {
        const restored = [...plan.set.keys()].sort().map(showName);
        const removed = plan.remove.filter((path) => !plan.set.has(path)).map(showName);
        return { checkpoint: id, undo: null, restored, removed, failed: [], ...shown };
      }
      const applied = await applyPlan(store, environment, place, plan, present.states, moment);
      const undo = entered(present.checkpoint);
      // Undoing the restore removes what it brought back.
      store.addMade(
        undo.seq,
        [...plan.set.keys()].filter((path) => (present.states.get(path)?.kind ?? "absent") === "absent"),
      );
      this.#pruneSoon(store);
      return {
        checkpoint: id,
        undo: undo.id,
        restored: applied.restored.map(showName),
        removed: applied.removed.map(showName),
        failed: applied.failed,
        ...shown,
      };
    });
  }

  /** Removes what is too old or too much. @returns how many checkpoints went */
  async prune(): Promise<number> {
    const maxBytes = this.#settings.maxStoreBytes ?? limits.checkpointStoreMaxBytes;
    const { checkpointMaxAgeMs: maxAgeMs, checkpointMaxCount: maxCount } = limits;
    return this.#healed((store) => store.prune({ maxBytes, maxAgeMs, maxCount }));
  }

  /** Bytes in the store. */
  async totalBytes(): Promise<number> {
    return (await this.#open()).totalBytes;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled(this.#queues.values());
    await this.#pruning;
    if (this.#store) (await this.#store)[Symbol.dispose]();
    this.#store = null;
    for (const store of this.#replaced.splice(0)) store[Symbol.dispose]();
  }

  /** A checkpoint that is asked for by its id. @throws {MoorageError} INVALID_ARGUMENTS, CHECKPOINT_MISSING */
  async #find(id: string, environment: BaseEnvironment) {
    const place = await this.#place(environment);
    return this.#healed(async (store) => ({ store, place, checkpoint: store.get(id) }));
  }

  /**
   * The present, with the paths outside of the workspace that the moment knows.
   *
   * @param reason why it is checkpointed; null only looks
   */
  async #present(
    store: CheckpointStore,
    environment: BaseEnvironment,
    place: Place,
    moment: Moment,
    reason: string | null,
  ): Promise<{
    readonly checkpoint: StoredCheckpoint | null;
    readonly states: ReadonlyMap<string, PathState>;
  }> {
    const outside = [...moment.states.keys()].filter((path) => path.startsWith("/"));
    const states = new Map<string, PathState>();
    if (outside.length > 0) {
      const names = outside.map((path) => Buffer.from(path, "latin1").toString("utf8"));
      const options = { reason, cwd: place.root, ...this.#cap() };
      const files = await takeFiles(store, environment, place, names, options);
      for (const [path, state] of files.states) if (path.startsWith("/")) states.set(path, state);
    }
    const tree = await this.#tree(store, environment, place, { reason }, true);
    for (const [path, state] of tree.states) states.set(path, state);
    return { checkpoint: tree.checkpoint, states };
  }

  #plan(
    moment: Moment,
    present: ReadonlyMap<string, PathState>,
    place: Place,
    environment: BaseEnvironment,
    { paths, removeOthers = false, ...how }: RestoreOptions & Parameters<typeof planRestore>[2],
  ): RestorePlan {
    const asked = paths?.map((path) => askedPath(path, moment, present, place, environment));
    return planRestore(moment, present, { ...how, ...(asked && { paths: asked }), removeOthers });
  }

  async #tree(
    store: CheckpointStore,
    environment: BaseEnvironment,
    place: Place,
    options: { readonly reason: string | null; readonly callId?: string; readonly budgetMs?: number },
    isInTurn = false,
  ) {
    const work = async () => {
      const known = this.#memories.get(place.key);
      const remembered = known?.losses === store.blobs.losses ? known.taken.memory : store.recall(place.key);
      const last = known?.losses === store.blobs.losses ? known.taken : null;
      const take = (memory: ScanMemory) =>
        takeTree(
          store,
          environment,
          place,
          { ...options, ...this.#cap() },
          memory,
          memory === remembered ? last : null,
        );
      // What the memory names may have been pruned since; then everything is looked at.
      const taken = await take(remembered).catch((error: unknown) => {
        if (!isGone(error)) throw error;
        return take(new Map());
      });
      // A mere look stores nothing, so its hashes are no memory of what is in the store.
      if (options.reason === null) return taken;
      const isChanged =
        taken.memory !== remembered &&
        (taken.memory.size !== remembered.size ||
          [...taken.memory].some(([path, { stamp }]) => remembered.get(path)?.stamp !== stamp));
      if (isChanged) store.remember(place.key, taken.memory);
      this.#memories.set(place.key, { losses: store.blobs.losses, taken });
      this.#pruneSoon(store);
      return taken;
    };
    return isInTurn ? work() : this.#inTurn(place.key, work);
  }

  /** Trees of one place are taken one after the other, so that each knows what the last one stored. */
  #inTurn<Value>(key: string, work: () => Promise<Value>): Promise<Value> {
    const running = (this.#queues.get(key) ?? Promise.resolve()).then(work, work);
    this.#queues.set(
      key,
      running.then(
        () => undefined,
        () => undefined,
      ),
    );
    return running;
  }

  /** The store of the index that is there now. */
  async #open(): Promise<CheckpointStore> {
    const store = await this.#opening();
    if (!store.isCurrent()) this.#replace(store);
    const current = await this.#opening();
    current.blobs.notice();
    return current;
  }

  #opening(): Promise<CheckpointStore> {
    // Loaded on first need: most commands take no checkpoint.
    this.#store ??= import("./store.ts")
      .then(({ CheckpointStore }) => CheckpointStore.open(this.#stateDir))
      .then((store) => {
        this.#opened = store;
        return store;
      })
      .catch((error: unknown) => {
        this.#store = null;
        throw error;
      });
    return this.#store;
  }

  #replace(store: CheckpointStore): void {
    if (this.#opened !== store) return;
    this.#opened = null;
    this.#replaced.push(store);
    this.#store = null;
    this.#memories.clear();
  }

  /**
   * Works on the store, twice at most. Where the index turns out to be damaged a new one is begun: it would keep all
   * checkpoints from being taken. What was entered into a file that is not the index any more is found by nobody.
   */
  async #healed<Value>(work: (store: CheckpointStore) => Promise<Value>): Promise<Value> {
    const store = await this.#open();
    try {
      const value = await work(store);
      if (store.isCurrent()) return value;
    } catch (error) {
      const { isDamaged } = await import("./index-file.ts");
      if (!isDamaged(error)) throw error;
      const { CheckpointStore } = await import("./store.ts");
      if (store.isCurrent()) CheckpointStore.heal(this.#stateDir);
    }
    this.#replace(store);
    return work(await this.#open());
  }

  async #place(environment: BaseEnvironment): Promise<Place> {
    let finding = this.#places.get(environment);
    if (!finding) {
      finding = findPlace(environment);
      this.#places.set(environment, finding);
      finding.catch(() => this.#places.delete(environment));
    }
    const found = await finding;
    // Through a link the workspace may be another folder by now.
    const { files, workspace } = environment;
    if (found.root !== workspace && (await files.realPath(workspace)) !== found.root) {
      this.#places.delete(environment);
      return this.#place(environment);
    }
    return { ...found, names: this.#names.get(environment) ?? {} };
  }

  #cap(): { readonly maxFileBytes?: number } {
    const { maxFileBytes } = this.#settings;
    return maxFileBytes === undefined ? {} : { maxFileBytes };
  }

  #rest({ key }: Place): void {
    // What another process stores meanwhile, by hand for one, is known afterwards.
    this.#memories.delete(key);
    this.#resting.set(key, performance.now() + limits.checkpointBackOffMs);
  }

  /** Beside the calls, when there is too much, and now and then for what is too old. */
  #pruneSoon(store: CheckpointStore): void {
    this.#taken += 1;
    const maxBytes = this.#settings.maxStoreBytes ?? limits.checkpointStoreMaxBytes;
    if (this.#taken % 100 !== 1 && store.totalBytes <= maxBytes) return;
    this.#pruning = this.#pruning
      .then(() => this.prune())
      .catch((error: unknown) => {
        const text = error instanceof Error ? error.message : String(error);
        process.emitWarning(`Checkpoints could not be pruned: ${text}`, "MoorageWarning");
      });
  }
}

/** Whether commands run as root there, who alone can give a file to somebody else. */
async function canGiveAway(environment: BaseEnvironment): Promise<boolean> {
  const { output } = await environment.exec(["id", "-u"], { timeoutMs: limits.fileOpTimeoutMs });
  return output.trim() === "0";
}

/** Contents that were pruned between being found and being entered are stored in a second go. */
async function once<Value>(take: () => Promise<Value>): Promise<Value> {
  try {
    return await take();
  } catch (error) {
    if (!isGone(error)) throw error;
    return take();
  }
}

function isGone(error: unknown): boolean {
  return isMoorageError(error, "INTERNAL") && /contents are gone/.test(error.message);
}

/** A checkpoint that was asked for by a reason. */
function entered(checkpoint: StoredCheckpoint | null): StoredCheckpoint {
  if (checkpoint) return checkpoint;
  throw new MoorageError("INTERNAL", "A checkpoint was looked for and not entered");
}

/** @throws {MoorageError} INVALID_ARGUMENTS unless another place than the checkpoint's own is meant */
function isOfOtherPlace(
  { id, place: taken, origin: { spec } }: StoredCheckpoint,
  { key }: Place,
  { otherPlace = false }: Pick<RestoreOptions, "otherPlace">,
): boolean {
  if (taken === key) return false;
  if (otherPlace) return true;
  throw new MoorageError(
    "INVALID_ARGUMENTS",
    `Cannot use ${id} on "${key}": it is a checkpoint of "${taken}"`,
    {
      suggestion: key.startsWith(`${taken}/`)
        ? `Restore this folder alone with \`moor checkpoints restore ${id} ${shellWord(key.slice(taken.length + 1))}\` in "${taken.replace("host:", "")}", or say that another place is meant (--other-place).`
        : `Name the folder and the environment that it was taken in${spec === null ? "" : ` (-e ${shellWord(spec)})`}, or say that another place is meant (--other-place).`,
    },
  );
}

function leftOf({ left }: RestorePlan): readonly Skipped[] {
  return [...left]
    .sort(([a], [b]) => byPath(a, b))
    .map(([path, reason]) => ({ path: showName(path), reason }));
}

/** What a checkpoint does not hold, by reason. */
function noteOn(skipped: readonly Skipped[]): string | null {
  if (skipped.length === 0) return null;
  const parts = [...Map.groupBy(skipped, ({ reason }) => reason)].map(([reason, alike]) => {
    const [first] = alike;
    const rest = alike.length - 1;
    return `${first?.path}${rest > 0 ? ` and ${rest} more` : ""}: ${reason}`;
  });
  return `The checkpoint does not hold ${parts.join("; nor ")}`;
}

function withoutStore({
  seq: _seq,
  manifest: _manifest,
  made: _made,
  ...info
}: StoredCheckpoint): CheckpointInfo {
  return info;
}
