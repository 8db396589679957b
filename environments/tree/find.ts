/**
 * What GNU find tells of a folder, in one form for the host's and an environment's. Each entry is one text and its link
 * target another, both ended by NUL, since names are bytes.
 */
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { FileKind, TreeEntry } from "../base.ts";
import { divide, type Half } from "./halves.ts";
import { byPath } from "./names.ts";

/** What changes with a file stands together, so that a stamp is one piece of the answer. */
export const STAMP = "%s %T@ %C@ %D.%i";
const WORDS = `%y %m %U %G ${STAMP}`;
const END = "\\0%l\\0";

/**
 * The expression that lists a whole folder, itself first; for a shell's single quotes or, split, as arguments.
 * A folder that is closed comes with a mark. Our own entries and other file systems are not entered.
 *
 * @param part what is listed: a half alone, or all but that. @default everything
 */
export function findExpression(
  ownPrefix: string,
  part?: { readonly half: Half; readonly isRest: boolean },
): readonly string[] {
  return [
    ...["-xdev", ...(part ? findPart(part) : [])],
    ...["-name", `${ownPrefix}*`, "-prune", "-o"],
    ...["-type", "d", "(", "!", "-readable", "-o", "!", "-executable", ")"],
    ...["-prune", "-printf", `!${WORDS} %P${END}`, "-o", "-printf", `${WORDS} %P${END}`],
  ];
}

function findPart({ half: { pattern, way }, isRest }: { readonly half: Half; readonly isRest: boolean }) {
  if (isRest) return ["-path", pattern, "-prune", "-o"];
  // The folders on the way are entered as ever, and told by the other find.
  const entered = way.flatMap((folder) => ["-path", folder, "-o"]);
  return ["-mindepth", "1", "!", "-path", pattern, "(", ...entered, "-prune", ")", "-o"];
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
export const COARSE_SECONDS = 2;

/** So few names are always looked at one by one. */
const WHOLE_MIN_NAMES = 500;

/** Those of a whole folder's entries that were asked for. */
export function pickNamed(entries: readonly TreeEntry[], paths: readonly string[]): readonly TreeEntry[] {
  const wanted = new Set(paths);
  return entries.filter(({ path }) => wanted.has(path));
}

/** Reads an answer about entries that were named one by one. @throws {MoorageError} INTERNAL when it ends early */
export function parseNamed(answer: Buffer, at: number, grain: Grain): TreeEntry[] {
  const entries: TreeEntry[] = [];
  for (let start = at; start < answer.length; ) {
    const end = recordEnd(answer, start);
    const { entry } = parseRecord(answer.toString("latin1", start, end), grain, "./");
    if (entry.path !== "") entries.push(entry);
    start = end;
  }
  return entries;
}

/**
 * Reads answers about one whole folder. What is byte for byte as in the answer before is compared and not read, and an
 * entry whose words are the same is the very same object, as the list is when nothing changed, unless its stamp did
 * not prove anything yet; so the next one who compares has little to do.
 */
export class FindReader {
  #last: Answer = NO_ANSWER;
  /** Where each path stands in the last answer; made when something is told in another order. */
  #places: ReadonlyMap<string, number> | null = null;
  #device = "";
  #entries: readonly TreeEntry[] = [];
  /** How the entries are divided, by what they were when there were so many. */
  #divided: { readonly count: number; readonly half: Half | null } = { count: 0, half: null };
  readonly #root: string;

  /** @param root for messages */
  constructor(root: string) {
    this.#root = root;
  }

  /**
   * @param answer from `at` on; it is kept, and must not change
   * @returns entries in order of their paths, without the root itself, and the folders that were not looked into
   * @throws {MoorageError} INTERNAL when the answer ends early, or does not begin with the root; FILE_TOO_LARGE
   */
  read(
    answer: Buffer,
    at: number,
    grain: Grain,
  ): { readonly entries: readonly TreeEntry[]; readonly closed: string[] } {
    if (answer.length <= at) throw new MoorageError("INTERNAL", "Cannot scan: the folder itself is missing");
    const rootEnd = recordEnd(answer, at);
    // The root comes first, and tells its file system.
    const { device } = parseRecord(answer.toString("latin1", at, rootEnd), grain);
    if (device !== this.#device) this.#forget();
    this.#device = device;
    const { words, starts, entries, marks } = this.#last;
    const isKept = new Uint8Array(entries.length);
    const now = new Gathered(answer, entries.length);
    const fresh: TreeEntry[] = [];
    const add = (record: string, start: number) => {
      const told = parseRecord(record, grain);
      const isClosed = told.isClosed || (told.entry.kind === "directory" && told.device !== device);
      now.add(told.entry, start, (isClosed ? CLOSED : 0) | (told.entry.settled ? 0 : UNSETTLED));
      fresh.push(told.entry);
    };
    let place = 0;
    let start = rootEnd;
    while (start < answer.length) {
      const from = starts[place] ?? words.length;
      const same = from + sameBytes(answer, start, words, from);
      const shift = start - from;
      // All that was told in the same words, up to the first that was not. Nothing is asked of the entries themselves,
      // since so many are no longer at hand for the processor.
      for (; place < entries.length; place += 1) {
        const knownEnd = starts[place + 1] ?? 0;
        if (knownEnd > same) break;
        const [entry, mark] = [entries[place], marks[place] ?? 0];
        if ((mark & UNSETTLED) !== 0) add(answer.toString("latin1", start, knownEnd + shift), start);
        else if (entry && isKept[place] === 0) {
          isKept[place] = 1;
          now.add(entry, start, mark);
        }
        start = knownEnd + shift;
      }
      if (start >= answer.length) break;
      const end = recordEnd(answer, start);
      const record = answer.toString("latin1", start, end);
      const path = pathIn(record);
      const old = entries[place]?.path === path ? place : this.#placeOf(path);
      if (old !== undefined && words.compare(answer, start, end, starts[old], starts[old + 1]) === 0) {
        // It is told in another place than before, and compared there.
        place = old;
        continue;
      }
      add(record, start);
      if (old !== undefined) place = old + 1;
      start = end;
      if (now.entries.length > limits.treeMaxEntries) throw tooMany(this.#root);
    }
    this.#keep(now, fresh, isKept);
    return { entries: this.#entries, closed: now.closed().sort(byPath) };
  }

  /** Whether so many names cost more, looked at one by one, than the whole folder as it was last. */
  isWorthWhole(names: number): boolean {
    return names > Math.max(WHOLE_MIN_NAMES, this.#last.entries.length / 4);
  }

  /** One of two halves of the folder as it was last; null where one find is as fast as two. */
  half(): Half | null {
    const { length } = this.#entries;
    if (Math.abs(length - this.#divided.count) > length / 4)
      this.#divided = { count: length, half: divide(this.#entries) };
    return this.#divided.half;
  }

  #keep(now: Gathered, fresh: TreeEntry[], isKept: Uint8Array): void {
    const before = this.#last.entries;
    const gone: TreeEntry[] = [];
    for (let place = isKept.indexOf(0); place >= 0; place = isKept.indexOf(0, place + 1)) {
      const entry = before[place];
      if (entry) gone.push(entry);
    }
    if (fresh.length > 0 || gone.length > 0 || before.length === 0) {
      fresh.sort(inOrder);
      const changed =
        before.length > 0 && fresh.length < before.length / 4 ? replaced(this.#entries, gone, fresh) : null;
      const left = new Set(gone);
      this.#entries =
        changed ?? merge(before.length === 0 ? [] : this.#entries.filter((entry) => !left.has(entry)), fresh);
      this.#places = null;
    }
    // What was renamed meanwhile may have been told twice; then nothing is gone by the next time.
    if (now.entries.length === this.#entries.length) this.#last = now.whole();
    else this.#forget();
  }

  #forget(): void {
    this.#last = NO_ANSWER;
    this.#places = null;
  }

  #placeOf(path: string): number | undefined {
    this.#places ??= new Map(this.#last.entries.map((entry, place) => [entry.path, place]));
    return this.#places.get(path);
  }
}

/** What was told, in find's order and without the root. */
interface Answer {
  readonly words: Buffer;
  /** Where each entry begins in the words; the end comes last. */
  readonly starts: Uint32Array;
  readonly entries: readonly TreeEntry[];
  /** Of each entry: `CLOSED`, `UNSETTLED`. */
  readonly marks: Uint8Array;
}

const CLOSED = 1;
const UNSETTLED = 2;
const NO_ANSWER: Answer = {
  words: Buffer.alloc(0),
  starts: new Uint32Array(1),
  entries: [],
  marks: new Uint8Array(0),
};

/** An answer while it is read. Its lists have their size from the start: to let them grow costs more than to fill them. */
class Gathered {
  readonly entries: TreeEntry[] = [];
  readonly #words: Buffer;
  #starts: Uint32Array;
  #marks: Uint8Array;
  #anyClosed = false;

  /** @param count of entries, about */
  constructor(words: Buffer, count: number) {
    this.#words = words;
    this.#starts = new Uint32Array(count + 64);
    this.#marks = new Uint8Array(count + 64);
  }

  add(entry: TreeEntry, start: number, mark: number): void {
    const place = this.entries.push(entry) - 1;
    if (place === this.#marks.length) {
      this.#starts = grown(this.#starts, new Uint32Array(2 * place));
      this.#marks = grown(this.#marks, new Uint8Array(2 * place));
    }
    this.#starts[place] = start;
    this.#marks[place] = mark;
    this.#anyClosed ||= (mark & CLOSED) !== 0;
  }

  closed(): string[] {
    if (!this.#anyClosed) return [];
    return this.entries
      .filter((_, place) => ((this.#marks[place] ?? 0) & CLOSED) !== 0)
      .map(({ path }) => path);
  }

  whole(): Answer {
    const count = this.entries.length;
    const starts = this.#starts.slice(0, count + 1);
    starts[count] = this.#words.length;
    return { words: this.#words, starts, entries: this.entries, marks: this.#marks.subarray(0, count) };
  }
}

function grown<Numbers extends Uint32Array | Uint8Array>(numbers: Numbers, larger: Numbers): Numbers {
  larger.set(numbers);
  return larger;
}

/** The list with others in the place of some; null when those are not of the same paths. Both are in order. */
function replaced(
  entries: readonly TreeEntry[],
  gone: readonly TreeEntry[],
  fresh: readonly TreeEntry[],
): readonly TreeEntry[] | null {
  const old = [...gone].sort(inOrder);
  if (old.length !== fresh.length || old.some(({ path }, index) => fresh[index]?.path !== path)) return null;
  const list = [...entries];
  for (const entry of fresh) list[placeIn(list, entry.path)] = entry;
  return list;
}

/** Where the path stands, or would, in a list in order. */
export function placeIn(entries: readonly TreeEntry[], path: string): number {
  let low = 0;
  for (let high = entries.length; low < high; ) {
    const middle = (low + high) >> 1;
    if ((entries[middle]?.path ?? "") < path) low = middle + 1;
    else high = middle;
  }
  return low;
}

function inOrder(a: TreeEntry, b: TreeEntry): number {
  return byPath(a.path, b.path);
}

/** How many bytes from two places on are the same. */
function sameBytes(some: Buffer, at: number, others: Buffer, otherAt: number): number {
  const most = Math.min(some.length - at, others.length - otherAt);
  let same = 0;
  for (let step = COMPARED_BYTES; step >= 1; ) {
    const next = Math.min(step, most - same);
    if (next === 0) break;
    const from = otherAt + same;
    const isSame = some.compare(others, from, from + next, at + same, at + same + next) === 0;
    if (isSame) same += next;
    // A piece that differs is looked at in halves.
    if (!isSame || step < COMPARED_BYTES) step = step >> 1;
  }
  return same;
}

/** Bytes compared at once: what differs is then found in some steps more. */
const COMPARED_BYTES = 64 * 1024;

/** Says that a folder has too many entries to be mirrored or checkpointed. */
export function tooMany(root: string): MoorageError {
  return new MoorageError(
    "FILE_TOO_LARGE",
    `Cannot scan "${root}": it has more than ${limits.treeMaxEntries} entries`,
    { suggestion: "Choose a smaller folder." },
  );
}

interface Told {
  readonly entry: TreeEntry;
  readonly device: string;
  readonly isClosed: boolean;
}

/** @param prefix of the name, which is no part of the path */
function parseRecord(record: string, { takenAt, fineSeconds }: Grain, prefix = ""): Told {
  const end = record.indexOf("\0");
  const isClosed = record.charCodeAt(0) === MARK;
  const type = record.charAt(isClosed ? 1 : 0);
  const mode = isClosed ? 3 : 2;
  const uid = wordAfter(record, mode);
  const gid = wordAfter(record, uid);
  const size = wordAfter(record, gid);
  const modified = wordAfter(record, size);
  const changed = wordAfter(record, modified);
  const inode = wordAfter(record, changed);
  const name = wordAfter(record, inode);
  const kind = KINDS[type] ?? "device";
  const changedAt = Number(record.slice(changed, inode - 1));
  const grain = changedAt % 1 === 0 ? COARSE_SECONDS : fineSeconds;
  const entry: TreeEntry = {
    path: record.slice(record.startsWith(prefix, name) ? name + prefix.length : name, end),
    kind,
    mode: Number.parseInt(record.slice(mode, uid - 1), 8),
    size: kind === "file" ? wholeNumber(record, size) : 0,
    uid: wholeNumber(record, uid),
    gid: wholeNumber(record, gid),
    modifiedAt: wholeNumber(record, modified),
    stamp: record.slice(size, name - 1),
    settled: changedAt < takenAt - grain,
    ...(kind === "symlink" && { linkTarget: record.slice(end + 1, -1) }),
  };
  return { entry, device: record.slice(inode, record.indexOf(".", inode)), isClosed };
}

/** The path of a record, which comes after its words. */
function pathIn(record: string): string {
  let at = 0;
  for (let word = 0; word < WORD_COUNT; word += 1) at = wordAfter(record, at);
  return record.slice(at, record.indexOf("\0"));
}

const WORD_COUNT = WORDS.split(" ").length;

/** Makes one list of two that are in order of their paths; of those with one path the last of the second list stays. */
function merge(some: readonly TreeEntry[], others: readonly TreeEntry[]): readonly TreeEntry[] {
  const merged: TreeEntry[] = [];
  const add = (entry: TreeEntry) => {
    if (merged.at(-1)?.path === entry.path) merged.pop();
    merged.push(entry);
  };
  let at = 0;
  for (const entry of some) {
    for (let other = others[at]; other && other.path < entry.path; other = others[at]) {
      add(other);
      at += 1;
    }
    add(entry);
  }
  for (const other of others.slice(at)) add(other);
  return merged;
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

/** After the second NUL from `start` on. */
function recordEnd(answer: Buffer, start: number): number {
  const end = answer.indexOf(0, answer.indexOf(0, start) + 1) + 1;
  // Without the first NUL the search began anew, and found one before `start`, or none.
  if (end <= start + 1) throw new MoorageError("INTERNAL", "Cannot scan: the answer ends early");
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
