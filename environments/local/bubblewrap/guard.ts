/**
 * Watches what is mounted over in a sandbox. The kernel takes a mount away where a program outside puts another file in
 * the place of what it lies on, as `git config` does with its file: from then on commands would see and change the new
 * one. Nothing can be mounted into a sandbox that runs, so it is ended.
 */
import { type FSWatcher, lstatSync, watch } from "node:fs";
import { basename, dirname } from "node:path";

/** Where the machine has no watch to give, they are looked at this often, milliseconds. */
const POLL_MS = 50;

/** Of a file or folder itself, whatever its content. */
function identity(path: string): string {
  try {
    const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false });
    return stat === undefined ? "missing" : `${stat.dev}:${stat.ino}`;
  } catch {
    // Its folder is closed to this user by now, or a link that leads nowhere.
    return "out of reach";
  }
}

/**
 * @param paths that are there; nothing else is watched
 * @param onReplaced called once, for the first of them that is another
 * @returns ends it
 */
export function guard(paths: readonly string[], onReplaced: (path: string) => void): () => void {
  const known = new Map(paths.map((path) => [path, identity(path)]));
  const watchers: FSWatcher[] = [];
  let timer: NodeJS.Timeout | undefined;
  const end = () => {
    clearInterval(timer);
    for (const watcher of watchers.splice(0)) watcher.close();
  };
  const look = (name: string | null) => {
    for (const [path, before] of known) {
      if ((name !== null && basename(path) !== name) || identity(path) === before) continue;
      end();
      return onReplaced(path);
    }
  };
  const poll = () => {
    timer ??= setInterval(() => look(null), POLL_MS).unref();
  };
  for (const folder of new Set(paths.map(dirname))) {
    try {
      const watcher = watch(folder, { persistent: false }, (_, name) => look(name));
      watcher.on("error", poll);
      watchers.push(watcher);
    } catch {
      // Each user has so many.
      poll();
    }
  }
  return end;
}
