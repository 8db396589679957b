/**
 * The file of the index: opened, and put aside when it is damaged. A file that somebody removed or put aside is not the
 * index any more, though whoever has it open can still write to it.
 */
import { renameSync, rmSync, statSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { SQLITE_DAMAGED, sqliteCode } from "../errors.ts";

const BUSY_MS = 30_000;
/** SQLite's code for a statement that does not fit the tables. Ours do, so it is the tables that are not ours. */
const SQLITE_ERROR = 1;

/** @throws SQLite's own errors */
export function openIndex(file: string): DatabaseSync {
  const database = new DatabaseSync(file, { timeout: BUSY_MS });
  try {
    database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;");
  } catch (error) {
    database.close();
    throw error;
  }
  return database;
}

/** Which file is at a path now; null for none. */
export function identityOf(path: string): string | null {
  const stat = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stat ? `${stat.dev}.${stat.ino}` : null;
}

/** Whether it says, or comes of it, that a database is damaged. */
export function isDamaged(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code = sqliteCode(error);
  return code === SQLITE_ERROR || SQLITE_DAMAGED.has(code) || isDamaged(error.cause);
}

/**
 * Puts the index aside when it is damaged, which shows late where the damage is in the middle. Idempotent.
 *
 * @param tryTables statements that fail unless the tables are ours; they are taken back
 */
export function healIndex(file: string, tryTables: string): void {
  const judged = identityOf(file);
  try {
    using database = openIndex(file);
    database.exec(`BEGIN IMMEDIATE; ${tryTables}; ROLLBACK`);
    // A quick check would not see entries of an index that lead nowhere.
    if (database.prepare("PRAGMA integrity_check(1)").get()?.integrity_check === "ok") return;
  } catch (error) {
    if (!isDamaged(error)) throw error;
  }
  // Another process may have begun a new one meanwhile.
  if (judged !== null && identityOf(file) === judged) putAside(file);
}

function putAside(file: string): void {
  const aside = `${file}.damaged-${Date.now()}`;
  renameSync(file, aside);
  for (const suffix of ["-wal", "-shm"]) rmSync(`${file}${suffix}`, { force: true });
  process.emitWarning(`The index of checkpoints was damaged; it is now "${aside}"`, "MoorageWarning");
}
