/**
 * Records of environments and their owners, a file each in the state folder, so that what a killed orchestrator left
 * running is found and ended by the next one. They are small and on the way of every start, so they are read and
 * written at once: each call takes microseconds, and longer to wait for.
 */
import { readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { z } from "zod";
import { toMoorageError, unusableRecords } from "../src/errors.ts";
import { makePrivateFolder } from "../src/folders.ts";
import { ownerLabel } from "./owner.ts";

const CLOSED: ReadonlySet<string> = new Set(["EACCES", "EPERM", "EROFS"]);

/** The records of one backend. */
export interface Records<Schema extends z.ZodObject> {
  /**
   * Writes a record whole or not at all; its owner is the present process.
   * @throws {MoorageError} STORAGE_FULL, INVALID_CONFIG, INTERNAL
   */
  write(stateDir: string, record: Omit<z.input<Schema>, "owner"> & { readonly id: string }): Promise<void>;
  remove(stateDir: string, id: string): Promise<void>;
  /** All records; one that cannot be read is no record. */
  read(stateDir: string): Promise<readonly z.output<Schema>[]>;
}

/** @param backend name of the folder below the state folder */
export function recordsOf<Schema extends z.ZodObject>(backend: string, schema: Schema): Records<Schema> {
  const pathOf = (stateDir: string, id: string) => join(stateDir, backend, `${id}.json`);
  return {
    write: async (stateDir, record) => {
      await makePrivateFolder(join(stateDir, backend));
      const path = pathOf(stateDir, record.id);
      const temporary = `${path}.${process.pid}.tmp`;
      try {
        writeFileSync(temporary, JSON.stringify({ ...record, owner: ownerLabel() }), { mode: 0o600 });
        renameSync(temporary, path);
      } catch (error) {
        // The first failure is the one to tell.
        await rm(temporary, { force: true }).catch(() => {});
        if (error instanceof Error && "code" in error && CLOSED.has(String(error.code)))
          throw unusableRecords(error.message, error);
        throw toMoorageError(error, "INTERNAL", `Cannot write "${path}"`);
      }
    },
    remove: (stateDir, id) => rm(pathOf(stateDir, id), { force: true }),
    read: async (stateDir) => {
      const folder = join(stateDir, backend);
      let names: string[];
      try {
        names = readdirSync(folder);
      } catch (error) {
        if (error instanceof Error && "code" in error && error.code === "ENOENT") return [];
        throw error;
      }
      const records: z.output<Schema>[] = [];
      for (const name of names.filter((candidate) => candidate.endsWith(".json"))) {
        try {
          records.push(schema.parse(JSON.parse(readFileSync(join(folder, name), "utf8"))));
        } catch {
          // Half a record, or one that another orchestrator has just removed.
        }
      }
      return records;
    },
  };
}
