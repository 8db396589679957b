import { areasWithout, SHELL_AREAS } from "./areas.ts";
import { describeLocal } from "./local.ts";

describeLocal("sh", areasWithout(SHELL_AREAS));
