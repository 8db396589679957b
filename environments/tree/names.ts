/**
 * Names as bytes. A path of a tree is a string with one character per byte, so that it can be a key and a sort
 * order, and still hold what is no UTF-8.
 */

/** A text's bytes, one character each. */
export function bytesOf(text: string): string {
  return Buffer.from(text, "utf8").toString("latin1");
}

/**
 * A path of a tree as text for people: UTF-8 where it is, else its odd bytes escaped; so is what would move a
 * terminal's cursor or turn its text.
 */
export function showName(path: string): string {
  if (PLAIN.test(path)) return path;
  const text = Buffer.from(path, "latin1").toString("utf8");
  const shown = bytesOf(text) === path ? text : path.replaceAll(/[\x80-\xff]/g, escapeByte);
  return shown.replaceAll(UNSEEN, (character) => bytesOf(character).replaceAll(/[\x00-\xff]/g, escapeByte));
}

const PLAIN = /^[\x20-\x7e]*$/;
/** Control characters, line separators and marks of direction, which terminals act upon. */
const UNSEEN = /[\p{Cc}\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

/** A path of a tree as UTF-8 text, or null when it is none. */
export function textOf(path: string): string | null {
  const text = Buffer.from(path, "latin1").toString("utf8");
  return bytesOf(text) === path ? text : null;
}

/**
 * Whether a path names something inside its root and nothing else: relative, no empty part, no `.` or `..`, no NUL,
 * and not one of our own names.
 */
export function isInside(path: string): boolean {
  return path !== "" && !LEADS_OUT.test(path);
}

/** A part that is empty, `.` or `..`, or a NUL. */
const LEADS_OUT = /(?:^|\/)\.{0,2}(?:\/|$)|\0/;

/** Whether an entry of this name is our own: staged files and temporary ones. */
export function isOurs(path: string): boolean {
  return path.startsWith(OUR_PREFIX) || path.includes(`/${OUR_PREFIX}`);
}

/** How names of our own files in a tree begin. */
export const OUR_PREFIX = ".moorage-";
/** Folders in which a writer gathers contents until they are moved in place. */
export const STAGE_PREFIX = `${OUR_PREFIX}stage-`;

/** The folder of a path; empty for the root. */
export function parentOf(path: string): string {
  const slash = path.lastIndexOf("/");
  return slash < 0 ? "" : path.slice(0, slash);
}

/** The folders on the way to a path, outermost first. */
export function foldersOn(path: string): string[] {
  const folders: string[] = [];
  for (let slash = path.indexOf("/"); slash >= 0; slash = path.indexOf("/", slash + 1))
    folders.push(path.slice(0, slash));
  return folders;
}

/** Whether a path lies in a folder. */
export function isUnder(path: string, folder: string): boolean {
  return folder === "" || path.startsWith(`${folder}/`);
}

/** Compares paths so that a folder comes before what is in it. */
export function byPath(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function escapeByte(character: string): string {
  return `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`;
}
