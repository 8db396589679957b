/**
 * The parts of the suite that the ordinary run asks: of a shell what a session is, of a way to a shell what commands
 * get and give back, and of one place of each kind whether anything is lost. `npm run test:all` asks every place for
 * everything.
 */
import { AREAS, type Area } from "./index.ts";

/** For a way to a bash that is asked elsewhere: through a sandbox, a server, an API. */
export const WAY_AREAS = ["exec", "argv", "health"] as const satisfies readonly Area[];

/** For a shell that is asked nowhere else. */
export const SHELL_AREAS = [...WAY_AREAS, "sessions", "state"] as const;

/** For this machine's bash. */
export const BASH_AREAS = [...SHELL_AREAS, "output", "kill", "leftBehind", "lifecycle"] as const;

/** For a container with bash; what ends a tree in one is asked by Docker's own tests. */
export const CONTAINER_AREAS = [...WAY_AREAS, "output", "lifecycle"] as const;

/** All but these. */
export function areasWithout(left: readonly Area[]): readonly Area[] {
  return (Object.keys(AREAS) as Area[]) // the keys of a constant object
    .filter((area) => !left.includes(area));
}
