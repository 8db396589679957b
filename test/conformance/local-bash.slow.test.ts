import { areasWithout, ORDINARY_AREAS } from "./areas.ts";
import { describeLocal } from "./local.ts";

describeLocal("bash", areasWithout(ORDINARY_AREAS));
