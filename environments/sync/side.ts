/** One side of a mirror: what is there, and how it compares. */
import type { EnvironmentTree, TreeEntry, TreeScan } from "../base.ts";
import type { HostTree } from "../tree/host.ts";
import type { Stamps } from "./baseline.ts";

export interface Side {
  readonly tree: HostTree | EnvironmentTree;
  readonly root: string;
}

/** What a side holds, without what is not mirrored. */
export interface View {
  readonly entries: ReadonlyMap<string, TreeEntry>;
  /** Paths that are there and whose content cannot be read. */
  readonly unreadable: ReadonlySet<string>;
  /** Everything of the scan, to see whether a folder is really empty. */
  readonly all: readonly TreeEntry[];
  readonly hashes: Map<string, string>;
  readonly stamps: Stamps;
}

/**
 * Finds the contents' hashes of those paths that need comparing; those whose stamps are known cost nothing.
 *
 * @param needsHash whether a file's content must be known before it is decided on
 */
export async function viewSide(
  side: Side,
  scan: TreeScan,
  known: Stamps,
  {
    entries,
    isMirrored,
    needsHash,
    abortSignal,
  }: {
    /** All of the scan, by path; what is not mirrored is taken out of it. */
    readonly entries: Map<string, TreeEntry>;
    readonly isMirrored: (entry: TreeEntry) => boolean;
    readonly needsHash: (path: string) => boolean;
    readonly abortSignal?: AbortSignal;
  },
): Promise<View> {
  const hashes = new Map<string, string>();
  const stamps: Stamps = new Map();
  const ask: string[] = [];
  for (const entry of scan.entries) {
    if (!isMirrored(entry)) {
      entries.delete(entry.path);
      continue;
    }
    if (entry.kind !== "file") continue;
    const before = known.get(entry.path);
    if (before?.stamp === entry.stamp) {
      hashes.set(entry.path, before.hash);
      if (entry.settled) stamps.set(entry.path, before);
    } else if (needsHash(entry.path)) ask.push(entry.path);
  }
  const found =
    ask.length === 0
      ? new Map()
      : await side.tree.hash(side.root, ask, { ...(abortSignal && { abortSignal }) });
  const unreadable = new Set<string>(scan.closed);
  for (const path of ask) {
    const hash = found.get(path);
    if (hash === undefined) unreadable.add(path);
    else learn({ hashes, stamps }, entries.get(path), hash);
  }
  return { entries, unreadable, all: scan.entries, hashes, stamps };
}

/** Notes a content's hash, and its stamp where that proves something. */
export function learn(
  view: Pick<View, "hashes" | "stamps">,
  entry: TreeEntry | undefined,
  hash: string,
): void {
  if (!entry) return;
  view.hashes.set(entry.path, hash);
  if (entry.settled) view.stamps.set(entry.path, { stamp: entry.stamp, hash });
}

/** A file's state as text. */
export function fileState(mode: number, hash: string): string {
  return `file ${(mode & 0o777).toString(8)} ${hash}`;
}

/** A path's state as text; undefined when nothing is there, `file ?` when its content is not known yet. */
export function stateOf({ entries, hashes }: View, path: string): string | undefined {
  const entry = entries.get(path);
  if (!entry) return undefined;
  if (entry.kind === "file") return fileState(entry.mode, hashes.get(path) ?? "?");
  if (entry.kind === "directory") return `folder ${(entry.mode & 0o777).toString(8)}`;
  return `link ${entry.linkTarget ?? ""}`;
}
