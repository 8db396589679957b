import { areasWithout, BASH_AREAS } from "./areas.ts";
import { describeLocal } from "./local.ts";

describeLocal("bash", areasWithout(BASH_AREAS));
