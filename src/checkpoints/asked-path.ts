/** A path that a person gave, as checkpoints keep it. */
import type { BaseEnvironment } from "../../environments/base.ts";
import { isUnder, showName } from "../../environments/tree/names.ts";
import { MoorageError } from "../errors.ts";
import type { Moment } from "./moment.ts";
import type { PathState } from "./states.ts";
import { type Place, relativeTo } from "./take.ts";

/**
 * @param path relative to the workspace or absolute; a name that is no text, as we show it
 * @throws {MoorageError} INVALID_ARGUMENTS for one that leads upwards, or that nothing is known of
 */
export function askedPath(
  path: string,
  moment: Moment,
  present: ReadonlyMap<string, PathState>,
  place: Place,
  { workspace }: Pick<BaseEnvironment, "workspace">,
): string {
  const absolute = path.startsWith("/") ? path : `${place.root}/${path}`;
  const parts = absolute.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.includes(".."))
    throw new MoorageError("INVALID_ARGUMENTS", `Cannot restore "${path}": ".." in a path`);
  const plain = `/${parts.join("/")}`;
  // The workspace may be named through a link.
  const isNamed = plain === workspace || plain.startsWith(`${workspace}/`);
  const real = isNamed ? place.root + plain.slice(workspace.length) : plain;
  if (real === place.root) return "";
  const asked = relativeTo(place, real);
  if (isKnown(asked, moment, present)) return asked;
  const name = showName(asked);
  const all = [...moment.states.keys(), ...moment.foreign.keys(), ...present.keys()];
  const shown = all.find((known) => !PLAIN.test(known) && showName(known) === name);
  if (shown !== undefined) return shown;
  throw new MoorageError("INVALID_ARGUMENTS", `The checkpoint knows nothing of "${path}"`, {
    suggestion: "`moor checkpoints show` lists its paths; they are relative to the workspace.",
  });
}

/** Such a path is shown as it is. */
const PLAIN = /^[\x20-\x7e]*$/;

/** Whether a moment can say what was, or was not, at a path or in it. */
function isKnown(path: string, moment: Moment, present: ReadonlyMap<string, PathState>): boolean {
  const knows = (paths: ReadonlyMap<string, unknown>) =>
    paths.has(path) || [...paths.keys()].some((each) => isUnder(each, path));
  return knows(moment.states) || knows(moment.foreign) || (moment.whole && knows(present));
}
