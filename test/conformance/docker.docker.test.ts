/** The suite in containers: an image with bash and the usual programs, and one with BusyBox alone. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, inject } from "vitest";
import { createDockerEnvironment, listDocker } from "../../environments/docker/index.ts";
import { BUSYBOX_IMAGE, WORKBENCH_IMAGE } from "../host/images.ts";
import { describeEnvironment } from "./index.ts";

const engine = inject("engine");
const stateDir = await mkdtemp(join(tmpdir(), "moorage-conformance-"));
afterAll(() => rm(stateDir, { recursive: true, force: true }));

for (const image of [WORKBENCH_IMAGE, BUSYBOX_IMAGE]) {
  describeEnvironment({
    name: `docker ${image}`,
    create: () => createDockerEnvironment({ image, stateDir }),
    ...(!engine.available && { unavailable: engine.reason }),
    facts: {
      leftovers: async ({ id }) => {
        const entries = await listDocker();
        return entries.filter(({ environment }) => environment === id).map((entry) => JSON.stringify(entry));
      },
    },
  });
}
