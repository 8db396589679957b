/** Mirrors and checkpoints in containers: one with GNU programs, one with BusyBox alone. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { createDockerEnvironment } from "../../../environments/docker/index.ts";
import { BUSYBOX_IMAGE, describeWithEngine, WORKBENCH_IMAGE } from "../../host/images.ts";
import { describeFolders } from "./folder-cases.ts";

const stateDir = mkdtempSync(join(tmpdir(), "moorage-folders-docker-"));
afterAll(() => rmSync(stateDir, { recursive: true, force: true }));

describeWithEngine("containers", () => {
  for (const image of [WORKBENCH_IMAGE, BUSYBOX_IMAGE]) {
    describeFolders({
      name: image,
      isOrdinary: image === BUSYBOX_IMAGE,
      create: async () => createDockerEnvironment({ image, stateDir }),
    });
  }
});
