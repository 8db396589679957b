/** The areas that take long are asked of this shell by the slow suite. */
import { QUICK_AREAS } from "./areas.ts";
import { describeLocal } from "./local.ts";

describeLocal("sh", QUICK_AREAS);
