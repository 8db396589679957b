/** Looks at a whole folder of an environment in one request. */
import { randomBytes } from "node:crypto";
import { MoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import type { FileKind, TreeEntry, TreeScan, TreeScanOptions } from "../../base.ts";
import { FIND_NAMED, FindReader, findExpression, parseNamed, pickNamed, tooMany } from "../../tree/find.ts";
import type { Half } from "../../tree/halves.ts";
import { byPath, isInside, isOurs, OUR_PREFIX, textOf } from "../../tree/names.ts";
import { quote } from "../quote.ts";
import type { SystemShell } from "../stream.ts";
import { HASH_PROGRAM, ODD_NAME, parseHashes } from "./hash.ts";
import { enterRoot, pathList, rootError } from "./run.ts";

/** What an environment's clock and its file systems' may be apart, where both tell fractions. */
const FINE_SECONDS = 1;
/** Longest answer of a scan, bytes. */
const SCAN_MAX_BYTES = 128 * 1024 * 1024;
/** Names that are written into the line itself: with the longest ones it is a third of what any kernel allows. */
const LINE_MAX_NAMES = 32;
/** The root, the time and the form come first; no path is longer than 4 KiB. */
const HEAD_MAX_BYTES = 8 * 1024;

/**
 * GNU find tells everything by itself. Elsewhere find, or a loop of the shell where there is no find that separates
 * by NUL, gives names to stat; the name and a nonce frame what stat says, since a name may hold a line end. Folders
 * that are closed, and what lies on another device, come with a mark of their own.
 */
function scanScript(
  root: string,
  nonce: string,
  listed: readonly string[] | undefined,
  {
    hasFind,
    hashed,
    half,
  }: { readonly hasFind: boolean; readonly hashed: string | null; readonly half: Half | null },
): string {
  const only = listed ? "" : ` -name '${OUR_PREFIX}*' -prune -o`;
  const findWhole = () => {
    if (hashed !== null) return `${findAll()}\n${hashLines(hashed)}`;
    return half ? findHalves(half) : `exec ${findAll()}`;
  };
  const named = (words: string) => `exec find ${words} -maxdepth 0 -printf '${FIND_NAMED}'`;
  const few = listed && fewWords(listed);
  // A link's own words: BusyBox quotes them, GNU stat does when it is not told otherwise.
  const stat = `%n${nonce}%f %s %u %g %Y %Z %d.%i %y|%z${nonce}%N${nonce}`;
  return `LC_ALL=C TZ=UTC0 QUOTING_STYLE=literal; export LC_ALL TZ QUOTING_STYLE
__moor_walk() {
  for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ ! -e "$entry" ] && [ ! -L "$entry" ]; then continue; fi
    case \${entry##*/} in ${OUR_PREFIX}*) continue ;; esac
    printf '%s\\000' "$entry"
    if [ -d "$entry" ] && [ ! -L "$entry" ]; then
      if [ -r "$entry" ] && [ -x "$entry" ]; then ( __moor_walk "$entry" ); else printf '!%s\\000' "$entry" >&2; fi
    fi
  done
}
${enterRoot(root)}
[ -r . ] || exit 92
printf '%s\\000%s\\000' "$PWD" "\${EPOCHSECONDS:-$(date +%s)}"
if ${hasFind ? ":" : "find . -maxdepth 0 -printf '' 2>/dev/null"}; then
  printf 'G\\000'
  ${listed ? (few ? named(few) : `exec xargs -0 sh -c ${quote(named('"$@"'))} sh`) : findWhole()}
fi
[ -n "$__moor_stat_option" ] && command -v xargs >/dev/null 2>&1 || exit 93
printf 'S\\000%s\\000' "$(stat -c %d .)"
{ ${
    listed
      ? "cat"
      : `if find . -maxdepth 0 -print0 >/dev/null 2>&1; then find . -xdev${only} -print0; else __moor_walk .; fi`
  }; } | xargs -0 stat -c '${stat}'
exit 0`;
}

/**
 * Two finds where there is a second core, one of which answers on stderr: on one stream their answers would be mixed.
 * Nobody else says anything there; that one was killed is told by the exit code.
 */
function findHalves(half: Half): string {
  return `c=0
exec 3>&2 2>/dev/null
read -r c </sys/devices/system/cpu/online
[ "\${c:-0}" != 0 ] || exec ${findAll()}
${findAll({ half, isRest: false })} >&3 &
${findAll({ half, isRest: true })}
e=$?
wait $!
h=$?
exit $((h > e ? h : e))`;
}

function findAll(part?: Parameters<typeof findExpression>[1]): string {
  return `find . ${findExpression(OUR_PREFIX, part).map(quote).join(" ")}`;
}

/**
 * What follows the answer of find: a NUL, and what a program says of the files, unless there is none. A pipe that took
 * the place of a file would be waited for.
 */
function hashLines(words: string): string {
  return `e=$?
printf '\\000'
set --
for f in ${words}; do if [ -f "$f" ] && [ ! -L "$f" ]; then set -- "$@" "$f"; fi; done
[ $# -eq 0 ] || { ${HASH_PROGRAM} && $h "$@" 2>/dev/null; }
exit $e`;
}

/** Names as words of one line, which saves the programs that read them from the input; null when they are too many. */
function fewWords(paths: readonly string[]): string | null {
  if (paths.length > LINE_MAX_NAMES) return null;
  // A script is text, and these are bytes.
  if (paths.some((path) => textOf(path) === null)) return null;
  return paths.map((path) => quote(`./${textOf(path)}`)).join(" ");
}

/** What scans said, so that the same words need not be read again. */
export interface ScanMemo {
  /** Whether the environment was seen to have a find that tells everything, which then need not be tried again. */
  hasFind: boolean;
  find: { readonly root: string; readonly reader: FindReader } | null;
  /** Of an environment without such a find. */
  last: { readonly root: string; readonly words: string; readonly scan: TreeScan } | null;
}

/**
 * A tree that has not changed gives the very same entries as before, once all of them are settled.
 */
export async function scanTree(
  system: SystemShell,
  memo: ScanMemo,
  root: string,
  {
    paths,
    hashed = [],
    sideBySide = false,
    timeoutMs = limits.treeTimeoutMs,
    abortSignal,
  }: TreeScanOptions = {},
): Promise<TreeScan> {
  const inside = paths?.filter(isInside).sort(byPath);
  if (inside?.length === 0) return { root, entries: [], closed: [] };
  const isWhole = inside && memo.find?.root === root && memo.find.reader.isWorthWhole(inside.length);
  const listed = isWhole ? undefined : inside;
  const nonce = `/${randomBytes(12).toString("hex")}/`;
  const chunks: Buffer[] = [];
  const others: Buffer[] = [];
  let bytes = 0;
  const gather = (list: Buffer[]) => (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > SCAN_MAX_BYTES) throw tooMany(root);
    list.push(chunk);
  };
  const asked = hashed.filter((path) => isInside(path) && !isOurs(path) && !ODD_NAME.test(path));
  const hashWords = !paths && memo.hasFind && asked.length > 0 ? fewWords(asked) : null;
  const mayDivide = sideBySide && memo.hasFind && !paths && hashWords === null && system.hasTwoStreams;
  const half = mayDivide && memo.find?.root === root ? memo.find.reader.half() : null;
  const how = { hasFind: memo.hasFind, hashed: hashWords, half };
  const { exitCode, stderr } = await system.run(scanScript(root, nonce, listed, how), {
    timeoutMs,
    ...(abortSignal && { abortSignal }),
    ...(listed && { stdin: pathList(listed) }),
    onStdout: gather(chunks),
    ...(half && { onStderr: gather(others) }),
  });
  // find and xargs tell by their exit code of entries that went away meanwhile; beyond, they were killed or not found.
  const isTold = !(exitCode >= 91 && exitCode <= 94) && exitCode < 124 && bytes > 0;
  if (!isTold) throw rootError(exitCode, "scan", root, stderr);
  const answer = Buffer.concat([...chunks, ...others], bytes);
  const head = new Fields(answer.toString("latin1", 0, HEAD_MAX_BYTES));
  const realRoot = textOf(head.next()) ?? "/";
  const takenAt = Number(head.next());
  const isFind = head.next() === "G";
  memo.hasFind ||= isFind;
  if (isFind) {
    const grain = { takenAt, fineSeconds: FINE_SECONDS };
    if (listed) return told(realRoot, parseNamed(answer, head.at, grain).sort(inOrder));
    if (memo.find?.root !== realRoot) memo.find = { root: realRoot, reader: new FindReader(realRoot) };
    // No name holds a NUL, and what programs say of contents does not either.
    const end = hashWords === null ? answer.length : answer.lastIndexOf(0);
    const { entries, closed } = memo.find.reader.read(answer.subarray(0, end), head.at, grain);
    if (hashWords !== null)
      return { ...told(realRoot, entries, closed), hashes: parseHashes(answer.toString("latin1", end + 1)) };
    return inside ? told(realRoot, pickNamed(entries, inside)) : told(realRoot, entries, closed);
  }
  const text = answer.toString("latin1");
  const read = () => {
    const { entries, closed } = parseStat(new Fields(text, head.at), nonce, takenAt, stderr);
    return told(realRoot, entries.sort(inOrder), [...new Set(closed)].sort(byPath));
  };
  if (listed) return read();
  const words = wordsOf(text, nonce, stderr);
  const { last } = memo;
  if (last?.root === root && last.words === words) return last.scan;
  const scan = read();
  memo.last = scan.entries.every(({ settled }) => settled) ? { root, words, scan } : null;
  return scan;
}

/** @throws {MoorageError} FILE_TOO_LARGE */
function told(root: string, entries: readonly TreeEntry[], closed: readonly string[] = []): TreeScan {
  if (entries.length > limits.treeMaxEntries) throw tooMany(root);
  return { root, entries, closed };
}

function inOrder(a: TreeEntry, b: TreeEntry): number {
  return byPath(a.path, b.path);
}

/** An answer but for the time at which it was given and the nonce. */
function wordsOf(text: string, nonce: string, stderr: string): string {
  const time = text.indexOf("\0") + 1;
  const rest = text.slice(text.indexOf("\0", time));
  return `${text.slice(0, time)}${rest.includes(nonce) ? rest.replaceAll(nonce, "/") : rest}${stderr}`;
}

/** Records of stat: name, nonce, numbers, nonce, name and target, nonce. */
function parseStat(
  fields: Fields,
  nonce: string,
  takenAt: number,
  stderr: string,
): { readonly entries: TreeEntry[]; readonly closed: string[] } {
  const device = fields.next();
  const entries: TreeEntry[] = [];
  const closed: string[] = [];
  const text = fields.rest();
  const pieces = text.split(nonce);
  for (let index = 0; index + 2 < pieces.length; index += 3) {
    const named = (pieces[index] ?? "").replace(/^\n/, "");
    if (named === ".") continue;
    const path = named.replace(/^\.\//, "");
    const [numbers = "", changedText = ""] = (pieces[index + 1] ?? "").split("|");
    const [raw = "", size = "", uid = "", gid = "", modified = "", changed = "", inode = "", ...times] =
      numbers.split(" ");
    const bits = Number.parseInt(raw, 16);
    const kind = MODE_KINDS[(bits >> 12) & 0xf] ?? "device";
    if (kind === "directory" && !inode.startsWith(`${device}.`)) closed.push(path);
    const words = pieces[index + 2] ?? "";
    const fraction = /\.(\d+)/.exec(changedText)?.[1] ?? "0";
    entries.push({
      path,
      kind,
      mode: bits & 0o7777,
      size: kind === "file" ? Number(size) : 0,
      uid: Number(uid),
      gid: Number(gid),
      modifiedAt: Number(modified),
      stamp: `${size}.${times.join(" ")}.${changedText}.${inode}`,
      settled: isSettled(`${changed}.${fraction}`, takenAt),
      ...(kind === "symlink" && { linkTarget: targetIn(words, named) }),
    });
  }
  closed.push(...closedBy(stderr, entries));
  return { entries, closed };
}

/** The target in `'NAME' -> 'TARGET'` or `NAME -> TARGET`. */
function targetIn(words: string, name: string): string {
  const quoted = `'${name}' -> '`;
  if (words.startsWith(quoted)) return words.slice(quoted.length, -1);
  return words.slice(name.length + " -> ".length);
}

/** Where the clock has a fraction it ticks every few milliseconds, else every second. */
function isSettled(changed: string, takenAt: number): boolean {
  const [seconds = "0", fraction = ""] = changed.split(".");
  const grain = /[1-9]/.test(fraction) ? 1 : 2;
  return Number(seconds) < takenAt - grain;
}

/** Folders that find or the loop could not look into, by what they said. */
function closedBy(stderr: string, entries: readonly TreeEntry[]): string[] {
  const said = Buffer.from(stderr, "utf8").toString("latin1");
  if (!/Permission denied|\0/.test(said)) return [];
  return entries
    .filter(({ kind, path }) => {
      if (kind !== "directory") return false;
      return said.includes(`./${path}: Permission denied`) || said.includes(`!./${path}\0`);
    })
    .map(({ path }) => path);
}

const MODE_KINDS: Readonly<Record<number, FileKind>> = {
  1: "fifo",
  4: "directory",
  8: "file",
  10: "symlink",
  12: "socket",
};

/** Texts that end in NUL, one after the other. */
class Fields {
  readonly #text: string;
  #at: number;

  constructor(text: string, at = 0) {
    this.#text = text;
    this.#at = at;
  }

  /** Where the next one begins. */
  get at(): number {
    return this.#at;
  }

  next(): string {
    const end = this.#text.indexOf("\0", this.#at);
    if (end < 0) throw new MoorageError("INTERNAL", "Cannot scan: the answer ends early");
    const field = this.#text.slice(this.#at, end);
    this.#at = end + 1;
    return field;
  }

  rest(): string {
    return this.#text.slice(this.#at);
  }
}
