/** Makes a workspace what it was at a checkpoint, in this environment or another one. */
import type { BaseEnvironment, Owner, TreeChanges } from "../../environments/base.ts";
import { showName, textOf } from "../../environments/tree/names.ts";
import { isMoorageError } from "../errors.ts";
import type { Moment } from "./moment.ts";
import type { RestorePlan } from "./plan.ts";
import { ownerOf, type PathState, type Skipped } from "./states.ts";
import type { CheckpointStore } from "./store.ts";
import type { Place } from "./take.ts";

export interface Applied {
  /** Paths as they are kept, one character per byte. */
  readonly restored: readonly string[];
  readonly removed: readonly string[];
  readonly failed: readonly Skipped[];
}

type FileState = Extract<PathState, { kind: "file" }>;

/** Carries a plan out. What cannot be done is told by path, and the rest is done. */
export async function applyPlan(
  store: CheckpointStore,
  environment: BaseEnvironment,
  place: Place,
  plan: RestorePlan,
  present: ReadonlyMap<string, PathState>,
  moment: Moment,
): Promise<Applied> {
  const failed: Skipped[] = [];
  const writer = environment.tree.writer(place.root);
  const folders = new Map<string, { readonly mode: number; readonly owner?: Owner }>();
  const links: { path: string; target: string; owner?: Owner }[] = [];
  const modes: { path: string; mode: number; owner?: Owner }[] = [];
  const files: (readonly [string, FileState])[] = [];
  const outside: string[] = [];
  const owned = (state: PathState) => {
    const owner = plan.givesOwners ? ownerOf(state) : null;
    return owner ? { owner } : {};
  };
  for (const [path, state] of plan.set) {
    const now = present.get(path);
    if (path.startsWith("/")) outside.push(path);
    else if (state.kind === "directory") folders.set(path, { mode: state.mode, ...owned(state) });
    else if (state.kind === "symlink") links.push({ path, target: state.target, ...owned(state) });
    else if (now?.kind === "file" && now.hash === state.hash)
      modes.push({ path, mode: state.mode, ...owned(state) });
    else files.push([path, state]);
  }
  const remove = plan.remove.filter((path) => !path.startsWith("/"));
  // A folder that is opened for the change gets back the mode that it had.
  for (const path of [...files.map(([file]) => file), ...links.map((link) => link.path), ...remove]) {
    for (let slash = path.lastIndexOf("/"); slash > 0; slash = path.lastIndexOf("/", slash - 1)) {
      const folder = path.slice(0, slash);
      const then = moment.states.get(folder) ?? present.get(folder);
      if (!folders.has(folder) && then?.kind === "directory" && (then.mode & 0o300) !== 0o300)
        if (!remove.includes(folder)) folders.set(folder, { mode: then.mode });
    }
  }
  try {
    // In the order of their packs, each of which is read once.
    for (const [path, state] of files) {
      const { hash, size, mode, modifiedAt } = state;
      const bytes = await store.blobs.read(hash);
      if (!bytes) {
        failed.push({ path: showName(path), reason: "its content is no longer in the store" });
        continue;
      }
      const at = modifiedAt >= 0 ? modifiedAt : Math.floor(Date.now() / 1000);
      await writer.stage({ path, size, mode, modifiedAt: at, ...owned(state) }, [bytes]);
    }
    const changes: TreeChanges = {
      remove,
      folders: [...folders].map(([path, folder]) => ({ path, ...folder })),
      links,
      modes,
    };
    const outcome = await writer.finish(changes);
    failed.push(...outcome.failed.map(({ path, reason }) => ({ path: showName(path), reason })));
    const done = new Set(outcome.done);
    const apart = await applyOutside(store, environment, outside, plan, failed);
    return {
      restored: [...plan.set.keys()].filter((path) => done.has(path) || apart.has(path)).sort(),
      removed: plan.remove
        .filter((path) => !plan.set.has(path) && (done.has(path) || apart.has(path)))
        .sort(),
      failed,
    };
  } finally {
    await writer.discard();
  }
}

/** Files that a call changed outside of the workspace, one by one. */
async function applyOutside(
  store: CheckpointStore,
  environment: BaseEnvironment,
  paths: readonly string[],
  plan: RestorePlan,
  failed: Skipped[],
): Promise<ReadonlySet<string>> {
  const done = new Set<string>();
  const attempt = async (path: string, work: (name: string) => Promise<unknown>) => {
    const name = textOf(path);
    try {
      if (name === null) throw new Error("its name is no UTF-8");
      await work(name);
      done.add(path);
    } catch (error) {
      failed.push({ path: showName(path), reason: error instanceof Error ? error.message : String(error) });
    }
  };
  const removals = plan.remove
    .filter((path) => path.startsWith("/"))
    .sort()
    .reverse();
  for (const path of removals) {
    await attempt(path, (name) =>
      environment.files.remove(name).catch((error: unknown) => {
        if (!isMoorageError(error, "FILE_MISSING")) throw error;
      }),
    );
  }
  for (const path of paths) {
    await attempt(path, async (name) => {
      const state = plan.set.get(path);
      if (state?.kind !== "file") throw new Error("only files are restored outside of the workspace");
      const bytes = await store.blobs.read(state.hash);
      if (!bytes) throw new Error("its content is no longer in the store");
      await environment.files.writeFile(name, bytes, { mode: state.mode });
    });
  }
  return done;
}
