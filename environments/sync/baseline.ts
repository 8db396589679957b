/**
 * What both sides of a mirror were known to be after its last run: the state of each path as it was sent, and stamps,
 * so that only what changed since is looked into. Kept on the host, replaced whole.
 */

import { createHash, randomBytes } from "node:crypto";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { makePrivateFolder } from "../../src/folders.ts";

/** Content hash of a file by path, as long as its stamp stays what it was. */
export type Stamps = Map<string, { readonly stamp: string; readonly hash: string }>;

export interface Baseline {
  /** A short text for each path: kind, mode and content. */
  readonly states: Map<string, string>;
  readonly here: Stamps;
  readonly there: Stamps;
}

/** The file of one pair of folders. */
export function baselineFile(stateDir: string, hostRoot: string, place: string): string {
  const name = createHash("sha256").update(`${hostRoot}\0${place}`).digest("hex").slice(0, 32);
  return join(stateDir, "sync", `${name}.json`);
}

/** A file that is missing or damaged is an empty baseline: then what differs is a conflict, and nothing is lost. */
export async function readBaseline(file: string): Promise<Baseline> {
  try {
    const stored: unknown = JSON.parse(await readFile(file, "utf8"));
    if (isStored(stored)) {
      return { states: new Map(stored.states), here: toStamps(stored.here), there: toStamps(stored.there) };
    }
  } catch (error) {
    const isMissing = error instanceof Error && "code" in error && error.code === "ENOENT";
    if (!isMissing && !(error instanceof SyntaxError)) throw error;
  }
  return { states: new Map(), here: new Map(), there: new Map() };
}

export async function writeBaseline(file: string, { states, here, there }: Baseline): Promise<void> {
  const text = JSON.stringify({
    version: 1,
    states: [...states],
    here: fromStamps(here),
    there: fromStamps(there),
  });
  const folder = join(file, "..");
  await makePrivateFolder(folder);
  const temporary = `${file}.${randomBytes(6).toString("hex")}`;
  try {
    await writeFile(temporary, text, { mode: 0o600, flag: "wx" });
    await rename(temporary, file);
  } finally {
    await rm(temporary, { force: true });
  }
}

/** States that one side is about to get, written down before, so that a run that dies in between is understood. */
export interface Intent {
  readonly side: "here" | "there";
  /** An empty text for what is to be removed. */
  readonly states: readonly (readonly [string, string])[];
}

export async function writeIntent(file: string, intent: Intent): Promise<void> {
  await makePrivateFolder(join(file, ".."));
  await writeFile(`${file}.intent`, JSON.stringify(intent), { mode: 0o600 });
}

/** The intent of a run that died; null when the last one ended well, or died before it had begun to change anything. */
export async function readIntent(file: string): Promise<Intent | null> {
  try {
    const stored: unknown = JSON.parse(await readFile(`${file}.intent`, "utf8"));
    if (typeof stored !== "object" || stored === null || !("side" in stored) || !("states" in stored))
      return null;
    const { side, states } = stored;
    return (side === "here" || side === "there") && isRows(states, 2) ? { side, states } : null;
  } catch (error) {
    const isMissing = error instanceof Error && "code" in error && error.code === "ENOENT";
    // Half of one was written: nothing had been changed by then.
    if (isMissing || error instanceof SyntaxError) return null;
    throw error;
  }
}

export async function dropIntent(file: string): Promise<void> {
  await rm(`${file}.intent`, { force: true });
}

function isRows(list: unknown, length: 2): list is readonly (readonly [string, string])[] {
  return (
    Array.isArray(list) &&
    list.every(
      (row) => Array.isArray(row) && row.length === length && row.every((cell) => typeof cell === "string"),
    )
  );
}

interface Stored {
  readonly states: readonly (readonly [string, string])[];
  readonly here: readonly (readonly [string, string, string])[];
  readonly there: readonly (readonly [string, string, string])[];
}

function isStored(value: unknown): value is Stored {
  if (typeof value !== "object" || value === null || !("version" in value) || value.version !== 1)
    return false;
  const isList = (list: unknown, length: number) =>
    Array.isArray(list) &&
    list.every(
      (row) => Array.isArray(row) && row.length === length && row.every((cell) => typeof cell === "string"),
    );
  return (
    "states" in value &&
    isList(value.states, 2) &&
    "here" in value &&
    isList(value.here, 3) &&
    "there" in value &&
    isList(value.there, 3)
  );
}

function toStamps(rows: Stored["here"]): Stamps {
  return new Map(rows.map(([path, stamp, hash]) => [path, { stamp, hash }]));
}

function fromStamps(stamps: Stamps): Stored["here"] {
  return [...stamps].map(([path, { stamp, hash }]) => [path, stamp, hash] as const);
}
