/** An image with bash and the usual programs. What takes long and is no affair of an engine is asked by the slow suite. */
import { CONTAINER_AREAS } from "./areas.ts";
import { describeDocker, WORKBENCH } from "./docker.ts";

describeDocker({ ...WORKBENCH, areas: CONTAINER_AREAS });
