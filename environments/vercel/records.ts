/** Records of sandboxes that an environment of this machine uses, so that they are found when their owner is dead. */
import { createHash } from "node:crypto";
import { z } from "zod";
import { recordsOf } from "../records.ts";

const Record = z.object({
  id: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/),
  owner: z.string(),
  /** The sandbox's. */
  name: z.string(),
  /** Null for Vercel's own server. */
  baseUrl: z.string().nullable(),
  teamId: z.string(),
  projectId: z.string(),
  /** See `tokenMark`. */
  tokenMark: z.string(),
  createdAt: z.string(),
  keep: z.boolean(),
});

export type VercelRecord = z.output<typeof Record>;

export const { write: writeRecord, remove: removeRecord, read: readRecords } = recordsOf("vercel", Record);

/** Tells later whether a token is the one that a record was made with, so that no server is sent another's. */
export function tokenMark(id: string, token: string): string {
  return createHash("sha256").update(`${id}\0${token}`).digest("hex").slice(0, 16);
}
