/** What protected folders have of their content elsewhere: a hook is often a link to a script of the project. */
import { readdirSync, readlinkSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { inside } from "./git-parts.ts";

/** Entries that are looked at in one folder and below, and how deep. */
const ENTRIES_MAX = 2_000;
const DEPTH_MAX = 4;

/**
 * @param folder relative to the workspace
 * @returns where links in it lead to in the workspace outside of it, relative to that
 */
export function linkedFiles(workspace: string, folder: string): readonly string[] {
  const found: string[] = [];
  let looked = 0;
  const look = (path: string, depth: number): void => {
    for (const entry of entriesOf(path)) {
      looked += 1;
      if (looked > ENTRIES_MAX) return;
      const own = join(path, entry.name);
      if (entry.isDirectory() && depth < DEPTH_MAX) look(own, depth + 1);
      if (!entry.isSymbolicLink()) continue;
      const target = inside(workspace, resolve(dirname(own), readlinkSync(own)));
      if (target !== null && target !== folder && !target.startsWith(`${folder}/`)) found.push(target);
    }
  };
  look(join(workspace, folder), 1);
  return found;
}

function entriesOf(path: string) {
  try {
    return readdirSync(path, { withFileTypes: true });
  } catch {
    // It is not there, is no folder, or is closed to this user.
    return [];
  }
}
