/** Growth of memory while a command writes 1 GiB. Each is taken in a process of its own, so that nothing else grows. */
import {
  dockerEnvironment,
  dockerObstacle,
  expectEqual,
  localEnvironment,
  temporaryFolder,
} from "./environments.ts";
import { amountInChild, type Figure, peakGrowth } from "./measure.ts";

const FLOOD_BYTES = 1024 ** 3;

type Place = "local" | "docker";

export const figures: readonly Figure[] = [
  {
    name: "local-flood-memory",
    goal: 64,
    unit: "MiB",
    measure: () => amountInChild(import.meta.filename, "local"),
  },
  {
    name: "docker-flood-memory",
    goal: 64,
    unit: "MiB",
    obstacle: dockerObstacle,
    measure: () => amountInChild(import.meta.filename, "docker"),
  },
];

/** @returns MiB by which the resident memory grew at most */
async function flood(place: Place): Promise<number> {
  await using folder = await temporaryFolder();
  await using environment =
    place === "local" ? localEnvironment(folder.path) : dockerEnvironment(folder.path);
  await using session = await environment.openSession();
  // Code and buffers of ordinary work are there before it counts.
  for (let index = 0; index < 20; index += 1) await session.exec("head -c 300000 /dev/zero | tr '\\0' x");
  return await peakGrowth(async () => {
    const result = await session.exec(
      `yes 'a line of output, sixty-four bytes long, like those of a build.' | head -c ${FLOOD_BYTES}`,
    );
    expectEqual(result.exitCode, 0);
    expectEqual(result.truncated.output?.totalBytes, FLOOD_BYTES);
  });
}

const [, main, place] = process.argv;
if (main === import.meta.filename && (place === "local" || place === "docker"))
  process.send?.(await flood(place));
