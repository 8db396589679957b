/** One side of a mirror: what is there, and how it compares. Kept from one run to the next, each of which tells what changed. */
import type { EnvironmentTree, TreeEntry, TreeScan } from "../base.ts";
import { placeIn } from "../tree/find.ts";
import type { HostTree } from "../tree/host.ts";
import { byPath } from "../tree/names.ts";
import type { Baseline, SideName } from "./baseline.ts";

export interface Side {
  readonly tree: HostTree | EnvironmentTree;
  readonly root: string;
}

/** Whether an entry is mirrored; `odd` when it cannot be, which is told. */
export type Verdict = "mirrored" | "left out" | "odd";

/** What a side holds, without what is not mirrored. */
export class View {
  readonly entries = new Map<string, TreeEntry>();
  /** What is of a kind that cannot be mirrored, by path. */
  readonly odd = new Map<string, TreeEntry>();
  /** Paths that are there and whose content cannot be read. */
  readonly unreadable = new Set<string>();
  /** Hashes of this run whose stamps prove nothing. */
  readonly #unproven = new Map<string, string>();
  readonly #name: SideName;
  #base: Baseline;
  #all: readonly TreeEntry[] = [];
  #closed = "";

  constructor(name: SideName, base: Baseline) {
    this.#name = name;
    this.#base = base;
  }

  /** Everything of the scan, to see whether a folder is really empty. */
  get all(): readonly TreeEntry[] {
    return this.#all;
  }

  /** Whether folders were closed that are not now, or the other way round: then all has to be looked at. */
  isOtherwiseClosed(scan: TreeScan): boolean {
    return this.#closed !== scan.closed.join("\0");
  }

  /** Begins a run. */
  begin(base: Baseline): void {
    this.#base = base;
    this.unreadable.clear();
    this.#unproven.clear();
  }

  /** Forgets what was there, so that all of the next scan is a change. */
  forget(): void {
    this.entries.clear();
    this.odd.clear();
    this.#all = [];
  }

  /** Paths whose entries are others than in the last scan that was taken in. */
  changed(scan: TreeScan): readonly string[] {
    const [before, now] = [this.#all, scan.entries];
    const paths: string[] = [];
    if (before === now) return paths;
    let at = 0;
    for (const entry of now) {
      let old = before[at];
      if (old === entry) {
        at += 1;
        continue;
      }
      for (; old && byPath(old.path, entry.path) < 0; old = before[at]) {
        paths.push(old.path);
        at += 1;
      }
      if (old?.path === entry.path) at += 1;
      if (old !== entry) paths.push(entry.path);
    }
    for (const { path } of before.slice(at)) paths.push(path);
    return paths;
  }

  /** Takes in what changed. */
  take(scan: TreeScan, changed: readonly string[], judge: (entry: TreeEntry) => Verdict): void {
    const present =
      changed.length < scan.entries.length / 4 ? findEntries(scan.entries, changed) : byPathOf(scan.entries);
    for (const path of changed) {
      const entry = present.get(path);
      const verdict = entry ? judge(entry) : "left out";
      if (entry && verdict === "mirrored") this.entries.set(path, entry);
      else this.entries.delete(path);
      if (entry && verdict === "odd") this.odd.set(path, entry);
      else this.odd.delete(path);
      const known = this.#base.stampOf(this.#name, path);
      const file = this.entries.get(path);
      if (known && (file?.kind !== "file" || known.stamp !== file.stamp || !file.settled)) {
        this.#base.learn(this.#name, path, undefined);
        if (known.stamp === file?.stamp) this.#unproven.set(path, known.hash);
      }
    }
    this.#all = scan.entries;
    this.#closed = scan.closed.join("\0");
    for (const path of scan.closed) this.unreadable.add(path);
    for (const [path, hash] of scan.hashes ?? [])
      if (this.entries.get(path)?.kind === "file") this.learn(path, hash);
  }

  /** Finds the hashes of those files of the paths that are not known. */
  async look(side: Side, paths: readonly string[], abortSignal?: AbortSignal): Promise<void> {
    const asked = paths.filter(
      (path) => this.entries.get(path)?.kind === "file" && this.hashOf(path) === undefined,
    );
    if (asked.length === 0) return;
    const found = await side.tree.hash(side.root, asked, { ...(abortSignal && { abortSignal }) });
    for (const path of asked) {
      const hash = found.get(path);
      if (hash === undefined) this.unreadable.add(path);
      else this.learn(path, hash);
    }
  }

  /** Notes a content's hash, and its stamp where that proves something. */
  learn(path: string, hash: string): void {
    const entry = this.entries.get(path);
    if (entry?.settled) this.#base.learn(this.#name, path, { stamp: entry.stamp, hash });
    else this.#unproven.set(path, hash);
  }

  /** Of a file's content, when it is known. */
  hashOf(path: string): string | undefined {
    return this.#base.stampOf(this.#name, path)?.hash ?? this.#unproven.get(path);
  }

  /** A path's state as text; undefined when nothing is there, `file ?` when its content is not known yet. */
  stateOf(path: string): string | undefined {
    const entry = this.entries.get(path);
    if (!entry) return undefined;
    if (entry.kind === "file") return fileState(entry.mode, this.hashOf(path) ?? "?");
    return entry.kind === "directory" ? folderState(entry.mode) : linkState(entry.linkTarget ?? "");
  }
}

/** A folder's state as text. */
export function folderState(mode: number): string {
  return `folder ${(mode & 0o777).toString(8)}`;
}

/** A link's state as text. */
export function linkState(target: string): string {
  return `link ${target}`;
}

/** A file's state as text. */
export function fileState(mode: number, hash: string): string {
  return `file ${(mode & 0o777).toString(8)} ${hash}`;
}

function byPathOf(entries: readonly TreeEntry[]): ReadonlyMap<string, TreeEntry> {
  return new Map(entries.map((entry) => [entry.path, entry]));
}

/** A few of many that are in order of their paths. */
function findEntries(
  entries: readonly TreeEntry[],
  paths: readonly string[],
): ReadonlyMap<string, TreeEntry> {
  const found = new Map<string, TreeEntry>();
  for (const path of paths) {
    const entry = entries[placeIn(entries, path)];
    if (entry?.path === path) found.set(path, entry);
  }
  return found;
}
