/** This machine's bash. Its processes, files and trees have tests of their own; the suite's are asked by the slow one. */
import { BASH_AREAS } from "./areas.ts";
import { describeLocal } from "./local.ts";

describeLocal("bash", BASH_AREAS);
