/** What a login shell's variables add to those that a backend starts programs with. */
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { difference } from "./state.ts";

/**
 * Folders that the backend put on PATH (an image's ENV, an activated virtual environment) stay in front; a login
 * shell's profile often sets PATH anew and would lose them.
 */
export function mergePath(own: string, login: string): string {
  const known = new Set(login.split(":"));
  const kept = own.split(":").filter((folder) => folder !== "" && !known.has(folder));
  const first = own.split(":")[0];
  const merged = [...kept, ...login.split(":").filter((folder) => folder !== "")];
  // What came first stays first, even where the profile names it further back.
  return first && merged[0] !== first && !isSystemFolder(first)
    ? [first, ...merged.filter((folder) => folder !== first)].join(":")
    : merged.join(":");
}

function isSystemFolder(folder: string): boolean {
  return /^(?:\/usr(?:\/local)?)?\/s?bin$/.test(folder);
}

/** The difference between a fresh shell and a login, as a session starts with it. */
export function loginDifference(
  own: ReadonlyMap<string, string>,
  login: ReadonlyMap<string, string> | null,
): Map<string, string | null> {
  if (!login) return new Map();
  const merged = new Map([...own, ...login]);
  const ownPath = own.get("PATH");
  const loginPath = login.get("PATH");
  if (ownPath && loginPath) merged.set("PATH", mergePath(ownPath, loginPath));
  return difference(own, merged);
}

/** What a result says when there are none of its variables. */
export function loginProblem(error: Error): string {
  return `The login shell's variables could not be read (${error.message}); commands run without them`;
}

/**
 * Opens a shell that reads a login's variables where they are wanted, else or then without: a profile that hangs or
 * replaces the shell must not keep the environment from starting.
 *
 * @throws what `open` throws
 */
export async function openWithLogin<Opened>(
  login: boolean,
  open: (login: boolean, timeoutMs: number) => Promise<Opened>,
): Promise<Opened & { readonly loginProblem: string | null }> {
  if (!login) return { ...(await open(false, limits.openTimeoutMs)), loginProblem: null };
  try {
    return { ...(await open(true, limits.loginTimeoutMs)), loginProblem: null };
  } catch (error) {
    if (!(error instanceof MoorageError) || error.details.phase !== "hello") throw error;
    return { ...(await open(false, limits.openTimeoutMs)), loginProblem: loginProblem(error) };
  }
}
