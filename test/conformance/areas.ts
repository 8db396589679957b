/**
 * The suite in two parts, for places that share what the other part asks with a place that is asked all of it in the
 * ordinary run: this machine's bash.
 */
import { AREAS, type Area } from "./index.ts";

/** Areas that tell most of a place in little time: what commands get, give back and leave to the next one. */
export const QUICK_AREAS = ["exec", "argv", "sessions", "state", "health"] as const satisfies readonly Area[];

/** All but these. */
export function areasWithout(left: readonly Area[]): readonly Area[] {
  return (Object.keys(AREAS) as Area[]) // the keys of a constant object
    .filter((area) => !left.includes(area));
}

/** The others. */
export const LONG_AREAS = areasWithout(QUICK_AREAS);
