/** Where Moorage keeps its own records on the host. */
import { chmod, stat } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import { MoorageError } from "./errors.ts";
import { homeFolder, makePrivateFolder } from "./folders.ts";

type HostEnv = Readonly<Record<string, string | undefined>>;

/**
 * The state folder: `$MOORAGE_HOME`, else `moorage` in the XDG state folder. Touches nothing.
 *
 * @throws {MoorageError} INVALID_CONFIG when `$MOORAGE_HOME` is not absolute
 */
export function stateDir(env: HostEnv = process.env): string {
  const named = env.MOORAGE_HOME;
  if (named) {
    if (isAbsolute(named)) return named;
    throw new MoorageError("INVALID_CONFIG", `Cannot use MOORAGE_HOME "${named}": the path is not absolute`, {
      suggestion: "Set MOORAGE_HOME to an absolute path, or leave it out.",
    });
  }
  return join(xdgFolder(env.XDG_STATE_HOME, ".local/state"), "moorage");
}

/** The configuration file that is read when none is named: in the XDG configuration folder, never elsewhere. */
export function defaultConfigPath(env: HostEnv = process.env): string {
  return join(xdgFolder(env.XDG_CONFIG_HOME, ".config"), "moorage", "moorage.yaml");
}

/**
 * Makes the state folder with mode 0700, or takes other users' rights from the one that is there.
 *
 * @returns the folder
 * @throws {MoorageError} INVALID_CONFIG when it belongs to someone else, is no folder, or cannot be made
 */
export async function ensureStateDir(path: string): Promise<string> {
  try {
    await makePrivateFolder(path);
    const { uid, mode } = await stat(path);
    const me = process.getuid?.();
    if (me !== undefined && uid !== me) throw new Error("it belongs to another user");
    if ((mode & 0o077) !== 0) await chmod(path, 0o700);
    return path;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new MoorageError("INVALID_CONFIG", `Cannot use state folder "${path}": ${reason}`, {
      cause: error,
      suggestion: "Set MOORAGE_HOME to a folder of your own.",
    });
  }
}

/** The XDG rules: a relative value counts as not set. */
function xdgFolder(value: string | undefined, fallback: string): string {
  return value && isAbsolute(value) ? value : join(homeFolder(), fallback);
}
