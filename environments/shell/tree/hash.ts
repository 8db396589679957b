/** The programs by which contents are hashed inside an environment. */

/** Sets `h` to what prints SHA-256 and the name, or fails. In order of preference. */
export const HASH_PROGRAM = `if command -v sha256sum >/dev/null 2>&1; then h=sha256sum
elif command -v shasum >/dev/null 2>&1; then h='shasum -a 256'
else false; fi`;

/** Names that programs print in other words than their own: they are hashed one by one, by number. */
export const ODD_NAME = /[\n\r\\]/;

/** Reads what such a program printed of files that were named as `./path`. */
export function parseHashes(text: string): ReadonlyMap<string, string> {
  const hashes = new Map<string, string>();
  for (const line of text.split("\n")) {
    const [, sum, path] = /^([0-9a-f]{64})[ *]{2}\.\/(.*)$/s.exec(line) ?? [];
    if (sum !== undefined && path !== undefined) hashes.set(path, sum);
  }
  return hashes;
}
