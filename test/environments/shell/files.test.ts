import { describeFiles } from "./file-cases.ts";

describeFiles("bash", "most");
// All of it is asked by the slow tests.
for (const kind of ["dash", "busybox"] as const) describeFiles(kind, "shell");
