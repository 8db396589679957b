/** Mirrors and checkpoints on this machine and on one over SSH. */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { makeWorkspacePlace } from "../ssh/places.ts";
import { canRun, sshdObstacle } from "../ssh/sshd.ts";
import { describeFolders } from "./folder-cases.ts";

const base = mkdtempSync(join(tmpdir(), "moorage-places-"));
afterAll(() => rmSync(base, { recursive: true, force: true }));

for (const shell of ["bash", "sh"] as const) {
  describeFolders({
    name: `a local ${shell}`,
    isOrdinary: shell === "bash",
    create: async () => {
      const workspace = join(base, shell);
      mkdirSync(workspace);
      return createLocalEnvironment({ workspace, stateDir: `${workspace}-state`, shell });
    },
  });
}

if (canRun("folders over ssh", sshdObstacle())) {
  describeFolders({
    name: "ssh",
    isOrdinary: false,
    create: makeWorkspacePlace,
  });
}
