/** Milliseconds of each unit, largest first. */
export const UNITS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000, ms: 1 };
