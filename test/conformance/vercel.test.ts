/** The suite on sandboxes that this project's own server makes of folders of this machine, through the official client. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { createVercelEnvironment } from "../../environments/vercel/index.ts";
import { CREDENTIALS, serveLocal } from "../serve/served.ts";
import { describeEnvironment } from "./index.ts";
import { VERCEL_GAPS } from "./vercel.ts";

const served = await serveLocal();
const stateDir = await mkdtemp(join(tmpdir(), "moorage-vercel-"));
afterAll(async () => {
  await served[Symbol.asyncDispose]();
  await rm(stateDir, { recursive: true, force: true });
});

describeEnvironment({
  name: "vercel",
  gaps: VERCEL_GAPS,
  create: () =>
    createVercelEnvironment({
      baseUrl: `${served.address}/api`,
      credentials: CREDENTIALS,
      stateDir,
    }),
  facts: { leftovers: async () => [...served.places] },
});
