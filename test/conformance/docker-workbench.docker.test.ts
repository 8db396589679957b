/** An image with bash and the usual programs. What takes long and is no affair of an engine is asked by the slow suite. */
import { describeDocker, ENGINE_AREAS, WORKBENCH } from "./docker.ts";

describeDocker({ ...WORKBENCH, areas: ENGINE_AREAS });
