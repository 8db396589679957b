import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { listLocal } from "../../../environments/local/list.ts";

it("listLocal() shows commands, and nothing of what we run for an environment ourselves", async () => {
  const stateDir = await mkdtemp(join(tmpdir(), "moorage-list-"));
  await using environment = createLocalEnvironment({ stateDir, workspace: stateDir });
  await environment.files.writeFile("a", "1");
  await environment.files.writeFile("a", "2");
  const shown = async () => (await listLocal({ stateDir })).map(({ processes }) => processes);
  expect(await shown()).toEqual([[]]);
  const sleep = await environment.processes.start("exec sleep 3999");
  expect(await shown()).toMatchObject([
    expect.arrayContaining([expect.objectContaining({ command: "sleep 3999" })]),
  ]);
  await sleep.kill();
  await environment.stop();
  await rm(stateDir, { recursive: true, force: true });
});
