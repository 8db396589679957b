/** Files through the other shells. */
import { describeFiles } from "./file-cases.ts";

for (const kind of ["dash", "busybox"] as const) describeFiles(kind);
