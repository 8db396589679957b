/** Growth of memory while ten thousand files and a huge one are mirrored and checkpointed, in a process of its own. */
import { mkdir, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createLocalEnvironment } from "../environments/local/index.ts";
import { mirror } from "../environments/sync/mirror.ts";
import { Checkpoints } from "../src/checkpoints/checkpoints.ts";
import { expectEqual, temporaryFolder } from "./environments.ts";
import { amountInChild, type Figure, peakGrowth } from "./measure.ts";
import { FILES, makeTree, PER_FOLDER } from "./tree.ts";

const HUGE_BYTES = 2 * 1024 ** 3;

export const figures: readonly Figure[] = [
  {
    name: "tree-memory-10000-files-and-2-gib",
    goal: 200,
    unit: "MiB",
    measure: () => amountInChild(import.meta.filename, "measure"),
  },
];

async function measure(): Promise<number> {
  await using folder = await temporaryFolder();
  const source = await makeTree(folder, FILES);
  await writeFile(join(source, "huge"), "");
  // Of nothing but zeros: it costs its reader two gibibytes, and this disk none.
  await truncate(join(source, "huge"), HUGE_BYTES);
  const workspace = join(folder.path, "ours");
  await mkdir(workspace);
  const stateDir = join(folder.path, "state");
  await using environment = createLocalEnvironment({ stateDir, workspace });
  await using checkpoints = new Checkpoints(stateDir);
  await environment.start();
  return await peakGrowth(async () => {
    const { pushed } = await mirror(source, environment, { direction: "push", stateDir });
    expectEqual(pushed.length, FILES + FILES / PER_FOLDER + 1);
    expectEqual((await checkpoints.create(environment)).skipped.length, 1);
  });
}

const [, main, word] = process.argv;
if (main === import.meta.filename && word === "measure") process.send?.(await measure());
