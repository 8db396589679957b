/**
 * Programs of this machine that work for us outside of every environment. They are looked for where no command of an
 * environment can put one: a folder of the search path that lies in a workspace, as `node_modules/.bin` does under npm,
 * would have us run whatever commands leave there.
 */
import { accessSync, constants, realpathSync, statSync } from "node:fs";
import { isAbsolute, join } from "node:path";

/**
 * @param exposed folders of this machine that commands of an environment can write to
 * @returns its absolute path; null when there is none
 */
export function hostProgram(name: string, exposed: readonly string[]): string | null {
  const closed = exposed.map(realPath);
  const isExposed = (path: string) =>
    closed.some((folder) => path === folder || path.startsWith(folder === "/" ? folder : `${folder}/`));
  for (const folder of (process.env.PATH ?? "").split(":")) {
    if (!isAbsolute(folder)) continue;
    const path = join(folder, name);
    if (isProgram(path) && !isExposed(realPath(folder)) && !isExposed(realPath(path))) return path;
  }
  return null;
}

function isProgram(path: string): boolean {
  try {
    // Most folders have none of that name, and an error takes longer than the question.
    if (statSync(path, { throwIfNoEntry: false })?.isFile() !== true) return false;
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    // It is not for this user.
    return false;
  }
}

function realPath(path: string): string {
  try {
    return realpathSync.native(path);
  } catch {
    // What is not there leads nowhere.
    return path;
  }
}
