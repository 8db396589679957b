/** Long random histories of a two-way mirror; short ones run with the other cases on every backend. */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "vitest";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { checkSyncModel } from "./sync-model.ts";

it.each([1, 2, 3, 4])("mirror() loses no edit in 200 random operations of seed %i", async (seed) => {
  const base = mkdtempSync(join(tmpdir(), "moorage-sync-model-"));
  try {
    const [host, workspace, stateDir] = [join(base, "h"), join(base, "w"), join(base, "s")];
    for (const folder of [host, workspace]) mkdirSync(folder);
    await using environment = createLocalEnvironment({ workspace, stateDir });
    await checkSyncModel(environment, host, stateDir, { seed, operations: 200 });
  } finally {
    rmSync(base, { recursive: true, force: true });
  }
});
