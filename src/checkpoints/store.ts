/**
 * The index of all checkpoints of this state folder, in SQLite, shared by every process that uses the folder. Writers
 * wait for each other; nobody holds a lock that a dead process could leave behind.
 */
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { z } from "zod";
import { judgeOwner, ownerLabel } from "../../environments/owner.ts";
import { isMoorageError, MoorageError } from "../errors.ts";
import { ensureStateDir } from "../paths.ts";
import { Blobs, type BlobWriter, hashOf } from "./blobs.ts";
import { healIndex, identityOf, isDamaged, openIndex } from "./index-file.ts";
import {
  decodeStates,
  encodeStates,
  type PathState,
  type Skipped,
  type States,
  squeeze,
  unsqueeze,
} from "./states.ts";

/** Where a checkpoint was taken, for people and for later restores. */
export interface CheckpointOrigin {
  readonly id: string;
  readonly backend: string;
  readonly description: string;
  readonly workspace: string;
  /** Names the environment apart from all others; null for a checkpoint that was taken when none was noted. */
  readonly environment: string | null;
  /** What a person named the environment by, a specification or a configured name; null where that is not known. */
  readonly spec: string | null;
  /** The folder of the host that was mirrored with the workspace; null where none was. */
  readonly mirrored: string | null;
}

export interface CheckpointInfo {
  /** `cp-` and twelve hex digits. */
  readonly id: string;
  /** What it belongs to: `host:/folder`, or the environment that the folder is in. */
  readonly place: string;
  /** ISO 8601. */
  readonly createdAt: string;
  /** `files`: only the paths that a call names. `tree`: the whole workspace. */
  readonly scope: "files" | "tree";
  /** Why: `before write_file: src/a.ts`, `before restore of cp-…`, or what a person said. */
  readonly reason: string;
  readonly callId: string | null;
  readonly origin: CheckpointOrigin;
  /** Paths that it knows. */
  readonly paths: number;
  /** What it does not hold, and why. */
  readonly skipped: readonly Skipped[];
}

export interface StoredCheckpoint extends CheckpointInfo {
  readonly seq: number;
  readonly manifest: number;
  /** Paths that came into being by the call that it was taken for. */
  readonly made: readonly string[];
}

export interface NewCheckpoint {
  readonly place: string;
  readonly scope: "files" | "tree";
  readonly reason: string;
  readonly callId: string | null;
  readonly origin: CheckpointOrigin;
  readonly states: States;
  readonly skipped: readonly Skipped[];
}

/** What the last scan of a place knew, so that the next one hashes only what changed. */
export type ScanMemory = ReadonlyMap<string, { readonly stamp: string; readonly hash: string }>;

const INDEX = "index.sqlite";
/** For how long a hold counts whose owner cannot be judged from here, another machine's. */
const FOREIGN_HOLD_MS = 24 * 3600_000;
const ID = /^cp-[0-9a-f]{12}$/;
const paths = z.array(z.string());
const skips = z.array(z.object({ path: z.string(), reason: z.string() }));
const origins = z.object({
  id: z.string(),
  backend: z.string(),
  description: z.string(),
  workspace: z.string(),
  environment: z.string().nullable().default(null),
  spec: z.string().nullable().default(null),
  mirrored: z.string().nullable().default(null),
});
const memory = z.array(z.tuple([z.string(), z.string(), z.string()]));

/** A row for each table, by which it shows whether the tables are ours. */
const TRY_TABLES = `
  INSERT INTO packs (id, integrity, bytes, created_at) VALUES (-1, '', 0, 0);
  INSERT INTO blobs (hash, pack, start, length) VALUES ('', -1, 0, 0);
  INSERT INTO manifests (id, digest, paths, data) VALUES (-1, '', 0, '');
  INSERT INTO checkpoints (seq, id, place, created_at, scope, reason, call_id, origin, manifest, skipped, made)
    VALUES (-1, '', '', 0, '', '', NULL, '', -1, '', '');
  INSERT INTO held (place, from_seq, owner, until) VALUES ('', 0, '', 0);
  INSERT INTO memories (place, data) VALUES ('', '')`;

export class CheckpointStore implements Disposable {
  readonly blobs: Blobs;
  readonly #database: DatabaseSync;
  readonly #file: string;
  readonly #identity: string | null;

  private constructor(folder: string) {
    this.#file = join(folder, INDEX);
    const database = openIndex(this.#file);
    this.#database = database;
    try {
      this.blobs = this.#prepare(folder);
    } catch (error) {
      database.close();
      throw error;
    }
    this.#identity = identityOf(this.#file);
  }

  #prepare(folder: string): Blobs {
    const database = this.#database;
    database.exec(`
      CREATE TABLE IF NOT EXISTS manifests (
        id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, paths INTEGER NOT NULL, data BLOB NOT NULL);
      CREATE TABLE IF NOT EXISTS checkpoints (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, place TEXT NOT NULL, created_at INTEGER NOT NULL,
        scope TEXT NOT NULL, reason TEXT NOT NULL, call_id TEXT, origin TEXT NOT NULL,
        manifest INTEGER NOT NULL REFERENCES manifests(id), skipped TEXT NOT NULL, made TEXT NOT NULL);
      CREATE INDEX IF NOT EXISTS checkpoints_by_place ON checkpoints (place, seq);
      CREATE TABLE IF NOT EXISTS held (
        place TEXT NOT NULL, from_seq INTEGER NOT NULL, owner TEXT NOT NULL, until INTEGER NOT NULL);
      CREATE TABLE IF NOT EXISTS memories (place TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;`);
    return new Blobs(database, folder);
  }

  /** Opens the store in a state folder. An index that is damaged is put aside, and a new one begun. */
  static async open(stateDir: string): Promise<CheckpointStore> {
    const folder = await ensureStateDir(join(stateDir, "checkpoints"));
    try {
      return new CheckpointStore(folder);
    } catch (error) {
      if (!isDamaged(error)) throw error;
      healIndex(join(folder, INDEX), TRY_TABLES);
      return new CheckpointStore(folder);
    }
  }

  /** Puts the index aside when it is damaged. Idempotent. */
  static heal(stateDir: string): void {
    healIndex(join(stateDir, "checkpoints", INDEX), TRY_TABLES);
  }

  /** Whether this is still the index: it may have been removed since, or put aside by another process. */
  isCurrent(): boolean {
    return identityOf(this.#file) === this.#identity;
  }

  [Symbol.dispose](): void {
    this.#database.close();
  }

  /** Enters a checkpoint with its contents, all or nothing. @throws {MoorageError} INTERNAL when contents were pruned meanwhile */
  add(checkpoint: NewCheckpoint, contents: BlobWriter): StoredCheckpoint {
    const text = encodeStates(checkpoint.states);
    const digest = hashOf(Buffer.from(text));
    const id = `cp-${randomBytes(6).toString("hex")}`;
    const hashes = new Set(hashesIn(checkpoint.states.values()));
    const seq = this.#transaction(() => {
      contents.commit();
      const known = this.#database.prepare("SELECT id, data FROM manifests WHERE digest = ?").get(digest);
      let manifest = known?.id;
      if (known === undefined || !isIntact(known.data, digest)) {
        const missing = this.blobs.unknown(hashes);
        if (missing.length > 0) {
          throw new MoorageError(
            "INTERNAL",
            `Cannot enter a checkpoint: ${missing.length} contents are gone`,
          );
        }
        manifest = this.#database
          .prepare(
            `INSERT INTO manifests (digest, paths, data) VALUES (?, ?, ?)
             ON CONFLICT (digest) DO UPDATE SET data = excluded.data RETURNING id`,
          )
          .get(digest, checkpoint.states.size, squeeze(text))?.id;
      }
      const { place, scope, reason, callId, origin, skipped } = checkpoint;
      return this.#database
        .prepare(
          `INSERT INTO checkpoints (id, place, created_at, scope, reason, call_id, origin, manifest, skipped, made)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '[]') RETURNING seq`,
        )
        .get(
          id,
          place,
          Date.now(),
          scope,
          reason,
          callId,
          JSON.stringify(origin),
          Number(manifest),
          JSON.stringify(skipped),
        )?.seq;
    });
    return this.#require("checkpoints.seq = ?", Number(seq));
  }

  /** Enters a checkpoint of what an earlier one of the same place holds; null when that one is gone. */
  repeat(
    earlier: StoredCheckpoint,
    { reason, callId }: Pick<NewCheckpoint, "reason" | "callId">,
  ): StoredCheckpoint | null {
    const id = `cp-${randomBytes(6).toString("hex")}`;
    const row = this.#database
      .prepare(
        `INSERT INTO checkpoints (id, place, created_at, scope, reason, call_id, origin, manifest, skipped, made)
         SELECT ?, place, ?, scope, ?, ?, origin, manifest, skipped, '[]' FROM checkpoints WHERE seq = ? RETURNING seq`,
      )
      .get(id, Date.now(), reason, callId, earlier.seq);
    return row ? this.#require("checkpoints.seq = ?", Number(row.seq)) : null;
  }

  /** Adds to the paths that a checkpoint's call made. */
  addMade(seq: number, made: readonly string[]): void {
    if (made.length === 0) return;
    this.#transaction(() => {
      const row = this.#database.prepare("SELECT made FROM checkpoints WHERE seq = ?").get(seq);
      if (!row) return;
      const all = new Set([...paths.parse(JSON.parse(String(row.made))), ...made]);
      this.#database
        .prepare("UPDATE checkpoints SET made = ? WHERE seq = ?")
        .run(JSON.stringify([...all]), seq);
    });
  }

  /** @throws {MoorageError} INVALID_ARGUMENTS for what is no id; CHECKPOINT_MISSING */
  get(id: string): StoredCheckpoint {
    if (!ID.test(id)) {
      throw new MoorageError("INVALID_ARGUMENTS", `${JSON.stringify(id)} is no id of a checkpoint`, {
        suggestion: "Give an id that `moor checkpoints list` shows, such as cp-0123456789ab.",
      });
    }
    return this.#require("checkpoints.id = ?", id);
  }

  /** Newest first. */
  list(place?: string): readonly StoredCheckpoint[] {
    const rows =
      place === undefined
        ? this.#database.prepare(`${SELECT} ORDER BY seq DESC`).all()
        : this.#database.prepare(`${SELECT} WHERE place = ? ORDER BY seq DESC`).all(place);
    return rows.flatMap((row) => {
      try {
        return toCheckpoint(row);
      } catch {
        // A row that is damaged is no checkpoint any more, and hides none of the others.
        return [];
      }
    });
  }

  /** The checkpoint and those of its place that came after it, oldest first. */
  since({ place, seq }: StoredCheckpoint): readonly StoredCheckpoint[] {
    return this.#database
      .prepare(`${SELECT} WHERE place = ? AND seq >= ? ORDER BY seq`)
      .all(place, seq)
      .map(toCheckpoint);
  }

  /**
   * Keeps a checkpoint and those of its place that came after it from being pruned, by any process, until the hold is
   * disposed of or the process ends, whatever the clock says meanwhile.
   */
  hold({ place, seq }: StoredCheckpoint): Disposable {
    const row = this.#database
      .prepare("INSERT INTO held (place, from_seq, owner, until) VALUES (?, ?, ?, ?) RETURNING rowid AS id")
      .get(place, seq, ownerLabel(), Date.now() + FOREIGN_HOLD_MS);
    return {
      [Symbol.dispose]: () => {
        this.#database.prepare("DELETE FROM held WHERE rowid = ?").run(Number(row?.id));
      },
    };
  }

  states({ manifest }: { readonly manifest: number }): Map<string, PathState> {
    const row = this.#database.prepare("SELECT digest, data FROM manifests WHERE id = ?").get(manifest);
    if (!(row?.data instanceof Uint8Array)) {
      throw new MoorageError("INTERNAL", "Cannot read a checkpoint: its list of files is gone");
    }
    try {
      const text = unsqueeze(row.data);
      // What is damaged may still be a list of files, of other names or modes.
      if (hashOf(Buffer.from(text)) !== row.digest) throw new Error("its digest is another one");
      return decodeStates(text);
    } catch (error) {
      throw new MoorageError("CHECKPOINT_FAILED", "Cannot read a checkpoint: its list of files is damaged", {
        suggestion: "Choose a checkpoint that was taken later.",
        cause: error,
      });
    }
  }

  remember(place: string, scan: ScanMemory): void {
    const data = squeeze(JSON.stringify([...scan].map(([path, { stamp, hash }]) => [path, stamp, hash])));
    this.#database
      .prepare(
        "INSERT INTO memories (place, data) VALUES (?, ?) ON CONFLICT (place) DO UPDATE SET data = excluded.data",
      )
      .run(place, data);
  }

  recall(place: string): ScanMemory {
    const row = this.#database.prepare("SELECT data FROM memories WHERE place = ?").get(place);
    if (!(row?.data instanceof Uint8Array)) return new Map();
    try {
      const lines = memory.parse(JSON.parse(unsqueeze(row.data)));
      return new Map(lines.map(([path, stamp, hash]) => [path, { stamp, hash }]));
    } catch {
      // Damaged: then everything is looked at.
      return new Map();
    }
  }

  /**
   * Removes checkpoints that are too old, of folders that are gone, or more than fit; the newest of all stays. Then
   * contents that no checkpoint needs.
   */
  async prune(rules: {
    readonly maxBytes: number;
    readonly maxAgeMs: number;
    readonly maxCount: number;
  }): Promise<number> {
    const removed = this.#transaction(() => {
      const all = this.list();
      const held = this.#held();
      const doomed = new Set<number>();
      const counts = new Map<string, number>();
      for (const [index, { seq, place, createdAt }] of all.entries()) {
        const count = (counts.get(place) ?? 0) + 1;
        counts.set(place, count);
        const isOld = Date.now() - Date.parse(createdAt) > rules.maxAgeMs || count > rules.maxCount;
        const isDead = place.startsWith("host:") && !existsSync(place.slice("host:".length));
        if (index > 0 && (isOld || isDead) && !held.has(seq)) doomed.add(seq);
      }
      const integrities = this.#collect(all, doomed, held, rules.maxBytes);
      return { count: doomed.size, integrities };
    });
    await this.blobs.removeFiles(removed.integrities);
    await this.blobs.sweep();
    return removed.count;
  }

  /** Bytes of contents and lists. */
  get totalBytes(): number {
    const row = this.#database.prepare("SELECT COALESCE(SUM(LENGTH(data)), 0) AS total FROM manifests").get();
    return this.blobs.totalBytes + Number(row?.total);
  }

  /** Adds the oldest to the doomed until the rest fits, deletes them, and forgets what nobody needs any more. */
  #collect(
    all: readonly StoredCheckpoint[],
    doomed: Set<number>,
    held: ReadonlySet<number>,
    maxBytes: number,
  ): readonly string[] {
    const unreadable = new Set<number>();
    const packs = this.blobs.packs();
    const packOf = new Map(this.blobs.list().map(({ hash, pack }) => [hash, pack]));
    // Packs needed by each manifest, and how many manifests that stay need each pack.
    const needs = new Map<number, ReadonlySet<number>>();
    const users = new Map<number, number>();
    const manifests = new Map<number, number>();
    for (const { manifest } of all) {
      manifests.set(manifest, (manifests.get(manifest) ?? 0) + 1);
      if (needs.has(manifest)) continue;
      const used = new Set(this.#hashesOf(manifest, unreadable).flatMap((hash) => packOf.get(hash) ?? []));
      needs.set(manifest, used);
      for (const pack of used) users.set(pack, (users.get(pack) ?? 0) + 1);
    }
    // Nobody can restore what cannot be read.
    for (const { seq, manifest } of all) if (unreadable.has(manifest)) doomed.add(seq);
    let total = this.totalBytes;
    for (const [pack, { bytes }] of packs) if (!users.has(pack)) total -= bytes;
    const drop = ({ manifest }: StoredCheckpoint): void => {
      const left = (manifests.get(manifest) ?? 1) - 1;
      manifests.set(manifest, left);
      if (left > 0) return;
      for (const pack of needs.get(manifest) ?? []) {
        const others = (users.get(pack) ?? 1) - 1;
        if (others > 0) users.set(pack, others);
        else {
          users.delete(pack);
          total -= this.#packBytes(pack);
        }
      }
    };
    for (const checkpoint of all) if (doomed.has(checkpoint.seq)) drop(checkpoint);
    for (const checkpoint of [...all].reverse()) {
      if (total <= maxBytes || doomed.size >= all.length - 1) break;
      if (doomed.has(checkpoint.seq) || held.has(checkpoint.seq)) continue;
      doomed.add(checkpoint.seq);
      drop(checkpoint);
    }
    const remove = this.#database.prepare("DELETE FROM checkpoints WHERE seq = ?");
    for (const seq of doomed) remove.run(seq);
    const unused = [...packs].filter(([pack]) => !users.has(pack));
    this.blobs.forget(unused.map(([pack]) => pack));
    this.#database.exec(`
      DELETE FROM manifests WHERE id NOT IN (SELECT manifest FROM checkpoints);
      DELETE FROM memories WHERE place NOT IN (SELECT place FROM checkpoints);`);
    return unused.map(([, { integrity }]) => integrity);
  }

  /** @param unreadable gets the manifest when its list is damaged */
  #hashesOf(manifest: number, unreadable: Set<number>): readonly string[] {
    try {
      return [...hashesIn(this.states({ manifest }).values())];
    } catch (error) {
      if (!isMoorageError(error)) throw error;
      unreadable.add(manifest);
      return [];
    }
  }

  /** What somebody is restoring from. */
  #held(): ReadonlySet<number> {
    const release = this.#database.prepare("DELETE FROM held WHERE rowid = ?");
    for (const row of this.#database.prepare("SELECT rowid AS id, owner, until FROM held").all()) {
      const owner = judgeOwner(String(row.owner), false);
      if (owner === "dead" || (owner === "unknown" && Number(row.until) < Date.now()))
        release.run(Number(row.id));
    }
    const rows = this.#database
      .prepare(
        `SELECT DISTINCT seq FROM checkpoints JOIN held ON held.place = checkpoints.place AND seq >= from_seq`,
      )
      .all();
    return new Set(rows.map((row) => Number(row.seq)));
  }

  #packBytes(pack: number): number {
    return Number(this.#database.prepare("SELECT bytes FROM packs WHERE id = ?").get(pack)?.bytes ?? 0);
  }

  #require(condition: string, value: string | number): StoredCheckpoint {
    const row = this.#database.prepare(`${SELECT} WHERE ${condition}`).get(value);
    if (row) return toCheckpoint(row);
    throw new MoorageError("CHECKPOINT_MISSING", `There is no checkpoint "${value}"`);
  }

  #transaction<Value>(work: () => Value): Value {
    this.#database.exec("BEGIN IMMEDIATE");
    try {
      const value = work();
      this.#database.exec("COMMIT");
      return value;
    } catch (error) {
      // Where the disk is full SQLite has done so itself.
      if (this.#database.isTransaction) this.#database.exec("ROLLBACK");
      throw error;
    }
  }
}

const SELECT =
  "SELECT checkpoints.*, manifests.paths AS paths FROM checkpoints JOIN manifests ON manifests.id = checkpoints.manifest";

/** Whether a list of files is what it was stored as. */
function isIntact(data: unknown, digest: string): boolean {
  try {
    return data instanceof Uint8Array && hashOf(Buffer.from(unsqueeze(data))) === digest;
  } catch {
    return false;
  }
}

/** @throws {MoorageError} CHECKPOINT_FAILED when the row is damaged */
function toCheckpoint(row: Record<string, unknown>): StoredCheckpoint {
  try {
    return readRow(row);
  } catch (error) {
    throw new MoorageError("CHECKPOINT_FAILED", `Cannot read checkpoint "${row.id}": its entry is damaged`, {
      suggestion: "Choose a checkpoint that was taken later.",
      cause: error,
    });
  }
}

function readRow(row: Record<string, unknown>): StoredCheckpoint {
  return {
    seq: Number(row.seq),
    id: String(row.id),
    place: String(row.place),
    createdAt: new Date(Number(row.created_at)).toISOString(),
    scope: row.scope === "tree" ? "tree" : "files",
    reason: String(row.reason),
    callId: row.call_id === null ? null : String(row.call_id),
    origin: origins.parse(JSON.parse(String(row.origin))),
    manifest: Number(row.manifest),
    paths: Number(row.paths),
    skipped: skips.parse(JSON.parse(String(row.skipped))),
    made: paths.parse(JSON.parse(String(row.made))),
  };
}

function* hashesIn(states: Iterable<PathState>): Generator<string> {
  for (const state of states) if (state.kind === "file") yield state.hash;
}
