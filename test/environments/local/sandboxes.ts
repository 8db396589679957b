/** Real sandboxes for the tests of a file, each ended with its test. */
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe } from "vitest";
import type { BaseEnvironment } from "../../../environments/base.ts";
import {
  type BubblewrapOptions,
  createBubblewrapEnvironment,
} from "../../../environments/local/bubblewrap/index.ts";
import { probeBubblewrap } from "../../../environments/local/bubblewrap/probe.ts";

/** To be called once by each file, since it is the file's own tests that its hooks follow. */
export async function sandboxes(name: string) {
  const root = await realpath(await mkdtemp(join(tmpdir(), `moorage-${name}-`)));
  afterAll(() => rm(root, { recursive: true, force: true }));
  const health = await probeBubblewrap();
  const started: BaseEnvironment[] = [];
  afterEach(async () => {
    for (const environment of started.splice(0)) await environment.stop();
  });

  async function make(options: Partial<BubblewrapOptions> = {}) {
    const workspace = options.workspace ?? (await mkdtemp(join(root, "workspace-")));
    const stateDir = options.stateDir ?? (await mkdtemp(join(root, "state-")));
    const environment = createBubblewrapEnvironment({ egress: "none", ...options, workspace, stateDir });
    started.push(environment);
    const run = async (command: string) => {
      const { exitCode, output } = await environment.exec(command, { timeoutMs: 30_000 });
      return { exitCode, output: output.trim() };
    };
    return { environment, workspace, stateDir, run };
  }

  return {
    /** Holds all that the tests make. */
    root,
    isThere: health.healthy,
    suite: describe.skipIf(!health.healthy),
    /** To follow a suite's name. */
    note: health.healthy ? "" : ` (not tested: ${health.reason})`,
    make,
  };
}
