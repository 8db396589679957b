/**
 * Contents by their SHA-256. Small ones share a pack, since a file each would cost more than their bytes; packs lie in
 * a content-addressed store that checks what it gives back. The index says which pack holds which content.
 */
import { createHash } from "node:crypto";
import { readdir, rm, stat } from "node:fs/promises";
import { join, relative } from "node:path";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import cacache from "cacache";
import { MoorageError, toMoorageError } from "../errors.ts";
import { identityOf } from "./index-file.ts";

/** Contents that share a pack, bytes. */
const PACK_BYTES = 2 * 1024 * 1024;
const DAY_MS = 24 * 3600_000;
/** What every pack is entered as into the store's own index, which nobody asks: packs are asked for by their digest. */
const ENTRY = "pack";
const removeEntry: (cache: string, key: string, options: { removeFully: boolean }) => Promise<unknown> =
  cacache.rm.entry;

/** A content on its way into the index. */
interface Placed {
  readonly hash: string;
  readonly integrity: string;
  readonly offset: number;
  readonly length: number;
  readonly packBytes: number;
}

export class Blobs {
  readonly #database: DatabaseSync;
  readonly #folder: string;
  readonly #findBlob: StatementSync;
  /** Packs that were seen to be there. */
  readonly #seen = new Set<string>();
  /** Which folder has the packs, null before there is one. */
  #home: string | null | undefined;
  #losses = 0;
  #lastPack: { readonly integrity: string; readonly bytes: Buffer } | null = null;

  constructor(database: DatabaseSync, stateFolder: string) {
    this.#database = database;
    this.#folder = join(stateFolder, "contents");
    database.exec(`
      CREATE TABLE IF NOT EXISTS packs (
        id INTEGER PRIMARY KEY, integrity TEXT NOT NULL UNIQUE, bytes INTEGER NOT NULL, created_at INTEGER NOT NULL);
      CREATE TABLE IF NOT EXISTS blobs (
        hash TEXT PRIMARY KEY, pack INTEGER NOT NULL REFERENCES packs(id), start INTEGER NOT NULL, length INTEGER NOT NULL
      ) WITHOUT ROWID;
      CREATE INDEX IF NOT EXISTS blobs_by_pack ON blobs (pack);`);
    this.#findBlob = database.prepare(
      "SELECT blobs.pack, blobs.start, blobs.length, packs.integrity FROM blobs JOIN packs ON packs.id = blobs.pack WHERE hash = ?",
    );
  }

  /** Notices that the folder of the packs was removed, so that nobody goes by what was stored in it. */
  notice(): void {
    const home = identityOf(this.#folder);
    const was = this.#home;
    this.#home = home;
    if (home === was || was === null || (was === undefined && home !== null)) return;
    this.#seen.clear();
    this.#lastPack = null;
    this.#distrust();
  }

  /** Collects contents of one checkpoint; they count from `commit` on. */
  writer(): BlobWriter {
    return new BlobWriter(this);
  }

  /** Whether the content is there, its pack too. */
  async has(hash: string): Promise<boolean> {
    const row = this.#find(hash);
    if (!row) return false;
    if (this.#seen.has(row.integrity)) return true;
    const there = await cacache.get.hasContent(this.#folder, row.integrity);
    if (!there) this.#lose(row.pack);
    else this.#seen.add(row.integrity);
    return there !== false;
  }

  /** @returns null when it is not there, or damaged */
  async read(hash: string): Promise<Buffer | null> {
    const row = this.#find(hash);
    if (!row) return null;
    try {
      if (this.#lastPack?.integrity !== row.integrity) {
        const bytes = await cacache.get.byDigest(this.#folder, row.integrity, { memoize: false });
        this.#lastPack = { integrity: row.integrity, bytes };
      }
    } catch (error) {
      // Missing or damaged: whatever was in it is lost, and is stored anew when it is met again.
      if (
        !(
          error instanceof Error &&
          "code" in error &&
          /^(ENOENT|EINTEGRITY|EBADSIZE|EISDIR|ENOTDIR|ELOOP)$/.test(String(error.code))
        )
      )
        throw error;
      this.#lose(row.pack);
      return null;
    }
    const content = this.#lastPack.bytes.subarray(row.start, row.start + row.length);
    if (hashOf(content) === hash) return content;
    // The index is wrong about it.
    this.#database.prepare("DELETE FROM blobs WHERE hash = ?").run(hash);
    this.#distrust();
    return null;
  }

  /** Bytes of all packs. */
  get totalBytes(): number {
    return Number(this.#database.prepare("SELECT COALESCE(SUM(bytes), 0) AS total FROM packs").get()?.total);
  }

  /** Every content with its pack, for those who judge what is still needed. */
  list(): readonly { readonly hash: string; readonly pack: number }[] {
    return this.#database
      .prepare("SELECT hash, pack FROM blobs")
      .all()
      .map((row) => ({ hash: String(row.hash), pack: Number(row.pack) }));
  }

  /** All packs of the index. One that a checkpoint in the making has written is not in it yet. */
  packs(): ReadonlyMap<number, { readonly bytes: number; readonly integrity: string }> {
    return new Map(
      this.#database
        .prepare("SELECT id, bytes, integrity FROM packs")
        .all()
        .map((row) => [Number(row.id), { bytes: Number(row.bytes), integrity: String(row.integrity) }]),
    );
  }

  /** Removes packs from the index; call inside a transaction, and `removeFiles` after it. */
  forget(packs: Iterable<number>): void {
    for (const pack of packs) this.#forgetPack(pack);
  }

  async removeFiles(integrities: Iterable<string>): Promise<void> {
    const find = this.#database.prepare("SELECT id FROM packs WHERE integrity = ?");
    for (const integrity of integrities) {
      // The same bytes may have been stored anew since.
      if (find.get(integrity)) continue;
      this.#seen.delete(integrity);
      await cacache.rm.content(this.#folder, integrity);
    }
  }

  /**
   * Once a day, removes packs that no index knows: a process that was killed had written them, or had not come to remove
   * them. A pack of a checkpoint in the making is younger, also when the clock jumps by hours.
   */
  async sweep(): Promise<void> {
    const today = Math.floor(Date.now() / DAY_MS);
    if (this.#database.prepare("PRAGMA user_version").get()?.user_version === today) return;
    this.#database.exec(`PRAGMA user_version = ${today}`);
    const find = this.#database.prepare("SELECT id FROM packs WHERE integrity = ?");
    const packs = join(this.#folder, "content-v2", "sha512");
    for (const path of await oldFiles(packs)) {
      const digest = Buffer.from(relative(packs, path).replaceAll("/", ""), "hex").toString("base64");
      if (!find.get(`sha512-${digest}`)) await rm(path, { force: true });
    }
    for (const path of await oldFiles(join(this.#folder, "tmp"))) await rm(path, { force: true });
  }

  /** Writes a pack's file. */
  async putPack(bytes: Buffer): Promise<string> {
    const integrity = `sha512-${createHash("sha512").update(bytes).digest("base64")}`;
    try {
      await cacache.put(this.#folder, ENTRY, bytes, { algorithms: ["sha512"] });
      await removeEntry(this.#folder, ENTRY, { removeFully: true });
    } catch (error) {
      // Said here: whoever reads the workspace at the time would pass for the one that failed.
      throw toMoorageError(error, "CHECKPOINT_FAILED", "Cannot store contents of a checkpoint");
    }
    this.#seen.add(integrity);
    return integrity;
  }

  /** Enters contents into the index; call inside a transaction. */
  enter(placed: readonly Placed[]): void {
    const addPack = this.#database.prepare(
      "INSERT INTO packs (integrity, bytes, created_at) VALUES (?, ?, ?) ON CONFLICT (integrity) DO UPDATE SET created_at = excluded.created_at RETURNING id",
    );
    const addBlob = this.#database.prepare(
      `INSERT INTO blobs (hash, pack, start, length) VALUES (?, ?, ?, ?)
       ON CONFLICT (hash) DO UPDATE SET pack = excluded.pack, start = excluded.start, length = excluded.length`,
    );
    const ids = new Map<string, number>();
    for (const { hash, integrity, offset, length, packBytes } of placed) {
      let id = ids.get(integrity);
      if (id === undefined) {
        id = Number(addPack.get(integrity, packBytes, Date.now())?.id);
        ids.set(integrity, id);
      }
      addBlob.run(hash, id, offset, length);
    }
  }

  /** Those of the contents that the index does not know. */
  unknown(hashes: Iterable<string>): readonly string[] {
    return [...hashes].filter((hash) => this.#find(hash) === undefined);
  }

  #find(hash: string) {
    const row = this.#findBlob.get(hash);
    if (!row) return undefined;
    return {
      pack: Number(row.pack),
      start: Number(row.start),
      length: Number(row.length),
      integrity: String(row.integrity),
    };
  }

  /** How many packs were found to be gone or damaged. */
  get losses(): number {
    return this.#losses;
  }

  #lose(pack: number): void {
    this.#forgetPack(pack);
    this.#distrust();
  }

  /** What was lost is stored anew when it is met again, so nobody may go by what was stored once. */
  #distrust(): void {
    this.#losses += 1;
    this.#database.exec("DELETE FROM memories");
  }

  #forgetPack(pack: number): void {
    this.#database.prepare("DELETE FROM blobs WHERE pack = ?").run(pack);
    this.#database.prepare("DELETE FROM packs WHERE id = ?").run(pack);
  }
}

export class BlobWriter {
  readonly #blobs: Blobs;
  readonly #placed: Placed[] = [];
  readonly #known = new Set<string>();
  #waiting: { readonly hash: string; readonly bytes: Buffer }[] = [];
  #waitingBytes = 0;

  constructor(blobs: Blobs) {
    this.#blobs = blobs;
  }

  /** Stores a content unless it is there. @returns its SHA-256 in hex */
  async put(bytes: Buffer): Promise<string> {
    const hash = hashOf(bytes);
    if (this.#known.has(hash)) return hash;
    this.#known.add(hash);
    if (await this.#blobs.has(hash)) return hash;
    this.#waiting.push({ hash, bytes });
    this.#waitingBytes += bytes.length;
    if (this.#waitingBytes >= PACK_BYTES) await this.flush();
    return hash;
  }

  /** Writes what waits to the disk. */
  async flush(): Promise<void> {
    if (this.#waiting.length === 0) return;
    const waiting = this.#waiting;
    const packBytes = this.#waitingBytes;
    this.#waiting = [];
    this.#waitingBytes = 0;
    const integrity = await this.#blobs.putPack(Buffer.concat(waiting.map(({ bytes }) => bytes)));
    let offset = 0;
    for (const { hash, bytes } of waiting) {
      this.#placed.push({ hash, integrity, offset, length: bytes.length, packBytes });
      offset += bytes.length;
    }
  }

  /** Enters what was flushed; call inside a transaction. */
  commit(): void {
    if (this.#waiting.length > 0)
      throw new MoorageError("INTERNAL", "Cannot commit contents that were not written");
    this.#blobs.enter(this.#placed);
  }
}

export function hashOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Files in a folder and below it that were last written more than a day ago. */
async function oldFiles(folder: string): Promise<readonly string[]> {
  const found = await readdir(folder, { recursive: true, withFileTypes: true }).catch((error: unknown) => {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return [];
    throw error;
  });
  const old: string[] = [];
  for (const entry of found.filter((each) => each.isFile())) {
    const path = join(entry.parentPath, entry.name);
    // Another process may remove it meanwhile.
    const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: Number.POSITIVE_INFINITY }));
    if (Date.now() - mtimeMs > DAY_MS) old.push(path);
  }
  return old;
}
