/**
 * Records of the environments on this machine and their owners, so that what a killed orchestrator left running is
 * found and ended by the next one.
 */
import { readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { makePrivateFolder } from "../../src/folders.ts";
import { judgeOwner, ownerLabel } from "../owner.ts";

const Record = z.object({
  id: z.string(),
  owner: z.string(),
  workspace: z.string(),
  createdAt: z.string(),
  keep: z.boolean(),
  /** Folders of a sandbox's own on the host. */
  folders: z.array(z.string()).default([]),
  /** What a sandbox made in its workspace to hold the place of protected parts. */
  placeholders: z.array(z.string()).default([]),
});

export type LocalRecord = z.output<typeof Record>;

function folder(stateDir: string): string {
  return join(stateDir, "local");
}

export async function writeRecord(
  stateDir: string,
  record: Omit<z.input<typeof Record>, "owner">,
): Promise<void> {
  await makePrivateFolder(folder(stateDir));
  const path = join(folder(stateDir), `${record.id}.json`);
  const temporary = `${path}.${process.pid}.tmp`;
  await writeFile(temporary, JSON.stringify({ ...record, owner: ownerLabel() }), { mode: 0o600 });
  await rename(temporary, path);
}

export async function removeRecord(stateDir: string, id: string): Promise<void> {
  await rm(join(folder(stateDir), `${id}.json`), { force: true });
}

/** All records; one that cannot be read is no record. */
export async function readRecords(stateDir: string): Promise<readonly LocalRecord[]> {
  let names: string[];
  try {
    names = await readdir(folder(stateDir));
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return [];
    throw error;
  }
  const records: LocalRecord[] = [];
  for (const name of names.filter((candidate) => candidate.endsWith(".json"))) {
    try {
      records.push(Record.parse(JSON.parse(await readFile(join(folder(stateDir), name), "utf8"))));
    } catch {
      // Half a record, or one that another orchestrator has just removed.
    }
  }
  return records;
}

/** Whether the process that owns a record is gone for certain. */
export function isOrphan(record: LocalRecord): boolean {
  return judgeOwner(record.owner, false) === "dead";
}
