/** Whether the SSH library has its native part, which is built when it is installed and for one version of Node. */
import { createRequire } from "node:module";

/** Deep in the library, and so asked for as what it may no longer have. */
const CRYPTO = "ssh2/lib/protocol/crypto.js";

/**
 * What a user should know of how fast transfers are.
 *
 * @param load finds a module of the library's
 * @returns null when there is nothing to tell
 */
export function nativeRemark(
  load: (name: string) => unknown = createRequire(import.meta.url),
): string | null {
  let crypto: unknown;
  try {
    crypto = load(CRYPTO);
  } catch {
    // Another release of the library, of which nothing is known.
    return null;
  }
  const lacks =
    typeof crypto === "object" &&
    crypto !== null &&
    "bindingAvailable" in crypto &&
    crypto.bindingAvailable === false;
  return lacks
    ? `ssh2 runs without its native part: large transfers are slower (npm rebuild ssh2, with Node ${process.version} first on PATH)`
    : null;
}
