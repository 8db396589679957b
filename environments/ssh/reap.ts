/** Which environments have a record here, and the end of what those of dead owners left running on their hosts. */
import { judgeOwner, type OwnerState } from "../owner.ts";
import { SshBackend } from "./backend.ts";
import { readOrphans, readRecords, type SshRecord } from "./records.ts";
import type { SshOptions } from "./settings.ts";

export interface SshEntry {
  readonly id: string;
  /** `user@host:port`, as it was asked for. */
  readonly description: string;
  readonly workspace: string;
  /** ISO 8601. */
  readonly createdAt: string;
  readonly owner: OwnerState;
  readonly keep: boolean;
}

/** Environments of every owner, oldest first. No host is asked. */
export async function listSsh(options: { readonly stateDir: string }): Promise<readonly SshEntry[]> {
  return (await readRecords(options.stateDir))
    .map((record) => ({
      id: record.id,
      description: target(record),
      workspace: record.workspace,
      createdAt: record.createdAt,
      owner: judgeOwner(record.owner, false),
      keep: record.keep,
    }))
    .sort((a, b) => (a.createdAt < b.createdAt ? -1 : 1));
}

export interface ReapedSsh {
  readonly id: string;
  readonly description: string;
  /** Why it could not be done; null when nothing is left. */
  readonly problem: string | null;
}

export interface ReapOptions {
  readonly stateDir: string;
  /** Ids of environments that were to be kept, to be removed as well when their owner is dead. @default none */
  readonly kept?: readonly string[];
}

/**
 * Connects to the host of each orphan and ends its processes.
 *
 * @param connection how to connect, beside what the records name
 */
export async function reapSsh(
  { stateDir, kept = [] }: ReapOptions,
  connection: Omit<SshOptions, "host" | "user" | "port" | "workspace"> = {},
): Promise<readonly ReapedSsh[]> {
  const reaped: ReapedSsh[] = [];
  for (const record of await readOrphans(stateDir, kept)) {
    const { id, host, user, port } = record;
    let problem: string | null = null;
    const backend = new SshBackend({ ...connection, host, user, port }, { stateDir, endKept: kept });
    try {
      // A start ends what the orphans of that host left.
      await backend.start(() => {});
    } catch (error) {
      problem = error instanceof Error ? error.message : String(error);
    } finally {
      await backend.stop({ keep: false });
    }
    reaped.push({ id, description: target(record), problem });
  }
  return reaped;
}

function target({ host, user, port }: SshRecord): string {
  return `${user === null ? "" : `${user}@`}${host}${port === null ? "" : `:${port}`}`;
}
