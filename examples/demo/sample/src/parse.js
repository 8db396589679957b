import { UNITS } from "./units.js";

const PART = /(\d+(?:\.\d+)?)\s*(d|h|m|s|ms)/g;

/** Reads a duration as milliseconds. */
export function parse(text) {
  let total = 0;
  const rest = text.replace(PART, (_, number, unit) => {
    total += Number(number) * UNITS[unit];
    return "";
  });
  if (rest.trim() !== "" || text.trim() === "") throw new TypeError(`Not a duration: "${text}"`);
  return total;
}
