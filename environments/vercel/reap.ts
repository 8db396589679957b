/**
 * Which sandboxes were made from here or for others of the project, and the end of those whose owner is dead. They are
 * found by their tags at the servers that the records name, and at Vercel's own where its credentials are set.
 */
import { Sandbox } from "@vercel/sandbox";
import { limits } from "../../src/limits.ts";
import type { Health } from "../base.ts";
import { judgeOwner, type OwnerState } from "../owner.ts";
import { bounded, hasStatus, textOf, toSandboxError } from "./failure.ts";
import { createClientFetch } from "./fetch.ts";
import { readRecords, removeRecord, tokenMark, type VercelRecord } from "./records.ts";
import { readCredentials, type VercelCredentials } from "./settings.ts";
import { VERCEL_TAGS } from "./tags.ts";

export interface VercelEntry {
  readonly id: string;
  /** Its name, its state, and the server that has it. */
  readonly description: string;
  /** ISO 8601. */
  readonly createdAt: string;
  readonly owner: OwnerState;
  readonly keep: boolean;
}

export interface VercelUpkeepOptions {
  readonly stateDir: string;
  /** @default the variables of this process */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

export interface ReapOptions extends VercelUpkeepOptions {
  /** Ids of environments that were to be kept, to be removed as well when their owner is dead. @default none */
  readonly kept?: readonly string[];
}

export interface ReapedVercel {
  readonly id: string;
  readonly name: string;
  /** Why it could not be removed; null when nothing is left. */
  readonly problem: string | null;
}

interface Found extends VercelEntry {
  readonly name: string;
}

/** A server and the project there that is looked at. */
export class Account {
  readonly baseUrl: string | null;
  readonly #credentials: VercelCredentials;
  readonly #fetch: typeof fetch;
  readonly #abortSignal: AbortSignal | undefined;

  /** @param abortSignal gives up what is asked */
  constructor(baseUrl: string | null, credentials: VercelCredentials, abortSignal?: AbortSignal) {
    this.baseUrl = baseUrl;
    this.#abortSignal = abortSignal;
    this.#credentials = credentials;
    this.#fetch = createClientFetch(baseUrl ?? undefined).fetch;
  }

  holds({ baseUrl, teamId, projectId }: Pick<VercelRecord, "baseUrl" | "teamId" | "projectId">): boolean {
    return (
      baseUrl === this.baseUrl &&
      teamId === this.#credentials.teamId &&
      projectId === this.#credentials.projectId
    );
  }

  /** @throws {MoorageError} VERCEL_REFUSED, ENVIRONMENT_UNAVAILABLE */
  async check(): Promise<void> {
    try {
      await bounded((signal) => Sandbox.list({ ...this.#params, limit: 1, signal }));
    } catch (error) {
      throw toSandboxError(error, "Sandboxes cannot be had");
    }
  }

  /** Sandboxes that we made, of every owner. */
  async list(keep: boolean): Promise<readonly Found[]> {
    return bounded(async (signal) => {
      const found: Found[] = [];
      const tags = { [VERCEL_TAGS.keep]: String(keep) };
      for await (const { name, status, createdAt, tags: own } of await Sandbox.list({
        ...this.#params,
        tags,
        signal,
      })) {
        const owner = own?.[VERCEL_TAGS.owner];
        if (owner === undefined) continue;
        found.push({
          id: own?.[VERCEL_TAGS.id] ?? name,
          name,
          description: `sandbox ${name} (${status})${at(this.baseUrl)}`,
          createdAt: new Date(createdAt).toISOString(),
          // A sandbox outlives the boot of the machine that asked for it.
          owner: judgeOwner(owner, false),
          keep,
        });
      }
      return found;
    }, this.#bounds);
  }

  /** One that is gone already is removed as well as any; one that a living owner has taken over meanwhile stays. */
  async removeOrphan(name: string): Promise<void> {
    try {
      await bounded(async (signal) => {
        const sandbox = await Sandbox.get({ ...this.#params, name, resume: false, signal });
        if (judgeOwner(sandbox.tags?.[VERCEL_TAGS.owner] ?? "", false) === "dead") {
          await sandbox.delete({ signal, deleteOrphanSnapshots: true });
        }
      }, this.#bounds);
    } catch (error) {
      if (!hasStatus(error, 404)) throw error;
    }
  }

  get #params() {
    return { ...this.#credentials, fetch: this.#fetch };
  }

  get #bounds() {
    return { timeoutMs: limits.openTimeoutMs, abortSignal: this.#abortSignal };
  }
}

/**
 * Whether Vercel's own server can be used from here.
 *
 * @throws {MoorageError} VERCEL_CREDENTIALS_MISSING, VERCEL_REFUSED, ENVIRONMENT_UNAVAILABLE
 */
export async function checkVercel(
  env: Readonly<Record<string, string | undefined>> = process.env,
): Promise<Health> {
  const credentials = readCredentials(env);
  await new Account(null, credentials).check();
  return { healthy: true, detail: `sandboxes of project ${credentials.projectId} can be had` };
}

/**
 * Sandboxes of every owner, oldest first. Without credentials, or where a server is out of reach, what the records say.
 *
 * @throws {MoorageError} VERCEL_REFUSED, ENVIRONMENT_UNAVAILABLE when a server cannot be asked and no record names it
 */
export async function listVercel(options: VercelUpkeepOptions): Promise<readonly VercelEntry[]> {
  const records = await readRecords(options.stateDir);
  const { accounts, unasked } = accountsOf(records, options.env ?? process.env);
  const found = unasked.map(({ record, why }) => fromRecord(record, `its server was not asked: ${why}`));
  for (const account of accounts) {
    try {
      const lists = await Promise.all([false, true].map((keep) => account.list(keep)));
      found.push(...lists.flat().map(({ name: _, ...entry }) => entry));
    } catch (error) {
      const known = records.filter((record) => account.holds(record));
      if (known.length === 0) throw toSandboxError(error, "Sandboxes cannot be listed");
      found.push(
        ...known.map((record) => fromRecord(record, `its server was not reached: ${textOf(error)}`)),
      );
    }
  }
  return found.sort((a, b) => (a.createdAt < b.createdAt ? -1 : 1));
}

/**
 * Removes the sandboxes of dead owners that were not meant to stay, and their records.
 *
 * @throws {MoorageError} VERCEL_REFUSED, ENVIRONMENT_UNAVAILABLE when a server cannot be asked and no record names it
 */
export async function reapVercel(options: ReapOptions): Promise<readonly ReapedVercel[]> {
  const records = await readRecords(options.stateDir);
  const { accounts, unasked } = accountsOf(records, options.env ?? process.env);
  const reaped: ReapedVercel[] = unasked
    .filter(({ record }) => isDue(record, options.kept))
    .map(({ record: { id, name }, why }) => ({ id, name, problem: why }));
  for (const account of accounts) reaped.push(...(await reapAccount(account, records, options)));
  return reaped;
}

function isDue({ id, keep, owner }: VercelRecord, kept: readonly string[] = []): boolean {
  return (!keep || kept.includes(id)) && judgeOwner(owner, false) === "dead";
}

/**
 * Removes one project's sandboxes of dead owners, and their records.
 *
 * @throws {MoorageError} VERCEL_REFUSED, ENVIRONMENT_UNAVAILABLE when the server cannot be asked and no record names it
 */
export async function reapAccount(
  account: Account,
  records: readonly VercelRecord[],
  { stateDir, kept = [] }: { readonly stateDir?: string | undefined; readonly kept?: readonly string[] },
): Promise<readonly ReapedVercel[]> {
  const due = records.filter((record) => account.holds(record) && isDue(record, kept));
  const known = due.map(({ id, name }) => ({ id, name }));
  const reaped: ReapedVercel[] = [];
  try {
    const asked = kept.length === 0 ? [] : await account.list(true);
    const tagged = [...(await account.list(false)), ...asked.filter(({ id }) => kept.includes(id))].filter(
      ({ owner }) => owner === "dead",
    );
    known.push(...tagged.filter(({ name }) => !due.some((record) => record.name === name)));
    // What no tag calls ours, or another owner's by now, is left alone: only its record goes.
    const removable = new Set(tagged.map(({ name }) => name));
    for (const { id, name } of known) {
      const problem = removable.has(name) ? await problemOf(account.removeOrphan(name)) : null;
      reaped.push({ id, name, problem });
    }
  } catch (error) {
    if (known.length === 0) throw toSandboxError(error, "Sandboxes cannot be listed");
    reaped.push(...known.map(({ id, name }) => ({ id, name, problem: textOf(error) })));
  }
  if (stateDir === undefined) return reaped;
  for (const { id, problem } of reaped) if (problem === null) await removeRecord(stateDir, id);
  return reaped;
}

async function problemOf(removal: Promise<void>): Promise<string | null> {
  return removal.then(
    () => null,
    (error: unknown) => textOf(error),
  );
}

interface Unasked {
  readonly record: VercelRecord;
  readonly why: string;
}

/**
 * Every server and project that a record or the variables name. A server of a record gets the token that it had then,
 * never another.
 */
function accountsOf(
  records: readonly VercelRecord[],
  env: Readonly<Record<string, string | undefined>>,
): { readonly accounts: readonly Account[]; readonly unasked: readonly Unasked[] } {
  const token = env.VERCEL_TOKEN ?? "";
  if (token === "") {
    return { accounts: [], unasked: records.map((record) => ({ record, why: "VERCEL_TOKEN is not set" })) };
  }
  const accounts: Account[] = [];
  const unasked: Unasked[] = [];
  for (const record of records) {
    const { id, baseUrl, teamId, projectId } = record;
    if (baseUrl !== null && record.tokenMark !== tokenMark(id, token)) {
      unasked.push({ record, why: "VERCEL_TOKEN is not the one that it was made with" });
    } else if (!accounts.some((account) => account.holds(record)))
      accounts.push(new Account(baseUrl, { token, teamId, projectId }));
  }
  const { VERCEL_TEAM_ID: teamId = "", VERCEL_PROJECT_ID: projectId = "" } = env;
  const own = { baseUrl: null, teamId, projectId };
  if (teamId !== "" && projectId !== "" && !accounts.some((account) => account.holds(own))) {
    accounts.push(new Account(null, { token, teamId, projectId }));
  }
  return { accounts, unasked };
}

function fromRecord({ id, name, baseUrl, createdAt, owner, keep }: VercelRecord, state: string): VercelEntry {
  return {
    id,
    description: `sandbox ${name}${at(baseUrl)} (${state})`,
    createdAt,
    owner: judgeOwner(owner, false),
    keep,
  };
}

function at(baseUrl: string | null): string {
  return baseUrl === null ? "" : ` at ${baseUrl}`;
}
