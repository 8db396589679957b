import { it } from "vitest";
import { describeBounds, describeProcesses, surviveShortProcesses } from "./process-cases.ts";

describeProcesses("bash", "whole");
// All of it is asked by the slow tests.
for (const kind of ["dash", "busybox"] as const) describeProcesses(kind, "shell");

describeBounds();
it("30 short processes leave no zombie and no descriptor (SH-43, SH-45)", () => surviveShortProcesses(3));
