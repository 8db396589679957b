/** What the scripts under `tree` have in common. */
import { type ErrorCode, MoorageError } from "../../../src/errors.ts";
import { quote } from "../quote.ts";

/** Names for `xargs -0`, each with `./` before it so that none is an option. */
export function pathList(paths: readonly string[]): Buffer {
  return Buffer.from(paths.map((path) => `./${path}\0`).join(""), "latin1");
}

/** Goes to the root, or ends with the exit code that `rootError` reads. */
export function enterRoot(root: string): string {
  const word = quote(root);
  return `cd -P -- ${word} 2>/dev/null || { [ -e ${word} ] || exit 91; [ -d ${word} ] || exit 94; exit 92; }`;
}

/** The failure behind the exit code of a script that enters its root first. */
export function rootError(exitCode: number, verb: string, root: string, stderr: string): MoorageError {
  const fail = (code: ErrorCode, reason: string) =>
    new MoorageError(code, `Cannot ${verb} folder "${root}": ${reason}`);
  if (exitCode === 91) return fail("FILE_MISSING", "no such folder");
  if (exitCode === 92) return fail("FILE_PERMISSION", "permission denied");
  if (exitCode === 93) {
    return fail("UNSUPPORTED", "the environment lacks a program for it: xargs and stat, tar or sha256sum");
  }
  if (exitCode === 94) return fail("NOT_A_DIRECTORY", "not a directory");
  return fail("INTERNAL", stderr.trim() || `the script ended with ${exitCode}`);
}
