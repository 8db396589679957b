/** The suite in containers: a file for each image, so that they run side by side. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, inject } from "vitest";
import { createDockerEnvironment, listDocker } from "../../environments/docker/index.ts";
import { type Conformance, describeEnvironment } from "./index.ts";

const engine = inject("engine");
const stateDir = await mkdtemp(join(tmpdir(), "moorage-conformance-"));
afterAll(() => rm(stateDir, { recursive: true, force: true }));

/** Registers the suite for one image, or its reason when there is no engine. */
export function describeDocker(
  options: { readonly image: string; readonly user?: string },
  gaps: NonNullable<Conformance["gaps"]> = {},
): void {
  describeEnvironment({
    name: `docker ${options.image}`,
    gaps,
    create: () => createDockerEnvironment({ ...options, stateDir }),
    ...(!engine.available && { unavailable: engine.reason }),
    facts: {
      leftovers: async ({ id }) => {
        const entries = await listDocker();
        return entries.filter(({ environment }) => environment === id).map((entry) => JSON.stringify(entry));
      },
    },
  });
}
