/**
 * First module of the command: plain JavaScript, so that everything after it, with its types stripped, comes out of
 * Node's compile cache.
 */
import { existsSync, mkdirSync } from "node:fs";
import { enableCompileCache } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";

cacheCode();
const { main } = await import("../src/cli/main.ts");
await main(process.argv.slice(2));

/**
 * The folder is the user's own: code from a shared one could be anybody's. Without it all works, a bit later.
 * One folder at a time: a recursive mkdir never ends where the parent is a file system that makes no folders (/proc).
 */
function cacheCode() {
  try {
    let folder = process.env.XDG_CACHE_HOME || join(homedir(), ".cache");
    for (const name of ["moorage", "code"]) {
      if (!existsSync(folder)) mkdirSync(folder, { mode: 0o700 });
      folder = join(folder, name);
    }
    enableCompileCache(folder);
  } catch {
    // A read-only home only costs the time.
  }
}
