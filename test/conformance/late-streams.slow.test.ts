import type { Area } from "./index.ts";
import { describeCarriage } from "./late-streams.ts";

/** Those whose cases do not ask how soon something is seen. */
const AREAS: readonly Area[] = [
  "exec",
  "argv",
  "sessions",
  "state",
  "unbreakable",
  "output",
  "stdin",
  "files",
  "fileChanges",
];

describeCarriage("late errors", { stderr: "late" }, AREAS);
describeCarriage("a late output and errors in pieces", { stdout: "late", stderr: "inPieces" }, AREAS);
