/**
 * The suite in parts. The ordinary run asks each place for a part, and two of them, this machine's bash and a
 * container, for most; `npm run test:all` asks each for everything.
 */
import { AREAS, type Area } from "./index.ts";

/** Areas that tell most of a place in little time: what commands get, give back and leave to the next one. */
export const QUICK_AREAS = ["exec", "argv", "sessions", "state", "health"] as const satisfies readonly Area[];

/** And those that ask whether anything is lost or left behind. */
export const ORDINARY_AREAS = [...QUICK_AREAS, "output", "kill", "leftBehind", "lifecycle"] as const;

/** All but these. */
export function areasWithout(left: readonly Area[]): readonly Area[] {
  return (Object.keys(AREAS) as Area[]) // the keys of a constant object
    .filter((area) => !left.includes(area));
}

/** The others. */
export const LONG_AREAS = areasWithout(QUICK_AREAS);
