import { it } from "vitest";
import {
  describeBounds,
  describeJoinedWaits,
  describeProcesses,
  surviveShortProcesses,
} from "./process-cases.ts";

describeProcesses("bash", "whole");
// All of it is asked by the slow tests.
for (const kind of ["dash", "busybox"] as const) describeProcesses(kind, "shell");
for (const kind of ["bash", "dash", "busybox"] as const) describeJoinedWaits(kind);

describeBounds();
it("30 short processes leave no zombie and no descriptor (SH-43, SH-45)", () => surviveShortProcesses(3));
