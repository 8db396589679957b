/** The areas that take long are asked of this shell by the slow suite. */
import { SHELL_AREAS } from "./areas.ts";
import { describeLocal } from "./local.ts";

describeLocal("sh", SHELL_AREAS);
