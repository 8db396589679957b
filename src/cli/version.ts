import { readFileSync } from "node:fs";

/** The version of this program, as its package names it. */
export function version(): string {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  // Our own file, which always names its version.
  return (JSON.parse(text) as { version: string }).version;
}
