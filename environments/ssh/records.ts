/**
 * Records of the environments on other machines and their owners, so that what a killed orchestrator left running
 * there is found and ended by the next one.
 */
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { judgeOwner, ownerLabel } from "../owner.ts";

const Record = z.object({
  id: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/),
  owner: z.string(),
  host: z.string(),
  user: z.string().nullable(),
  port: z.number().nullable(),
  workspace: z.string(),
  createdAt: z.string(),
  keep: z.boolean(),
});

export type SshRecord = z.output<typeof Record>;

function folder(stateDir: string): string {
  return join(stateDir, "ssh");
}

export async function writeRecord(stateDir: string, record: Omit<SshRecord, "owner">): Promise<void> {
  await mkdir(folder(stateDir), { recursive: true, mode: 0o700 });
  const path = join(folder(stateDir), `${record.id}.json`);
  const temporary = `${path}.${process.pid}.tmp`;
  await writeFile(temporary, JSON.stringify({ ...record, owner: ownerLabel() }), { mode: 0o600 });
  await rename(temporary, path);
}

export async function removeRecord(stateDir: string, id: string): Promise<void> {
  await rm(join(folder(stateDir), `${id}.json`), { force: true });
}

/** All records; one that cannot be read is no record. */
export async function readRecords(stateDir: string): Promise<readonly SshRecord[]> {
  let names: string[];
  try {
    names = await readdir(folder(stateDir));
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return [];
    throw error;
  }
  const records: SshRecord[] = [];
  for (const name of names.filter((candidate) => candidate.endsWith(".json"))) {
    try {
      records.push(Record.parse(JSON.parse(await readFile(join(folder(stateDir), name), "utf8"))));
    } catch {
      // Half a record, or one that another orchestrator has just removed.
    }
  }
  return records;
}

/** Records whose owner is gone for certain and that were not meant to stay. */
export async function readOrphans(stateDir: string): Promise<readonly SshRecord[]> {
  return (await readRecords(stateDir)).filter(
    ({ owner, keep }) => !keep && judgeOwner(owner, false) === "dead",
  );
}
