import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

/** Where an executable is, on PATH or in the folders of system programs that a user's PATH leaves out; or null. */
export function findProgram(name: string): string | null {
  const folders = [...(process.env.PATH ?? "").split(delimiter), "/usr/local/sbin", "/usr/sbin", "/sbin"];
  for (const folder of folders) {
    if (folder === "") continue;
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // Not in this folder.
    }
  }
  return null;
}
