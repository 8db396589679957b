/**
 * The state of a workspace at the moment of a checkpoint. Of each path it is what the first checkpoint from then on
 * recorded: one that was taken later, before a later change, knows what the path was like until then.
 */
import type { PathState } from "./states.ts";
import type { CheckpointStore, StoredCheckpoint } from "./store.ts";

export interface Moment {
  readonly states: ReadonlyMap<string, PathState>;
  /** Whether every path of the workspace is known: what is not among the states was not there. */
  readonly whole: boolean;
  /** Paths that calls made since. */
  readonly made: ReadonlySet<string>;
}

export function momentOf(store: CheckpointStore, checkpoint: StoredCheckpoint): Moment {
  const states = new Map<string, PathState>();
  const made = new Set<string>();
  let whole = false;
  for (const each of store.since(checkpoint)) {
    for (const path of each.made) made.add(path);
    // Of what lies outside of the workspace only those of files know.
    if (whole && each.scope === "tree") continue;
    for (const [path, state] of store.states(each)) {
      if (states.has(path) || (whole && !path.startsWith("/"))) continue;
      // Nothing was in a folder that was not there.
      if (state.kind === "absent" || !isUnderAbsent(path, states)) states.set(path, state);
    }
    whole ||= each.scope === "tree";
  }
  return { states, whole, made };
}

function isUnderAbsent(path: string, states: ReadonlyMap<string, PathState>): boolean {
  for (let slash = path.lastIndexOf("/"); slash > 0; slash = path.lastIndexOf("/", slash - 1)) {
    if (states.get(path.slice(0, slash))?.kind === "absent") return true;
  }
  return false;
}
