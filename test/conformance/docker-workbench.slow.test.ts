import { areasWithout, CONTAINER_AREAS } from "./areas.ts";
import { describeDocker, WORKBENCH } from "./docker.ts";

describeDocker({ ...WORKBENCH, areas: areasWithout(CONTAINER_AREAS) });
