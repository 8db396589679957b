/** Everything about files through the shells of which the ordinary tests ask a part. */
import { describeFiles } from "./file-cases.ts";

for (const kind of ["dash", "busybox"] as const) describeFiles(kind, "whole");
