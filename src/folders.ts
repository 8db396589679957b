/** Folders of the host: the user's home, and private ones. */
import { existsSync, mkdirSync, statSync } from "node:fs";
import { homedir, userInfo } from "node:os";
import { dirname, isAbsolute } from "node:path";

/**
 * The user's home: `$HOME`, or what the system knows where that is empty or no absolute path. It is never relative to
 * the current folder, whose files may be anybody's.
 *
 * @returns `/` for a user whom the system does not know
 */
export function homeFolder(): string {
  try {
    const home = homedir();
    return isAbsolute(home) ? home : userInfo().homedir;
  } catch {
    // No such user: a container's, given by number.
    return "/";
  }
}

/**
 * Makes `path` with mode 0700, and its missing parents, one at a time: a recursive `mkdir` of Node's never ends where
 * the parent is a file system that makes no folders, as /proc is. At once: each takes microseconds, and longer to wait for.
 *
 * @throws the system's error of the first folder that cannot be made
 */
export async function makePrivateFolder(path: string): Promise<void> {
  try {
    // It mostly is there, and an error takes longer than the question.
    if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return;
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
