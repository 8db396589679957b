/** Everything about processes through the shells of which the ordinary tests ask a part, and very many processes. */
import { it } from "vitest";
import { describeProcesses, surviveShortProcesses } from "./process-cases.ts";

for (const kind of ["dash", "busybox"] as const) describeProcesses(kind, "whole");

it("200 short processes leave no zombie and no descriptor (SH-43, SH-45)", () => surviveShortProcesses(20));
