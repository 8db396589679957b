/** Records of the environments on other machines. */
import { z } from "zod";
import { judgeOwner } from "../owner.ts";
import { recordsOf } from "../records.ts";

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

export const { write: writeRecord, remove: removeRecord, read: readRecords } = recordsOf("ssh", Record);

/**
 * Records whose owner is gone for certain and that were not meant to stay.
 *
 * @param kept ids of those that were, and are to go all the same
 */
export async function readOrphans(
  stateDir: string,
  kept: readonly string[] = [],
): Promise<readonly SshRecord[]> {
  return (await readRecords(stateDir)).filter(
    ({ id, owner, keep }) => (!keep || kept.includes(id)) && judgeOwner(owner, false) === "dead",
  );
}
