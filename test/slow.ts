import type { TestOptions } from "vitest";

/**
 * Options of a test that asks once more, in another place or way, what an ordinary one asks.
 *
 * @param isOrdinary whether this one is that
 */
export const slowUnless = (isOrdinary: boolean): TestOptions => (isOrdinary ? {} : { tags: ["slow"] });
