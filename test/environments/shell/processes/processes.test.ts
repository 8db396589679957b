/** Processes of bash; through the other shells, in number and at their bounds they are a part of the slow tests. */
import { describeProcesses } from "./process-cases.ts";

describeProcesses("bash");
