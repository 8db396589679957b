import { createHash } from "node:crypto";

/** The hash of a file's whole content in the form in which results and `expected_hash` carry it. */
export function contentHash(bytes: Uint8Array): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}
