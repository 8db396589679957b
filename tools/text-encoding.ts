/** What kind of text a file holds, and a way to edit it that gives every untouched byte back. */
import { isUtf8 } from "node:buffer";

export type Encoding = "utf-8" | "utf-16le" | "utf-16be" | "bytes";

/**
 * A file as a string. `utf-8` is valid UTF-8; `bytes` is anything else without NUL, one character per byte, so
 * that a Latin-1 file survives an edit. Decoding and encoding are inverse for all of them.
 */
export interface TextFile {
  readonly encoding: Encoding;
  /** The byte order mark, kept apart from the text; empty when there is none. */
  readonly bom: Buffer;
  readonly text: string;
}

const UTF8_BOM = Buffer.from([0xef, 0xbb, 0xbf]);
const UTF16LE_BOM = Buffer.from([0xff, 0xfe]);
const UTF16BE_BOM = Buffer.from([0xfe, 0xff]);
/** How much of a file is looked at for NUL bytes; the same as git. */
const SNIFF_BYTES = 8_000;

/** @returns null for binary content: NUL bytes near the start that are not UTF-16, or mostly control characters */
export function decodeFile(bytes: Buffer): TextFile | null {
  const encoding = sniffEncoding(bytes);
  if (encoding === null) return null;
  if (encoding === "utf-16le" || encoding === "utf-16be") {
    const bom = bytes.subarray(0, 2);
    const body = bytes.subarray(2);
    if (body.length % 2 === 1) return null;
    return { encoding, bom, text: swapFor(encoding, body).toString("utf16le") };
  }
  const bom = startsWith(bytes, UTF8_BOM) ? bytes.subarray(0, 3) : bytes.subarray(0, 0);
  const body = bytes.subarray(bom.length);
  return { encoding, bom, text: body.toString(encoding === "utf-8" ? "utf8" : "latin1") };
}

/** The encoding by byte order mark and content; null for binary. Only the start of a file is needed. */
export function sniffEncoding(bytes: Buffer): Encoding | null {
  const isUtf32 = startsWith(bytes, Buffer.from([0xff, 0xfe, 0, 0]));
  if (!isUtf32 && startsWith(bytes, UTF16LE_BOM)) return "utf-16le";
  if (startsWith(bytes, UTF16BE_BOM)) return "utf-16be";
  if (isBinary(bytes)) return null;
  return isUtf8(bytes) ? "utf-8" : "bytes";
}

export function encodeFile(file: TextFile, text: string): Buffer {
  return Buffer.concat([file.bom, encodeBody(file.encoding, text)]);
}

/** A caller's text in the form that `file.text` has. */
export function toFileText(file: TextFile, text: string): string {
  return file.encoding === "bytes" ? Buffer.from(text).toString("latin1") : text;
}

/** Part of `file.text` in the form that a caller reads. */
export function fromFileText(file: TextFile, text: string): string {
  return file.encoding === "bytes" ? Buffer.from(text, "latin1").toString() : text;
}

/** Bytes for people: decoded by their encoding, without a byte order mark. */
export function displayText(bytes: Buffer): string {
  const file = decodeFile(bytes);
  return file ? fromFileText(file, file.text) : bytes.toString();
}

function encodeBody(encoding: Encoding, text: string): Buffer {
  if (encoding === "utf-8") return Buffer.from(text);
  if (encoding === "bytes") return Buffer.from(text, "latin1");
  return swapFor(encoding, Buffer.from(text, "utf16le"));
}

function swapFor(encoding: Encoding, bytes: Buffer): Buffer {
  return encoding === "utf-16be" ? Buffer.from(bytes).swap16() : bytes;
}

function startsWith(bytes: Buffer, start: Buffer): boolean {
  return bytes.subarray(0, start.length).equals(start);
}

function isBinary(bytes: Buffer): boolean {
  const sample = bytes.subarray(0, SNIFF_BYTES);
  if (sample.includes(0)) return true;
  let control = 0;
  for (const byte of sample) {
    if (byte < 32 && byte !== 9 && byte !== 10 && byte !== 12 && byte !== 13 && byte !== 27) control += 1;
  }
  return !isUtf8(bytes) && control * 20 > sample.length;
}
