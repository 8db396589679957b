import { areasWithout } from "./areas.ts";
import { describeDocker, ENGINE_AREAS, WORKBENCH } from "./docker.ts";

describeDocker({ ...WORKBENCH, areas: areasWithout(ENGINE_AREAS) });
