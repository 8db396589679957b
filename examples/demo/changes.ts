/** What differs between two folders, as one unified diff. */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { createTwoFilesPatch } from "diff";

/** @returns one patch for each file that differs, in order of path */
export async function changesBetween(before: string, after: string): Promise<readonly string[]> {
  const paths = new Set([...(await filesOf(before)), ...(await filesOf(after))]);
  const patches: string[] = [];
  for (const path of [...paths].sort()) {
    const [old, fresh] = await Promise.all([textOf(join(before, path)), textOf(join(after, path))]);
    if (old === fresh) continue;
    patches.push(createTwoFilesPatch(`a/${path}`, `b/${path}`, old, fresh, "", "", { context: 1 }));
  }
  return patches;
}

async function filesOf(folder: string): Promise<readonly string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1));
}

/** A file that is missing on one side is empty there. */
async function textOf(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    // Errors of the file system carry a code.
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return "";
    throw error;
  }
}
