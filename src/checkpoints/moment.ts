/**
 * The state of a workspace at the moment of a checkpoint. Of each path it is what the first checkpoint from then on
 * recorded: one that was taken later, before a later change, knows what the path was like until then.
 */
import type { PathState } from "./states.ts";
import type { CheckpointOrigin, CheckpointStore, StoredCheckpoint } from "./store.ts";

export interface Moment {
  readonly states: ReadonlyMap<string, PathState>;
  /** Whether every path of the workspace is known: what is not among the states was not there. */
  readonly whole: boolean;
  /** Paths that calls made since. */
  readonly made: ReadonlySet<string>;
  /** Why the paths outside of the workspace that another environment's calls wrote to are not among the states. */
  readonly foreign: ReadonlyMap<string, string>;
}

/**
 * @param environment as `Place` names it: what lies outside of the workspace is this environment's own, so what was
 * there in another one is no state of it
 */
export function momentOf(store: CheckpointStore, checkpoint: StoredCheckpoint, environment: string): Moment {
  const states = new Map<string, PathState>();
  const made = new Set<string>();
  const foreign = new Map<string, string>();
  let whole = false;
  for (const each of store.since(checkpoint)) {
    for (const path of each.made) made.add(path);
    // Of what lies outside of the workspace only those of files know.
    if (whole && each.scope === "tree") continue;
    for (const [path, state] of store.states(each)) {
      // The call was about to write there.
      if (each.scope === "files" && state.kind === "absent" && !path.startsWith("/")) made.add(path);
      if (states.has(path) || (whole && !path.startsWith("/"))) continue;
      if (path.startsWith("/") && each.origin.environment !== environment) {
        foreign.set(path, whyForeign(each.origin));
        continue;
      }
      // Nothing was in a folder that was not there.
      if (state.kind === "absent" || !isUnderAbsent(path, states)) states.set(path, state);
    }
    whole ||= each.scope === "tree";
  }
  for (const path of states.keys()) foreign.delete(path);
  return { states, whole, made, foreign };
}

function whyForeign({ environment, description }: CheckpointOrigin): string {
  return environment === null
    ? "it lies outside of the workspace, and the checkpoint does not say in which environment"
    : `it lies outside of the workspace, in another environment: ${description}`;
}

function isUnderAbsent(path: string, states: ReadonlyMap<string, PathState>): boolean {
  for (let slash = path.lastIndexOf("/"); slash > 0; slash = path.lastIndexOf("/", slash - 1)) {
    if (states.get(path.slice(0, slash))?.kind === "absent") return true;
  }
  return false;
}
