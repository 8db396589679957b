/** From what was and what is to what has to be done. */
import { foldersOn, isUnder } from "../../environments/tree/names.ts";
import type { Moment } from "./moment.ts";
import { isOtherOwner, type PathState, sameState } from "./states.ts";

export interface RestorePlan {
  /** Paths with the state that they get; absolute ones lie outside of the workspace. */
  readonly set: ReadonlyMap<string, Exclude<PathState, { kind: "absent" | "kept" }>>;
  readonly remove: readonly string[];
  /** What is there now, was not there then, and was not made by a call: it stays. */
  readonly others: readonly string[];
  /** Neither changed nor removed, by path with the reason. */
  readonly left: ReadonlyMap<string, string>;
  /** Whether a path gets back the owner that it had. */
  readonly givesOwners: boolean;
}

/**
 * @param paths only these and what is in them; all without
 * @param removeOthers also removes what calls did not make
 * @param givesOwners whether a path gets back the owner that it had
 * @param isElsewhere the moment is another place's, so that nothing here was made by the calls that it knows of
 */
export function planRestore(
  moment: Moment,
  present: ReadonlyMap<string, PathState>,
  {
    paths,
    removeOthers = false,
    givesOwners = false,
    isElsewhere = false,
  }: {
    readonly paths?: readonly string[];
    readonly removeOthers?: boolean;
    readonly givesOwners?: boolean;
    readonly isElsewhere?: boolean;
  } = {},
): RestorePlan {
  const isAsked = (path: string) =>
    !paths || paths.some((asked) => path === asked || isUnder(path, asked) || asked === "");
  const isAsItWas = (state: PathState, now: PathState | undefined) =>
    sameState(state, now) && !(givesOwners && isOtherOwner(state, now));
  const set = new Map<string, Exclude<PathState, { kind: "absent" | "kept" }>>();
  const remove = new Set<string>();
  const others: string[] = [];
  const left = new Map([...moment.foreign].filter(([path]) => isAsked(path)));
  const leave = (path: string): void => {
    left.set(path, "its content was not kept");
  };
  for (const [path, state] of moment.states) {
    if (!isAsked(path)) continue;
    const now = present.get(path);
    if (state.kind === "kept") leave(path);
    else if (state.kind === "absent") {
      if (now?.kind === "kept") leave(path);
      else if (now !== undefined && now.kind !== "absent") {
        if (isElsewhere && !removeOthers) others.push(path);
        else remove.add(path);
      }
    } else if (now?.kind === "kept") leave(path);
    else if (!isAsItWas(state, now)) {
      set.set(path, state);
      // Something of another kind is in its place.
      if (now && now.kind !== "absent" && now.kind !== state.kind) remove.add(path);
    }
  }
  if (moment.whole) {
    const isShut = (folder: string) => {
      const state = moment.states.get(folder);
      return state?.kind === "directory" && state.closed === true;
    };
    for (const [path, now] of present) {
      if (moment.states.has(path) || !isAsked(path) || now.kind === "absent") continue;
      const shut = moment.made.has(path) ? undefined : foldersOn(path).find(isShut);
      if (shut !== undefined) left.set(shut, "nobody could look into it then");
      else if (now.kind === "kept") leave(path);
      else if (removeOthers || (moment.made.has(path) && !isElsewhere)) remove.add(path);
      else others.push(path);
    }
  }
  // A folder with something in it that stays, stays as well.
  const staying = new Set([...others, ...left.keys()].flatMap(foldersOn));
  for (const path of remove) {
    if (present.get(path)?.kind === "directory" && staying.has(path) && !set.has(path)) {
      remove.delete(path);
      others.push(path);
    }
  }
  for (const path of [...set.keys()]) {
    // The folders on the way to what comes back, as they were.
    for (const folder of foldersOn(path)) {
      const state = moment.states.get(folder);
      if (state?.kind === "directory" && !isAsItWas(state, present.get(folder))) {
        set.set(folder, state);
        const now = present.get(folder);
        if (now && now.kind !== "absent" && now.kind !== "directory") remove.add(folder);
      }
    }
  }
  return { set, remove: [...remove], others: others.sort(), left, givesOwners };
}
