/**
 * What a session keeps between calls, as data: each call gets it handed in and gives the next one back, so any
 * shell of the environment can run any session's next call. Strings hold one byte a character (latin1).
 */
import { limits } from "../../src/limits.ts";

export interface ShellState {
  /** Absolute. */
  readonly cwd: string;
  readonly oldCwd: string | null;
  /** Difference to the variables that a fresh shell has; null means unset. */
  readonly variables: ReadonlyMap<string, string | null>;
  /** Function definitions as bash prints them, empty when there are none. */
  readonly functions: string;
  /** Names of functions that are exported. */
  readonly exportedFunctions: readonly string[];
  /** Aliases of bash by name. */
  readonly aliases: ReadonlyMap<string, string>;
}

/** Variables that belong to one shell process, or that we set. */
const OWN = new Set([
  "PWD",
  "OLDPWD",
  "SHLVL",
  "_",
  "SHELLOPTS",
  "BASHOPTS",
  "BASH_ARGV0",
  "BASHPID",
  // Read-only in bash: to set them would end the shell.
  "UID",
  "EUID",
  "PPID",
  "BASH_VERSINFO",
]);

/** Value that marks the POSIXLY_CORRECT that our own epilogue sets; see script.ts. */
export const POSIX_SENTINEL = "moorage";

export function isKeptVariable(name: string): boolean {
  return !OWN.has(name) && !name.startsWith("__moor_") && !name.startsWith("MOORAGE_WORKER");
}

/** Whether a caller may set a variable for one call: another environment inside this one marks its processes too. */
export function isSettableVariable(name: string): boolean {
  return isKeptVariable(name) || name.startsWith("MOORAGE_WORKER_");
}

/** The difference that turns `base` into `current`. */
export function difference(
  base: ReadonlyMap<string, string>,
  current: ReadonlyMap<string, string>,
): Map<string, string | null> {
  const changed = new Map<string, string | null>();
  for (const [name, value] of current) {
    if (isKeptVariable(name) && base.get(name) !== value) changed.set(name, value);
  }
  for (const name of base.keys()) {
    if (isKeptVariable(name) && !current.has(name)) changed.set(name, null);
  }
  return changed;
}

/** Names of variables too long for the kernel to hand to an external program. */
export function oversizedVariables(variables: ReadonlyMap<string, string | null>): string[] {
  return [...variables]
    .filter(([name, value]) => value !== null && name.length + 1 + value.length >= limits.envEntryMaxBytes)
    .map(([name]) => name);
}

/** UTF-8 text as one byte a character. */
export function toBytes(text: string): string {
  return Buffer.from(text, "utf8").toString("latin1");
}

/** One byte a character as UTF-8 text, for people. */
export function fromBytes(bytes: string): string {
  return Buffer.from(bytes, "latin1").toString("utf8");
}

/** A session's state that has only a folder. */
export function emptyState(
  cwd: string,
  variables: ReadonlyMap<string, string | null> = new Map(),
): ShellState {
  return { cwd, oldCwd: null, variables, functions: "", exportedFunctions: [], aliases: new Map() };
}
