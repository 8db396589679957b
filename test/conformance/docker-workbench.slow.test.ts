import { areasWithout, ORDINARY_AREAS } from "./areas.ts";
import { describeDocker, WORKBENCH } from "./docker.ts";

describeDocker({ ...WORKBENCH, areas: areasWithout(ORDINARY_AREAS) });
