import { LONG_AREAS } from "./areas.ts";
import { describeLocal } from "./local.ts";

describeLocal("sh", LONG_AREAS);
