/** The start of the command, against the start of Node itself. */
import { join } from "node:path";
import { expectEqual, run } from "./environments.ts";
import { type Figure, paired } from "./measure.ts";

const MOOR = join(import.meta.dirname, "..", "bin", "moor");

export const figures: readonly Figure[] = [
  {
    name: "cli-version-vs-node",
    goal: 2,
    unit: "ms",
    measure: () =>
      paired(
        { run: async () => expectEqual(/^\S*\d+\.\d+\.\d+/.test(await run(MOOR, "--version")), true) },
        { run: async () => expectEqual(await run(process.execPath, "-e", "0"), "") },
        20,
      ),
  },
];
