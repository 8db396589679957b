/**
 * Records of the gates of this machine, a file each, by which another program can tell what a policy decided, and
 * what a killed orchestrator left is found.
 */
import { rm } from "node:fs/promises";
import { basename } from "node:path";
import { z } from "zod";
import { judgeOwner } from "../owner.ts";
import { recordsOf } from "../records.ts";
import { GATE_FOLDER } from "./door.ts";

const DecisionRecord = z.object({
  at: z.string(),
  way: z.enum(["http", "connect", "socks5"]),
  host: z.string(),
  port: z.number(),
  address: z.string().nullable(),
  allowed: z.boolean(),
  rule: z.string(),
  allowWith: z.string().nullable(),
});

const Record = z.object({
  /** Of the environment. */
  id: z.string(),
  owner: z.string(),
  policy: z.enum(["none", "allow-list"]),
  allowed: z.number(),
  denied: z.number(),
  /** The last ones, oldest first. */
  decisions: z.array(DecisionRecord),
  /** Holds the proxy's socket; null where there is none. */
  folder: z.string().nullable(),
});

export type GateRecord = z.output<typeof Record>;

export const { write: writeGate, remove: removeGate, read: readGates } = recordsOf("egress", Record);

/** Removes what gates of dead owners left. @returns the ids of their environments */
export async function sweepGates(stateDir: string): Promise<readonly string[]> {
  const dead = (await readGates(stateDir)).filter(({ owner }) => judgeOwner(owner, false) === "dead");
  for (const { id, folder } of dead) {
    if (folder !== null && basename(folder).startsWith(GATE_FOLDER))
      await rm(folder, { recursive: true, force: true });
    await removeGate(stateDir, id);
  }
  return dead.map(({ id }) => id);
}
