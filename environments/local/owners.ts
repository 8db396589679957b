/** Records of the environments on this machine. */
import { z } from "zod";
import { judgeOwner } from "../owner.ts";
import { recordsOf } from "../records.ts";

const Record = z.object({
  id: z.string(),
  owner: z.string(),
  workspace: z.string(),
  createdAt: z.string(),
  keep: z.boolean(),
  /** Folders of a sandbox's own on the host. */
  folders: z.array(z.string()).default([]),
  /** Of processes that were started before it, whole values of `WORKER_MARKER`. */
  marks: z.array(z.string()).default([]),
  /** What a sandbox made in its workspace to hold the place of protected parts. */
  placeholders: z.array(z.string()).default([]),
});

export type LocalRecord = z.output<typeof Record>;

export const { write: writeRecord, remove: removeRecord, read: readRecords } = recordsOf("local", Record);

/** Whether the process that owns a record is gone for certain. */
export function isOrphan(record: LocalRecord): boolean {
  return judgeOwner(record.owner, false) === "dead";
}
