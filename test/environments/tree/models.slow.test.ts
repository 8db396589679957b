/** Long random histories of a two-way mirror and of checkpoints; short ones of mirrors run with the other cases. */
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import type { BaseEnvironment } from "../../../environments/base.ts";
import { createDockerBackend, createDockerEnvironment } from "../../../environments/docker/index.ts";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { BUSYBOX_IMAGE, WORKBENCH_IMAGE } from "../../host/images.ts";
import { makeWorkspacePlace } from "../ssh/places.ts";
import { canRun, sshdObstacle } from "../ssh/sshd.ts";
import { checkCheckpointModel } from "./checkpoint-model.ts";
import { checkSyncModel } from "./sync-model.ts";

const OPERATIONS = 200;

const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-models-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let count = 0;
const folder = () => {
  count += 1;
  const path = join(base, String(count));
  mkdirSync(path);
  return path;
};

/** @param create makes a place of its own, with an empty workspace */
function describeModels(
  name: string,
  create: () => Promise<BaseEnvironment>,
  seeds: { readonly sync: readonly number[]; readonly checkpoints: readonly number[] },
): void {
  describe(name, () => {
    it.each(seeds.sync)("mirror() loses no edit in random operations of seed %i", async (seed) => {
      await using environment = await create();
      await checkSyncModel(environment, folder(), folder(), { seed, operations: OPERATIONS });
    });

    it.each(seeds.checkpoints)(
      "restores any earlier moment exactly, random changes of seed %i",
      async (seed) => {
        await using environment = await create();
        await checkCheckpointModel(environment, folder(), { seed, operations: OPERATIONS });
      },
    );
  });
}

describeModels(
  "this machine",
  async () => createLocalEnvironment({ workspace: folder(), stateDir: folder() }),
  { sync: [1, 2, 3], checkpoints: [1, 2, 3] },
);

for (const [image, seed] of [
  [WORKBENCH_IMAGE, 4],
  [BUSYBOX_IMAGE, 5],
] as const) {
  const health = await createDockerBackend({ image, pull: "never" }).health();
  if (health.healthy) {
    describeModels(
      `a container of ${image}`,
      async () => createDockerEnvironment({ image, stateDir: folder() }),
      { sync: [seed], checkpoints: [seed] },
    );
  } else it.skip(`containers of ${image} (not tested: ${health.reason})`, () => expect.unreachable());
}

if (canRun("models over ssh", sshdObstacle())) {
  describeModels("ssh", makeWorkspacePlace, { sync: [6], checkpoints: [6] });
}
