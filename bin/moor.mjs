/**
 * First module of the command: plain JavaScript, so that everything after it, with its types stripped, comes out of
 * Node's compile cache.
 */
import { existsSync, mkdirSync } from "node:fs";
import { enableCompileCache } from "node:module";
import { homedir, userInfo } from "node:os";
import { isAbsolute, join } from "node:path";
import { fileURLToPath } from "node:url";

cacheCode();
const { main } = await import("../src/cli/main.ts").catch(explainMissing);
await main(process.argv.slice(2));

/** A checkout without its packages is told as such; anything else is a fault. */
function explainMissing(error) {
  const [, name] = /Cannot find package '([^']+)'/.exec(error.message) ?? [];
  if (error.code !== "ERR_MODULE_NOT_FOUND" || name === undefined) throw error;
  const root = fileURLToPath(new URL("..", import.meta.url));
  process.stderr.write(`moor: ENVIRONMENT_UNAVAILABLE: Cannot start: package "${name}" is not installed\n`);
  process.stderr.write(`Run \`npm install\` in ${root}.\n`);
  process.exit(125);
}

/**
 * The folder is the user's own: code from a shared one, or from one relative to the current folder, could be anybody's.
 * Without it all works, a bit later.
 * One folder at a time: a recursive mkdir never ends where the parent is a file system that makes no folders (/proc).
 */
function cacheCode() {
  try {
    const named = process.env.XDG_CACHE_HOME ?? "";
    const home = isAbsolute(homedir()) ? homedir() : userInfo().homedir;
    let folder = isAbsolute(named) ? named : join(home, ".cache");
    for (const name of ["moorage", "code"]) {
      if (!existsSync(folder)) mkdirSync(folder, { mode: 0o700 });
      folder = join(folder, name);
    }
    enableCompileCache(folder);
  } catch {
    // A read-only home only costs the time.
  }
}
