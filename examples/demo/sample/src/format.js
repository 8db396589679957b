import { UNITS } from "./units.js";

/** Writes milliseconds as a duration, largest unit first, without empty units. */
export function format(milliseconds) {
  if (!Number.isFinite(milliseconds) || milliseconds < 0) {
    throw new TypeError(`Not a duration: ${milliseconds}`);
  }
  const parts = [];
  let rest = Math.round(milliseconds);
  for (const [unit, size] of Object.entries(UNITS)) {
    const count = Math.floor(rest / size);
    if (count > 0) parts.push(`${count}${unit}`);
    rest -= count * size;
  }
  return parts.join(" ") || "0ms";
}
