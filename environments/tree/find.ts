/**
 * What GNU find tells of a folder, in one form for the host's and an environment's. Each entry is one text and its link
 * target another, both ended by NUL, since names are bytes.
 */
import { MoorageError } from "../../src/errors.ts";
import type { FileKind, TreeEntry } from "../base.ts";

/** What changes with a file stands together, so that a stamp is one piece of the answer. */
const WORDS = "%y %m %U %G %s %T@ %C@ %D.%i";
const END = "\\0%l\\0";

/**
 * The expression that lists a whole folder, itself first; for a shell's single quotes or, split, as arguments.
 * A folder that is closed comes with a mark. Our own entries and other file systems are not entered.
 */
export function findExpression(ownPrefix: string): readonly string[] {
  return [
    ...["-xdev", "-name", `${ownPrefix}*`, "-prune", "-o"],
    ...["-type", "d", "(", "!", "-readable", "-o", "!", "-executable", ")"],
    ...["-prune", "-printf", `!${WORDS} %P${END}`, "-o", "-printf", `${WORDS} %P${END}`],
  ];
}

/** The format for entries that are named one by one, as `./path`. */
export const FIND_NAMED = `${WORDS} %p${END}`;

/** When an entry's last change is long enough ago for its stamp to prove something. */
export interface Grain {
  /** Seconds since the epoch, maybe with a fraction. */
  readonly takenAt: number;
  /** Seconds between two ticks of a clock that tells fractions. */
  readonly fineSeconds: number;
}

/** Seconds between two ticks of a clock that tells whole seconds, and one for what the two clocks are apart. */
const COARSE_SECONDS = 2;

/**
 * Reads the answer from `at` on.
 *
 * @returns entries in find's order, without the root itself, and the folders that were not looked into
 * @throws {MoorageError} INTERNAL when the answer ends early
 */
export function parseFind(
  text: string,
  at: number,
  { takenAt, fineSeconds }: Grain,
  listed = false,
): { readonly entries: TreeEntry[]; readonly closed: string[] } {
  const entries: TreeEntry[] = [];
  const closed: string[] = [];
  let device: string | null = null;
  for (let start = at; start < text.length; ) {
    const end = endOf(text, start);
    const linkEnd = endOf(text, end + 1);
    const isClosed = text.charCodeAt(start) === MARK;
    const type = text.charAt(isClosed ? start + 1 : start);
    const mode = isClosed ? start + 3 : start + 2;
    const uid = wordAfter(text, mode);
    const gid = wordAfter(text, uid);
    const size = wordAfter(text, gid);
    const modified = wordAfter(text, size);
    const changed = wordAfter(text, modified);
    const inode = wordAfter(text, changed);
    const name = wordAfter(text, inode);
    start = linkEnd + 1;
    const path = text.slice(listed && text.startsWith("./", name) ? name + 2 : name, end);
    const kind = KINDS[type] ?? "device";
    if (kind === "directory" && !listed) {
      const own = text.slice(inode, text.indexOf(".", inode));
      // The root comes first, and tells its file system.
      device ??= own;
      if (path !== "" && (isClosed || own !== device)) closed.push(path);
    }
    if (path === "") continue;
    const changedAt = Number(text.slice(changed, inode - 1));
    const grain = changedAt % 1 === 0 ? COARSE_SECONDS : fineSeconds;
    entries.push({
      path,
      kind,
      mode: Number.parseInt(text.slice(mode, uid - 1), 8),
      size: kind === "file" ? wholeNumber(text, size) : 0,
      uid: wholeNumber(text, uid),
      gid: wholeNumber(text, gid),
      modifiedAt: wholeNumber(text, modified),
      stamp: text.slice(size, name - 1),
      settled: changedAt < takenAt - grain,
      ...(kind === "symlink" && { linkTarget: text.slice(end + 1, linkEnd) }),
    });
  }
  if (!listed && device === null)
    throw new MoorageError("INTERNAL", "Cannot scan: the folder itself is missing");
  return { entries, closed };
}

const MARK = "!".charCodeAt(0);
const ZERO = "0".charCodeAt(0);
const MINUS = "-".charCodeAt(0);

const KINDS: Readonly<Record<string, FileKind>> = {
  f: "file",
  d: "directory",
  l: "symlink",
  p: "fifo",
  s: "socket",
};

function endOf(text: string, from: number): number {
  const end = text.indexOf("\0", from);
  if (end < 0) throw new MoorageError("INTERNAL", "Cannot scan: the answer ends early");
  return end;
}

/** Where the word after the one at `from` begins. */
function wordAfter(text: string, from: number): number {
  return text.indexOf(" ", from) + 1;
}

/** The digits at `from`, to whatever comes after them; without making a string of them. */
function wholeNumber(text: string, from: number): number {
  if (text.charCodeAt(from) === MINUS) {
    // Before the epoch a fraction counts down.
    return Math.floor(Number.parseFloat(text.slice(from, text.indexOf(" ", from))));
  }
  let value = 0;
  for (let at = from; ; at += 1) {
    const digit = text.charCodeAt(at) - ZERO;
    if (!(digit >= 0 && digit <= 9)) return value;
    value = value * 10 + digit;
  }
}
