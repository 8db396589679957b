/**
 * What both sides of a mirror were known to be after its last run: the state of each path as it was sent, and stamps,
 * so that only what changed since is looked into. Kept on the host, in a database of each pair, of which a run writes
 * what changed. Whoever has it open has the pair to itself; a process that dies lets go of it.
 */
import { createHash, randomBytes } from "node:crypto";
import { readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { MoorageError, SQLITE_DAMAGED, sqliteCode } from "../../src/errors.ts";
import { makePrivateFolder } from "../../src/folders.ts";

/** A file's content as long as its stamp stays what it was. */
interface Known {
  readonly stamp: string;
  readonly hash: string;
}

export type SideName = "here" | "there";

/** What a baseline says, for as long as its word is the file's: each write gives it a new one. */
export interface Kept {
  /** A short text for each path: kind, mode and content. */
  readonly states: Map<string, string>;
  readonly here: Map<string, Known>;
  readonly there: Map<string, Known>;
  word: string;
}

/** States that one side is about to get, written down before, so that a run that dies in between is understood. */
export interface Intent {
  readonly side: SideName;
  /** An empty text for what is to be removed. */
  readonly states: readonly (readonly [string, string])[];
}

/** How often it is looked whether the other mirror of the pair has ended, milliseconds. */
const LOCK_POLL_MS = 50;
/** The same for who is putting something in place, milliseconds. */
const PLACE_POLL_MS = 10;
/** SQLite's code for a file that somebody else holds. */
const BUSY = 5;
const VERSION = 3;
/** Rows of the words. */
const WORD_ID = 1;
const STAGE_ID = 2;

/** The file of one pair of folders. */
export function baselineFile(stateDir: string, hostRoot: string, place: string): string {
  const name = shortHash(`${hostRoot}\0${place}`);
  return join(stateDir, "sync", `${filesPrefix(hostRoot)}${name}.sqlite`);
}

/** Whether there is a baseline of any pair with this folder of the host. */
export function hasBaseline(stateDir: string, hostRoot: string): boolean {
  try {
    const prefix = filesPrefix(hostRoot);
    return readdirSync(join(stateDir, "sync")).some((name) => name.startsWith(prefix));
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return false;
    throw error;
  }
}

function filesPrefix(hostRoot: string): string {
  return `${shortHash(hostRoot)}-`;
}

function shortHash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}

/** Rows that are kept apart from the whole before that is written anew: writing it costs as much as some hundred rows. */
const APART_MAX = 500;

/**
 * Everything but the rows apart, and an intent, are one text each, of words that end in NUL: it is written and read ten
 * times as fast as rows are. No path, state or stamp holds a NUL. Of a path the six columns of its row stand together.
 */
const COLUMNS = 6;
/** The last columns of a path of which the host's stamp alone is known: its hash is that of the state. */
const NO_STAMPS = "\0\0\0";
/** What stands between records of a first run, each of which is path, state and the host's stamp, joined by NUL. */
export const FIRST_SEPARATOR = `${NO_STAMPS}\0`;
/** The paths of such records, joined. */
export function pathsOfFirst(records: string): readonly string[] {
  return records.split("\0").filter((_, at) => at % COLUMNS === 0);
}
/** In the place of an intent's side: all that is written down is intended. */
const WHOLE = "whole";

function packWords(words: readonly string[]): Buffer {
  return Buffer.from(words.join("\0"), "latin1");
}

/** @throws {SyntaxError} when they are not so many for each */
function unpackWords(data: unknown, each: number): readonly string[] {
  if (!(data instanceof Uint8Array)) throw new SyntaxError("Cannot read a baseline: it holds no bytes");
  if (data.length === 0) return [];
  const words = Buffer.from(data.buffer, data.byteOffset, data.length).toString("latin1").split("\0");
  if (words.length % each !== 0) throw new SyntaxError("Cannot read a baseline: it ends early");
  return words;
}

export class Baseline implements Disposable {
  /** To be handed to the next `open`, when all that was noted was saved. */
  readonly kept: Kept;
  /** Whether `kept` is what was handed in: nobody else ran a mirror of the pair since. */
  readonly isKnown: boolean;
  /** Whether no mirror of the pair has ever had the file open. */
  readonly isNew: boolean;
  /** That of a run that died; null when the last one ended well, or died before it had begun to change anything. */
  readonly intent: Intent | null;
  /** The folder for staged files in the environment that a run left which died; null when it ended well. */
  readonly stage: string | null;
  readonly #database: DatabaseSync;
  readonly #changed = new Set<string>();
  #apart: number;
  /** The whole as it is to be written, when nothing was noted since. */
  #prepared: Buffer | null = null;

  private constructor({ database, isNew }: Opened, known: Kept | null) {
    this.#database = database;
    this.isNew = isNew;
    const wordOf = (id: number) =>
      String(database.prepare("SELECT word FROM words WHERE id = ?").get(id)?.word ?? "");
    const word = wordOf(WORD_ID);
    this.stage = wordOf(STAGE_ID) || null;
    this.isKnown = known !== null && known.word === word;
    this.kept =
      known && this.isKnown ? known : { states: new Map(), here: new Map(), there: new Map(), word };
    this.#apart = Number(database.prepare("SELECT COUNT(*) AS count FROM paths").get()?.count);
    if (!this.isKnown) this.#read();
    const intent = database.prepare("SELECT side, data FROM intents").get();
    if (intent?.side === WHOLE) {
      // What a first run was about to do; nothing was agreed on before.
      this.intent = { side: "there", states: [...this.kept.states] };
      for (const known of [this.kept.states, this.kept.here, this.kept.there]) known.clear();
    } else this.intent = readIntent(intent);
  }

  /**
   * Waits until no other mirror of the pair runs. A file that is missing or damaged is an empty baseline: then what
   * differs is a conflict, and nothing is lost.
   *
   * @param options.known what the last run kept, asked for when nobody else has the pair
   * @throws {MoorageError} ABORTED
   */
  static async open(
    file: string,
    {
      known = () => null,
      abortSignal,
    }: { readonly known?: () => Kept | null; readonly abortSignal?: AbortSignal } = {},
  ): Promise<Baseline> {
    await makePrivateFolder(dirname(file));
    while (true) {
      if (abortSignal?.aborted) throw new MoorageError("ABORTED", "The mirror was cancelled");
      let opened: Opened | null = null;
      try {
        opened = openDatabase(file);
        return new Baseline(opened, known());
      } catch (error) {
        opened?.database.close();
        const code = sqliteCode(error);
        const isDamaged = SQLITE_DAMAGED.has(code) || error instanceof SyntaxError;
        if (isDamaged) for (const each of [file, `${file}-journal`]) rmSync(each, { force: true });
        else if (code !== BUSY) throw error;
      }
      await delay(LOCK_POLL_MS);
    }
  }

  /** What both sides last agreed on. */
  get states(): ReadonlyMap<string, string> {
    return this.kept.states;
  }

  /** Notes what both sides agree on. Kept by `save`. */
  note(path: string, state: string | undefined): void {
    if (this.kept.states.get(path) === state) return;
    if (state === undefined) this.kept.states.delete(path);
    else this.kept.states.set(path, state);
    this.#change(path);
  }

  /** A content's hash as long as its stamp stays what it was. */
  stampOf(side: SideName, path: string): Known | undefined {
    return this.kept[side].get(path);
  }

  /** Notes a stamp, or that there is none. Kept by `save`. */
  learn(side: SideName, path: string, known: Known | undefined): void {
    const before = this.kept[side].get(path);
    if (before?.stamp === known?.stamp && before?.hash === known?.hash) return;
    if (known) this.kept[side].set(path, known);
    else this.kept[side].delete(path);
    this.#change(path);
  }

  /** Writes down where the environment's contents will be gathered, before they are. Forgotten by `save`. */
  noteStage(name: string): void {
    this.#transaction(() => this.#putWord(STAGE_ID, name));
  }

  /** Writes down what both sides were about to become, before they do. */
  intend(intent: Intent): void {
    this.#transaction(() => {
      this.#database
        .prepare("INSERT OR REPLACE INTO intents (id, side, data) VALUES (1, ?, ?)")
        .run(intent.side, packWords(intent.states.flat()));
    });
  }

  /**
   * Writes down what a first run is about to make of the environment's empty side, and all that is to be known of it
   * afterwards, as one text: then `confirmFirst` keeps it. It is not read here.
   *
   * @param records joined by `FIRST_SEPARATOR`
   */
  intendFirst(records: string): void {
    this.#transaction(() => {
      this.#database
        .prepare("INSERT OR REPLACE INTO wholes (id, data) VALUES (1, ?)")
        .run(Buffer.from(records + NO_STAMPS, "latin1"));
      this.#database
        .prepare("INSERT OR REPLACE INTO intents (id, side, data) VALUES (1, ?, ?)")
        .run(WHOLE, Buffer.alloc(0));
    });
  }

  /** Keeps what `intendFirst` wrote. */
  confirmFirst(): void {
    this.#transaction(() => this.#database.exec("DELETE FROM intents"));
  }

  /** Does what `save` can do before, for while there is something to be waited for anyway. Of no use when more is noted. */
  prepare(): void {
    if (this.#isMuch()) this.#prepared ??= this.#packWhole();
  }

  /** Keeps what was noted, and drops the intent. */
  save(): void {
    this.#transaction(() => {
      if (this.#isMuch()) this.#writeWhole();
      else this.#writeApart();
      this.#database.exec(`DELETE FROM intents; DELETE FROM words WHERE id = ${STAGE_ID};`);
    });
    this.#changed.clear();
  }

  #change(path: string): void {
    this.#changed.add(path);
    this.#prepared = null;
  }

  #isMuch(): boolean {
    return this.#apart + this.#changed.size > APART_MAX;
  }

  #read(): void {
    const { states, here, there } = this.kept;
    const whole = this.#database.prepare("SELECT data FROM wholes").get();
    const words = whole ? unpackWords(whole.data, COLUMNS) : [];
    for (let at = 0; at < words.length; at += COLUMNS) {
      const [path = "", state = ""] = [words[at], words[at + 1]];
      if (state !== "") states.set(path, state);
      keep(here, path, words[at + 2], words[at + 3], state);
      keep(there, path, words[at + 4], words[at + 5], state);
    }
    for (const row of this.#database.prepare("SELECT * FROM paths").all()) {
      const [path, state] = [String(row.path), String(row.state)];
      if (state === "") states.delete(path);
      else states.set(path, state);
      keep(here, path, row.here, row.here_hash, state);
      keep(there, path, row.there, row.there_hash, state);
    }
  }

  #writeApart(): void {
    const { states, here, there } = this.kept;
    const put = this.#database.prepare(
      "INSERT OR REPLACE INTO paths (path, state, here, here_hash, there, there_hash) VALUES (?, ?, ?, ?, ?, ?)",
    );
    for (const path of this.#changed) {
      const state = states.get(path) ?? "";
      put.run(path, state, ...cells(here.get(path), state), ...cells(there.get(path), state));
      this.#apart += 1;
    }
  }

  #writeWhole(): void {
    const data = this.#prepared ?? this.#packWhole();
    this.#database.prepare("INSERT OR REPLACE INTO wholes (id, data) VALUES (1, ?)").run(data);
    this.#database.exec("DELETE FROM paths");
    this.#apart = 0;
    this.#prepared = null;
  }

  #packWhole(): Buffer {
    const { states, here, there } = this.kept;
    const words: string[] = [];
    const add = (path: string) => {
      const state = states.get(path) ?? "";
      words.push(path, state, ...cells(here.get(path), state), ...cells(there.get(path), state));
    };
    for (const path of states.keys()) add(path);
    for (const path of here.keys()) if (!states.has(path)) add(path);
    for (const path of there.keys()) if (!states.has(path) && !here.has(path)) add(path);
    return packWords(words);
  }

  /** Lets go of the pair. Idempotent. */
  [Symbol.dispose](): void {
    if (this.#database.isOpen) this.#database.close();
  }

  #putWord(id: number, word: string): void {
    this.#database.prepare("INSERT OR REPLACE INTO words (id, word) VALUES (?, ?)").run(id, word);
  }

  #transaction(work: () => void): void {
    const word = randomBytes(12).toString("hex");
    this.#database.exec("BEGIN");
    try {
      work();
      this.#putWord(WORD_ID, word);
      this.#database.exec("COMMIT");
      this.kept.word = word;
    } catch (error) {
      // Where the disk is full SQLite has done so itself.
      if (this.#database.isTransaction) this.#database.exec("ROLLBACK");
      throw error;
    }
  }
}

/**
 * Holds a folder of an environment against all mirrors of this state into it, whatever host's folders they are of: between
 * the look at what is replaced and its replacement nobody else's may come. It waits for who holds it.
 *
 * @param place and folder, as text
 * @throws {MoorageError} ABORTED
 */
export async function holdPlace(
  stateDir: string,
  place: string,
  abortSignal: AbortSignal | undefined,
): Promise<Disposable> {
  const folder = join(stateDir, "sync-places");
  await makePrivateFolder(folder);
  const database = new DatabaseSync(join(folder, `${shortHash(place)}.sqlite`), { timeout: 0 });
  try {
    for (;;) {
      try {
        // Nothing is ever written to it.
        database.exec("BEGIN EXCLUSIVE");
        return { [Symbol.dispose]: () => database.close() };
      } catch (error) {
        if (sqliteCode(error) !== BUSY) throw error;
      }
      if (abortSignal?.aborted) throw new MoorageError("ABORTED", "The mirror was cancelled");
      await delay(PLACE_POLL_MS);
    }
  } catch (error) {
    database.close();
    throw error;
  }
}

interface Opened {
  readonly database: DatabaseSync;
  /** Whether it was empty. */
  readonly isNew: boolean;
}

/**
 * What a death of the machine takes away is found again by looking at both sides, so no write waits for the disk.
 *
 * @throws with SQLite's code when somebody has it open, or it is damaged
 */
function openDatabase(file: string): Opened {
  const database = new DatabaseSync(file, { timeout: 0 });
  try {
    database.exec(`
      PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = OFF;
      BEGIN EXCLUSIVE;`);
    const version = database.prepare("PRAGMA user_version").get()?.user_version;
    if (version !== VERSION) {
      database.exec(`
        DROP TABLE IF EXISTS wholes; DROP TABLE IF EXISTS paths; DROP TABLE IF EXISTS intents;
        DROP TABLE IF EXISTS words;
        CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
        CREATE TABLE wholes (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
        CREATE TABLE paths (
          path TEXT PRIMARY KEY, state TEXT NOT NULL, here TEXT NOT NULL, here_hash TEXT NOT NULL, there TEXT NOT NULL,
          there_hash TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE intents (id INTEGER PRIMARY KEY, side TEXT NOT NULL, data BLOB NOT NULL);
        PRAGMA user_version = ${VERSION};`);
    }
    database.exec("COMMIT");
    return { database, isNew: version === 0 };
  } catch (error) {
    database.close();
    throw error;
  }
}

function readIntent(row: Readonly<Record<string, unknown>> | undefined): Intent | null {
  if (!row) return null;
  const words = unpackWords(row.data, 2);
  const states = words.flatMap((path, at) => (at % 2 === 0 ? [[path, words[at + 1] ?? ""] as const] : []));
  return { side: row.side === "here" ? "here" : "there", states };
}

/** Stamp and hash, empty where there is none; a hash that the state ends with is not written a second time. */
function cells(known: Known | undefined, state: string): readonly [string, string] {
  if (!known) return ["", ""];
  return [known.stamp, state.endsWith(known.hash) ? "" : known.hash];
}

function keep(stamps: Map<string, Known>, path: string, stamp: unknown, hash: unknown, state: string): void {
  if (typeof stamp !== "string" || stamp === "") stamps.delete(path);
  else stamps.set(path, { stamp, hash: typeof hash === "string" && hash !== "" ? hash : state.slice(-64) });
}
