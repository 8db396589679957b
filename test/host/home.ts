import { mkdtempSync, rmSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Variables of tests, with an empty home: what a person's login shell does (and how long it takes) is theirs, and no
 * test depends on it. Caches stay where they are, and so do the settings that lead to an engine and to packages.
 *
 * The folder lasts as long as this process.
 */
export function emptyHome(): Record<string, string> {
  const home = mkdtempSync(join(tmpdir(), "moorage-home-"));
  process.once("exit", () => rmSync(home, { recursive: true, force: true }));
  const theirs = (name: string, file: string) => process.env[name] ?? join(homedir(), file);
  return {
    HOME: home,
    XDG_CACHE_HOME: theirs("XDG_CACHE_HOME", ".cache"),
    DOCKER_CONFIG: theirs("DOCKER_CONFIG", ".docker"),
    npm_config_cache: theirs("npm_config_cache", ".npm"),
    npm_config_userconfig: theirs("npm_config_userconfig", ".npmrc"),
  };
}
