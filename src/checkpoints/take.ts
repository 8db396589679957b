/** Takes checkpoints: of named files in one request, of a whole tree in a scan and what changed since the last. */
import { hostname } from "node:os";
import type { BaseEnvironment, CapturedFile, TreeEntry } from "../../environments/base.ts";
import { contentUpTo } from "../../environments/tree/content.ts";
import { bytesOf, isOurs, showName } from "../../environments/tree/names.ts";
import { isMoorageError } from "../errors.ts";
import { limits } from "../limits.ts";
import type { BlobWriter } from "./blobs.ts";
import { inBatches } from "./order.ts";
import type { PathState, Skipped, States } from "./states.ts";
import type { CheckpointOrigin, CheckpointStore, ScanMemory, StoredCheckpoint } from "./store.ts";

export interface TakeOptions {
  /** `before write_file: src/a.ts`; null only looks, and enters nothing. */
  readonly reason: string | null;
  readonly callId?: string | null;
  /** Files beyond this are left out, bytes. @default limits.checkpointFileMaxBytes */
  readonly maxFileBytes?: number;
}

/** A content is held, hashed and written in one piece, of which Node takes less than 2 GiB. */
const CONTENT_MAX_BYTES = 1024 * 1024 * 1024;

/** Reading ignore rules may take one part in so many of the time for a tree. */
const RULES_SHARE = 5;

/** A workspace as checkpoints know it. */
export interface Place {
  readonly key: string;
  /** The workspace, links resolved. */
  readonly root: string;
  /** Names the environment that it was reached in: several can reach one folder, each with files of its own around it. */
  readonly environment: string;
  readonly names: PlaceNames;
}

/** What people know a place by. */
export type PlaceNames = Partial<Pick<CheckpointOrigin, "spec" | "mirrored">>;

/** Finds out what a workspace's checkpoints belong to. */
export async function findPlace(environment: BaseEnvironment): Promise<Omit<Place, "names">> {
  await environment.start();
  const [root, word] = await Promise.all([
    environment.files.realPath(environment.workspace),
    environment.tree.identity(),
  ]);
  const { id, backend, description, isolation, exposedHostPaths, sharedFolder } = environment.info();
  // A container may have the host's powers: it reaches the host's files, and by other paths than its own.
  const isHost = isolation === "none" && exposedHostPaths.includes("/");
  const folder = isHost ? root : sharedFolder;
  return {
    key: folder === undefined ? `${backend}:${word}:${root}` : `host:${folder}`,
    root,
    // The word alone is the environment's own say, and a sandboxed process has files around its folder for one life.
    environment: isHost
      ? `host:${hostname()}`
      : [backend, description, ...(isolation === "process" ? [id] : []), word].join(":"),
  };
}

/** Checkpoints the paths that a call is about to write. */
export async function takeFiles(
  store: CheckpointStore,
  environment: BaseEnvironment,
  place: Place,
  paths: readonly string[],
  options: TakeOptions & { readonly cwd: string; readonly onlyOutside?: boolean },
): Promise<{ readonly checkpoint: StoredCheckpoint | null; readonly states: States }> {
  const { maxFileBytes = limits.checkpointFileMaxBytes, cwd, onlyOutside = false } = options;
  const maxBytes = Math.min(maxFileBytes, limits.fileWholeMaxBytes);
  const captured = await environment.tree.capture([...new Set(paths)], {
    maxBytes,
    cwd,
    timeoutMs: limits.checkpointBudgetMs,
  });
  const contents = store.blobs.writer();
  const states = new Map<string, PathState>();
  const skipped: Skipped[] = [];
  for (const file of captured) {
    if (onlyOutside && !relativeTo(place, file.realPath).startsWith("/")) continue;
    await enterCaptured(file, place, contents, states, skipped, maxBytes);
  }
  if (onlyOutside && states.size === 0) return { checkpoint: null, states };
  const checkpoint = await enter(
    store,
    environment,
    place,
    options,
    { scope: "files", states, skipped },
    contents,
  );
  return { checkpoint, states };
}

async function enterCaptured(
  file: CapturedFile,
  place: Place,
  contents: BlobWriter,
  states: Map<string, PathState>,
  skipped: Skipped[],
  maxBytes: number,
): Promise<void> {
  const path = relativeTo(place, file.realPath);
  if (file.link)
    states.set(relativeTo(place, file.link.path), {
      kind: "symlink",
      target: bytesOf(file.link.target),
      uid: -1,
      gid: -1,
    });
  if (file.state === "file" && file.bytes && file.status !== null) {
    const hash = await contents.put(file.bytes);
    const { mode, uid, gid } = file.status;
    // What was built from the content that the call writes is newer than it, so its time is that of its return.
    states.set(path, { kind: "file", mode, hash, size: file.bytes.length, modifiedAt: -1, uid, gid });
    return;
  }
  if (file.state === "absent") {
    // Folders that the write will make go with it.
    if (file.missingFolder !== null && path.includes("/")) {
      const top = relativeTo(place, file.missingFolder);
      for (let folder = path; folder !== top && folder.includes("/"); ) {
        folder = folder.slice(0, folder.lastIndexOf("/"));
        if (folder !== "" && folder.length >= top.length) states.set(folder, { kind: "absent" });
      }
    }
    if (!file.link || relativeTo(place, file.link.path) !== path) states.set(path, { kind: "absent" });
    return;
  }
  states.set(path, { kind: "kept" });
  skipped.push({
    path: showName(path),
    reason: file.state === "large" ? tooLarge(maxBytes) : "it is no regular file, or cannot be read",
  });
}

export interface TakenTree {
  /** Null when it was only looked at. */
  readonly checkpoint: StoredCheckpoint | null;
  readonly states: States;
  readonly memory: ScanMemory;
  /** False when the time budget was passed before everything was stored. */
  readonly inTime: boolean;
  readonly entries: readonly TreeEntry[];
  /** Folders that nobody could look into. */
  readonly closed: readonly string[];
}

/** Checkpoints the whole workspace. */
export async function takeTree(
  store: CheckpointStore,
  environment: BaseEnvironment,
  place: Place,
  options: TakeOptions & { readonly budgetMs?: number },
  remembered: ScanMemory,
  last: TakenTree | null = null,
): Promise<TakenTree> {
  const { budgetMs = limits.treeTimeoutMs } = options;
  const maxFileBytes = Math.min(options.maxFileBytes ?? limits.checkpointFileMaxBytes, CONTENT_MAX_BYTES);
  const deadline = performance.now() + budgetMs;
  const { entries, closed } = await environment.tree.scan(place.root, {
    sideBySide: true,
    timeoutMs: budgetMs,
  });
  // The very same entries: nothing is new, unless time ran out before.
  if (last?.checkpoint && last.inTime && last.entries === entries && options.reason !== null) {
    const checkpoint = store.repeat(last.checkpoint, {
      reason: options.reason,
      callId: options.callId ?? null,
    });
    if (checkpoint) return { ...last, checkpoint };
  }
  const states = new Map<string, PathState>();
  const shut = new Set(closed);
  const skipped: Skipped[] = closed.map((path) => ({
    path: showName(path),
    reason: "it cannot be looked into, or is another file system",
  }));
  const memory = new Map<string, { readonly stamp: string; readonly hash: string }>();
  const unknown: TreeEntry[] = [];
  for (const entry of entries) {
    const { path, kind } = entry;
    if (kind === "file") {
      const known = remembered.get(path);
      if (known?.stamp === entry.stamp) {
        if (entry.settled) memory.set(path, known);
        states.set(path, fileState(entry, known.hash));
      } else if (entry.size > maxFileBytes) {
        states.set(path, { kind: "kept" });
        skipped.push({ path: showName(path), reason: tooLarge(maxFileBytes) });
      } else {
        states.set(path, { kind: "kept" });
        unknown.push(entry);
      }
    } else if (kind === "directory") {
      const { mode, uid, gid } = entry;
      states.set(path, { kind: "directory", mode, uid, gid, ...(shut.has(path) && { closed: true }) });
    } else if (kind === "symlink") {
      const { linkTarget: target = "", uid, gid } = entry;
      states.set(path, { kind: "symlink", target, uid, gid });
    } else states.set(path, { kind: "kept" });
  }
  const contents = store.blobs.writer();
  const isLook = options.reason === null;
  const batches = isLook
    ? [unknown]
    : await inBatches(environment, place.root, entries, unknown, budgetMs / RULES_SHARE);
  const found: Fetched = isLook
    ? { hashes: await environment.tree.hash(place.root, unknown.map(pathOf)), late: new Set() }
    : await fetch(environment, place, batches, contents, deadline, store);
  for (const entry of batches.flat()) {
    const hash = found.hashes.get(entry.path);
    if (hash === undefined) {
      const reason = found.late.has(entry.path)
        ? `the time budget of ${budgetMs} ms was passed`
        : "it cannot be read, or changed while it was read";
      skipped.push({ path: showName(entry.path), reason });
      continue;
    }
    states.set(entry.path, fileState(entry, hash));
    if (entry.settled) memory.set(entry.path, { stamp: entry.stamp, hash });
  }
  const checkpoint = await enter(
    store,
    environment,
    place,
    options,
    { scope: "tree", states, skipped },
    contents,
  );
  return { checkpoint, states, memory, inTime: found.late.size === 0, entries, closed };
}

/** What became of fetching contents. */
interface Fetched {
  /** Of the contents that are stored, by path. One that came torn, its size not the scan's, has none. */
  readonly hashes: ReadonlyMap<string, string>;
  /** Paths that there was no time for. */
  readonly late: ReadonlySet<string>;
}

/** Stores the contents of batches, one after the other, as long as there is time. */
async function fetch(
  environment: BaseEnvironment,
  place: Place,
  batches: readonly (readonly TreeEntry[])[],
  contents: BlobWriter,
  deadline: number,
  store: CheckpointStore,
): Promise<Fetched> {
  const hashes = new Map<string, string>();
  const stored = new Set<string>();
  const bound = () => ({ timeoutMs: Math.max(1, deadline - performance.now()) });
  for (const [index, batch] of batches.entries()) {
    try {
      await fetchBatch(batch);
    } catch (error) {
      if (!isMoorageError(error, "TOOL_TIMEOUT")) throw error;
      const paths = batches.slice(index).flat().map(pathOf);
      return { hashes, late: new Set(paths.filter((path) => !hashes.has(path))) };
    }
  }
  return { hashes, late: new Set() };

  async function fetchBatch(batch: readonly TreeEntry[]): Promise<void> {
    const bytes = batch.reduce((sum, { size }) => sum + size, 0);
    if (bytes <= limits.checkpointFetchBytes) return pull(batch);
    // What is stored already, under another name or from before, need not come again.
    const told = await environment.tree.hash(place.root, batch.map(pathOf), bound());
    const first = new Map<string, TreeEntry>();
    for (const entry of batch) {
      const hash = told.get(entry.path);
      if (hash === undefined) continue;
      if (stored.has(hash) || (await store.blobs.has(hash))) hashes.set(entry.path, hash);
      else if (!first.has(hash)) first.set(hash, entry);
    }
    await pull([...first.values()]);
    for (const [path, hash] of told) if (stored.has(hash)) hashes.set(path, hash);
  }

  async function pull(entries: readonly TreeEntry[]): Promise<void> {
    const sizes = new Map(entries.map(({ path, size }) => [path, size]));
    await environment.tree.pack(
      place.root,
      [...sizes.keys()],
      async ({ path, content }) => {
        const size = sizes.get(path) ?? 0;
        const bytes = await contentUpTo(content, size);
        if (bytes?.length !== size) return;
        const hash = await contents.put(bytes);
        hashes.set(path, hash);
        stored.add(hash);
      },
      { ...bound(), onFilledUp: (path) => hashes.delete(path) },
    );
  }
}

function fileState({ mode, size, modifiedAt, uid, gid }: TreeEntry, hash: string): PathState {
  return { kind: "file", mode, hash, size, modifiedAt, uid, gid };
}

async function enter(
  store: CheckpointStore,
  environment: BaseEnvironment,
  place: Place,
  { reason, callId = null }: TakeOptions,
  what: { readonly scope: "files" | "tree"; readonly states: States; readonly skipped: readonly Skipped[] },
  contents: BlobWriter,
): Promise<StoredCheckpoint | null> {
  if (reason === null) return null;
  await contents.flush();
  const { id, backend, description } = environment.info();
  const origin = {
    id,
    backend,
    description,
    workspace: place.root,
    environment: place.environment,
    spec: null,
    mirrored: null,
    ...place.names,
  };
  return store.add({ ...what, place: place.key, reason, callId, origin }, contents);
}

function tooLarge(maxBytes: number): string {
  return `it has more than ${maxBytes} bytes`;
}

function pathOf({ path }: TreeEntry): string {
  return path;
}

/** A path as checkpoints keep it: relative inside the workspace, absolute outside. */
export function relativeTo({ root }: Place, absolute: string): string {
  const prefix = root === "/" ? "/" : `${root}/`;
  const inside = absolute.startsWith(prefix) ? absolute.slice(prefix.length) : "";
  return bytesOf(inside === "" || isOurs(bytesOf(inside)) ? absolute : inside);
}
