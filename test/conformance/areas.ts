/**
 * The suite in two parts, for places that share what the other part asks with a place that is asked all of it in the
 * ordinary run.
 */
import { AREAS, type Area } from "./index.ts";

/** Areas whose cases wait for processes or make very many calls. */
export const LONG_AREAS = [
  "unbreakable",
  "kill",
  "leftBehind",
  "yielding",
  "processes",
  "files",
  "fileChanges",
  "stdin",
] as const satisfies readonly Area[];
/** The others. */
export const QUICK_AREAS = (Object.keys(AREAS) as Area[]) // the keys of a constant object
  .filter((area) => !LONG_AREAS.some((long) => long === area));
