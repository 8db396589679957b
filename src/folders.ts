/** Private folders on the host. */
import { existsSync, mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";

/**
 * Makes `path` with mode 0700, and its missing parents, one at a time: a recursive `mkdir` of Node's never ends where
 * the parent is a file system that makes no folders, as /proc is. At once: each takes microseconds, and longer to wait for.
 *
 * @throws the system's error of the first folder that cannot be made
 */
export async function makePrivateFolder(path: string): Promise<void> {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : "";
    if (code === "EEXIST" && statSync(path).isDirectory()) return;
    const parent = dirname(path);
    if (code !== "ENOENT" || parent === path) throw error;
    // One that is there by now was made by somebody else meanwhile, or makes no folders, which the next try tells.
    if (!existsSync(parent)) await makePrivateFolder(parent);
    try {
      mkdirSync(path, { mode: 0o700 });
    } catch (again) {
      if (!(again instanceof Error && "code" in again && again.code === "EEXIST")) throw again;
    }
  }
}
