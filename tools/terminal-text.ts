/** Text on its way from a terminal, made plain. */

/**
 * Escape sequences, also those that a cut or the end of a line left without an end: CSI; OSC, DCS, APC, PM and SOS
 * strings; short ones; CSI as one byte. No part can run past the next escape or line, so hostile text takes no
 * longer than any other.
 */
const ESCAPES =
  /\u001b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\n\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c)?|[ -/]*[0-~]?)|\u009b[0-?]*[ -/]*[@-~]?/g;
/** Control characters that no model needs: all of C0 but tab and newline, DEL, and C1. */
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
/** A character and the backspace that takes it back, as `man` and old progress bars write. */
const OVERSTRUCK = /[^\n\b]\u0008/gu;

/**
 * What a person would see on a terminal in the end: no colours, titles or bells, and of a line that was written over
 * again and again (a progress bar) only its last state.
 */
export function plainText(text: string): string {
  let plain = text.replaceAll(ESCAPES, "");
  // A pty writes "\r\n" at the end of a line, which leaves the line as it was.
  if (plain.includes("\r")) plain = plain.split("\n").map(lastState).join("\n");
  if (plain.includes("\b")) plain = plain.replaceAll(OVERSTRUCK, "");
  return plain.replaceAll(CONTROL, "");
}

/** Bytes at the end of a chunk in which its last line is looked for, and characters of it that are shown. */
const LINE_BYTES = 1_000;
const LINE_CHARS = 200;

/** The last line of a chunk of output that says anything, cut; null when none does. Costs the same for any chunk. */
export function lastLine(chunk: Uint8Array): string | null {
  const text = new TextDecoder().decode(chunk.subarray(-LINE_BYTES)).replace(/^\ufffd+/, "");
  const line = plainText(text)
    .split("\n")
    .findLast((each) => each.trim() !== "");
  return line?.trim().slice(0, LINE_CHARS) ?? null;
}

/** What the last carriage return left in a line; an empty rest leaves what was there. */
function lastState(line: string): string {
  return line.split("\r").findLast((state) => state !== "") ?? "";
}
