/** Everything about files, through every shell. */
import { describeFiles } from "./file-cases.ts";

for (const kind of ["bash", "dash", "busybox"] as const) describeFiles(kind, "whole");
