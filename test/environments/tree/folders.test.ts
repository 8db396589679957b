/** Mirrors and checkpoints on this machine and on one over SSH. */
import { chownSync, mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { makePlace } from "../ssh/places.ts";
import { canRun, sshdObstacle } from "../ssh/sshd.ts";
import { describeFolders } from "./folder-cases.ts";

const base = mkdtempSync(join(tmpdir(), "moorage-places-"));
afterAll(() => rmSync(base, { recursive: true, force: true }));

for (const shell of ["bash", "sh"] as const) {
  describeFolders({
    name: `a local ${shell}`,
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
    create: async () => {
      const place = await makePlace();
      const { home } = place.account;
      const workspace = join(home, "work");
      mkdirSync(workspace);
      const { uid, gid } = statSync(home);
      chownSync(workspace, uid, gid);
      return Object.assign(place.make({ workspace }), {
        [Symbol.asyncDispose]: () => place[Symbol.asyncDispose](),
      });
    },
  });
}
