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
import { z } from "zod";
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

/** Rows that are kept apart from the whole before that is written anew: writing it costs as much as some hundred rows. */
const APART_MAX = 500;

/** Everything but the rows apart: a list of each column, which is read five times as fast as rows are. */
const wholes = z.object({
  paths: z.array(z.string()),
  states: z.array(z.string()),
  here: z.array(z.string()),
  hereHashes: z.array(z.string()),
  there: z.array(z.string()),
  thereHashes: z.array(z.string()),
});

export class Baseline implements Disposable {
  /** A short text for each path: kind, mode and content. Kept by `save`. */
  readonly states = new Map<string, string>();
  /** As they were kept last. */
  readonly here: Stamps = new Map();
  readonly there: Stamps = new Map();
  /** That of a run that died; null when the last one ended well, or died before it had begun to change anything. */
  readonly intent: Intent | null;
  readonly #database: DatabaseSync;
  readonly #saved: Map<string, string>;
  #apart: number;

  private constructor(database: DatabaseSync) {
    this.#database = database;
    const data = database.prepare("SELECT data FROM wholes").get()?.data;
    if (typeof data === "string") {
      const whole = wholes.parse(JSON.parse(data));
      for (const [index, path] of whole.paths.entries()) {
        const state = whole.states[index] ?? "";
        if (state !== "") this.states.set(path, state);
        keep(this.here, path, whole.here[index], whole.hereHashes[index], state);
        keep(this.there, path, whole.there[index], whole.thereHashes[index], state);
      }
    }
    const apart = database.prepare("SELECT * FROM paths").all();
    for (const row of apart) {
      const [path, state] = [String(row.path), String(row.state)];
      if (state === "") this.states.delete(path);
      else this.states.set(path, state);
      keep(this.here, path, row.here, row.here_hash, state);
      keep(this.there, path, row.there, row.there_hash, state);
    }
    this.#apart = apart.length;
    this.intent = readIntent(database);
    this.#saved = new Map(this.states);
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
        const isDamaged = DAMAGED.has(code) || error instanceof SyntaxError || error instanceof z.ZodError;
        if (isDamaged) for (const each of [file, `${file}-journal`]) rmSync(each, { force: true });
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
    const changed = new Set<string>();
    for (const [path, state] of this.states) if (this.#saved.get(path) !== state) changed.add(path);
    for (const path of this.#saved.keys()) if (!this.states.has(path)) changed.add(path);
    noteChanged(this.here, here, changed);
    noteChanged(this.there, there, changed);
    this.#transaction(() => {
      if (this.#apart + changed.size > APART_MAX) this.#writeWhole();
      else this.#writeApart(changed);
      this.#database.exec("DELETE FROM intents");
    });
    for (const path of changed) {
      const state = this.states.get(path);
      if (state === undefined) this.#saved.delete(path);
      else this.#saved.set(path, state);
    }
  }

  #writeApart(changed: Iterable<string>): void {
    const put = this.#database.prepare(
      "INSERT OR REPLACE INTO paths (path, state, here, here_hash, there, there_hash) VALUES (?, ?, ?, ?, ?, ?)",
    );
    for (const path of changed) {
      const state = this.states.get(path) ?? "";
      put.run(path, state, ...cells(this.here.get(path), state), ...cells(this.there.get(path), state));
      this.#apart += 1;
    }
  }

  #writeWhole(): void {
    const paths = [...new Set([...this.states.keys(), ...this.here.keys(), ...this.there.keys()])];
    const states = paths.map((path) => this.states.get(path) ?? "");
    const [here, there] = [this.here, this.there].map((stamps) =>
      paths.map((path, index) => cells(stamps.get(path), states[index] ?? "")),
    );
    const whole: z.input<typeof wholes> = {
      paths,
      states,
      here: (here ?? []).map(([stamp]) => stamp),
      hereHashes: (here ?? []).map(([, hash]) => hash),
      there: (there ?? []).map(([stamp]) => stamp),
      thereHashes: (there ?? []).map(([, hash]) => hash),
    };
    this.#database
      .prepare("INSERT OR REPLACE INTO wholes (id, data) VALUES (1, ?)")
      .run(JSON.stringify(whole));
    this.#database.exec("DELETE FROM paths");
    this.#apart = 0;
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
        CREATE TABLE wholes (id INTEGER PRIMARY KEY, data TEXT NOT NULL);
        CREATE TABLE paths (
          path TEXT PRIMARY KEY, state TEXT NOT NULL, here TEXT NOT NULL, here_hash TEXT NOT NULL, there TEXT NOT NULL,
          there_hash TEXT NOT NULL) WITHOUT ROWID;
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

/** Stamp and hash, empty where there is none; a hash that the state ends with is not written a second time. */
function cells(known: Known | undefined, state: string): readonly [string, string] {
  if (!known) return ["", ""];
  return [known.stamp, state.endsWith(known.hash) ? "" : known.hash];
}

function keep(stamps: Stamps, path: string, stamp: unknown, hash: unknown, state: string): void {
  if (typeof stamp !== "string" || stamp === "") stamps.delete(path);
  else stamps.set(path, { stamp, hash: typeof hash === "string" && hash !== "" ? hash : state.slice(-64) });
}

/** Makes `stamps` what `next` is, and notes where they differed. */
function noteChanged(stamps: Stamps, next: Stamps, changed: Set<string>): void {
  for (const [path, known] of next) {
    const before = stamps.get(path);
    if (before === known) continue;
    if (before?.stamp !== known.stamp || before.hash !== known.hash) changed.add(path);
    stamps.set(path, known);
  }
  if (stamps.size === next.size) return;
  for (const path of stamps.keys()) {
    if (next.has(path)) continue;
    stamps.delete(path);
    changed.add(path);
  }
}
