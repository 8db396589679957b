/**
 * What both sides of a mirror were known to be after its last run: the state of each path as it was sent, and stamps,
 * so that only what changed since is looked into. Kept on the host, in a database of each pair, of which a run writes
 * what changed. Whoever has it open has the pair to itself; a process that dies lets go of it.
 */
import { createHash } from "node:crypto";
import { rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { MoorageError } from "../../src/errors.ts";
import { makePrivateFolder } from "../../src/folders.ts";

/** A file's content as long as its stamp stays what it was. */
interface Known {
  readonly stamp: string;
  readonly hash: string;
}

/** By path. */
export type Stamps = Map<string, Known>;

/** States that one side is about to get, written down before, so that a run that dies in between is understood. */
export interface Intent {
  readonly side: "here" | "there";
  /** An empty text for what is to be removed. */
  readonly states: readonly (readonly [string, string])[];
}

/** How often it is looked whether the other mirror of the pair has ended, milliseconds. */
const LOCK_POLL_MS = 50;
/** SQLite's codes for a file that somebody else holds, and for one that is damaged. */
const BUSY = 5;
const DAMAGED: ReadonlySet<number> = new Set([11, 26]);
const VERSION = 1;

/** The file of one pair of folders. */
export function baselineFile(stateDir: string, hostRoot: string, place: string): string {
  const name = createHash("sha256").update(`${hostRoot}\0${place}`).digest("hex").slice(0, 32);
  return join(stateDir, "sync", `${name}.sqlite`);
}

export class Baseline implements Disposable {
  /** A short text for each path: kind, mode and content. Kept by `save`. */
  readonly states = new Map<string, string>();
  readonly here: Stamps = new Map();
  readonly there: Stamps = new Map();
  /** That of a run that died; null when the last one ended well, or died before it had begun to change anything. */
  readonly intent: Intent | null;
  readonly #database: DatabaseSync;
  #saved: { readonly states: Map<string, string>; readonly here: Stamps; readonly there: Stamps };

  private constructor(database: DatabaseSync) {
    this.#database = database;
    for (const row of database.prepare("SELECT * FROM paths").all()) {
      const path = String(row.path);
      const state = row.state === null ? "" : String(row.state);
      if (state !== "") this.states.set(path, state);
      read(this.here, path, row.here, row.here_hash, state);
      read(this.there, path, row.there, row.there_hash, state);
    }
    this.intent = readIntent(database);
    this.#saved = { states: new Map(this.states), here: this.here, there: this.there };
  }

  /**
   * Waits until no other mirror of the pair runs. A file that is missing or damaged is an empty baseline: then what
   * differs is a conflict, and nothing is lost.
   *
   * @throws {MoorageError} ABORTED
   */
  static async open(file: string, abortSignal?: AbortSignal): Promise<Baseline> {
    await makePrivateFolder(dirname(file));
    while (true) {
      if (abortSignal?.aborted) throw new MoorageError("ABORTED", "The mirror was cancelled");
      let database: DatabaseSync | null = null;
      try {
        database = openDatabase(file);
        return new Baseline(database);
      } catch (error) {
        database?.close();
        const code = error instanceof Error && "errcode" in error ? Number(error.errcode) & 0xff : 0;
        if (DAMAGED.has(code)) for (const each of [file, `${file}-journal`]) rmSync(each, { force: true });
        else if (code !== BUSY) throw error;
      }
      await delay(LOCK_POLL_MS);
    }
  }

  /** Writes down what both sides were about to become, before they do. */
  intend({ side, states }: Intent): void {
    this.#transaction(() => {
      const add = this.#database.prepare(
        "INSERT OR REPLACE INTO intents (side, path, state) VALUES (?, ?, ?)",
      );
      for (const [path, state] of states) add.run(side, path, state);
    });
  }

  /** Keeps the states and these stamps, and drops the intent. */
  save(here: Stamps, there: Stamps): void {
    const { states } = this;
    const before = this.#saved;
    this.#transaction(() => {
      const put = this.#database.prepare(
        "INSERT OR REPLACE INTO paths (path, state, here, here_hash, there, there_hash) VALUES (?, ?, ?, ?, ?, ?)",
      );
      const remove = this.#database.prepare("DELETE FROM paths WHERE path = ?");
      const settle = (path: string) => {
        const [state, ours, theirs] = [states.get(path), here.get(path), there.get(path)];
        const isSame =
          state === before.states.get(path) &&
          ours?.stamp === before.here.get(path)?.stamp &&
          theirs?.stamp === before.there.get(path)?.stamp &&
          ours?.hash === before.here.get(path)?.hash &&
          theirs?.hash === before.there.get(path)?.hash;
        if (isSame) return;
        if (state === undefined && !ours && !theirs) remove.run(path);
        else put.run(path, state ?? null, ...cells(ours, state), ...cells(theirs, state));
      };
      for (const path of states.keys()) settle(path);
      for (const path of before.states.keys()) if (!states.has(path)) settle(path);
      for (const stamps of [here, there, before.here, before.there]) {
        for (const path of stamps.keys()) if (!states.has(path) && !before.states.has(path)) settle(path);
      }
      this.#database.exec("DELETE FROM intents");
    });
    this.#saved = { states: new Map(states), here: new Map(here), there: new Map(there) };
  }

  [Symbol.dispose](): void {
    this.#database.close();
  }

  #transaction(work: () => void): void {
    this.#database.exec("BEGIN");
    try {
      work();
      this.#database.exec("COMMIT");
    } catch (error) {
      this.#database.exec("ROLLBACK");
      throw error;
    }
  }
}

/**
 * What a death of the machine takes away is found again by looking at both sides, so no write waits for the disk.
 *
 * @throws with SQLite's code when somebody has it open, or it is damaged
 */
function openDatabase(file: string): DatabaseSync {
  const database = new DatabaseSync(file, { timeout: 0 });
  try {
    database.exec(`
      PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = OFF;
      BEGIN EXCLUSIVE;`);
    if (database.prepare("PRAGMA user_version").get()?.user_version !== VERSION) {
      database.exec(`
        DROP TABLE IF EXISTS paths; DROP TABLE IF EXISTS intents;
        CREATE TABLE paths (
          path TEXT PRIMARY KEY, state TEXT, here TEXT, here_hash TEXT, there TEXT, there_hash TEXT) WITHOUT ROWID;
        CREATE TABLE intents (path TEXT NOT NULL PRIMARY KEY, side TEXT NOT NULL, state TEXT NOT NULL) WITHOUT ROWID;
        PRAGMA user_version = ${VERSION};`);
    }
    database.exec("COMMIT");
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

function readIntent(database: DatabaseSync): Intent | null {
  const rows = database.prepare("SELECT side, path, state FROM intents").all();
  if (rows.length === 0) return null;
  return {
    side: rows[0]?.side === "here" ? "here" : "there",
    states: rows.map((row) => [String(row.path), String(row.state)] as const),
  };
}

/** A hash that the state ends with is not written a second time. */
function cells(known: Known | undefined, state: string | undefined): readonly [string | null, string | null] {
  if (!known) return [null, null];
  return [known.stamp, state?.endsWith(known.hash) ? null : known.hash];
}

function read(stamps: Stamps, path: string, stamp: unknown, hash: unknown, state: string): void {
  if (typeof stamp !== "string") return;
  stamps.set(path, { stamp, hash: typeof hash === "string" ? hash : state.slice(-64) });
}
