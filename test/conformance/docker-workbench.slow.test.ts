/** What takes long, and under the filter of system calls that a container with a policy has. */
import { areasWithout, CONTAINER_AREAS } from "./areas.ts";
import { describeDocker, WORKBENCH } from "./docker.ts";

describeDocker({ ...WORKBENCH, egress: "none", areas: areasWithout(CONTAINER_AREAS) });
