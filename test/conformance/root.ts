/** A folder for what one file of the suite makes; removed after the file's last test, though files share a process. */
import { mkdtempSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";

/** To be called while the file's tests are registered. @returns its path */
export function temporaryRoot(): string {
  const root = mkdtempSync(join(tmpdir(), "moorage-conformance-"));
  afterAll(() => rm(root, { recursive: true, force: true }));
  return root;
}
