/** Processes through the shells that are asked by the slow tests alone, at their bounds, and very many of them. */
import { it } from "vitest";
import {
  describeBounds,
  describeJoinedWaits,
  describeProcesses,
  surviveShortProcesses,
} from "./process-cases.ts";

for (const kind of ["dash", "busybox"] as const) describeProcesses(kind);
for (const kind of ["bash", "dash", "busybox"] as const) describeJoinedWaits(kind);

describeBounds();

it("200 short processes leave no zombie and no descriptor (SH-43, SH-45)", () => surviveShortProcesses(20));
