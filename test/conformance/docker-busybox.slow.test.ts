import { areasWithout, SHELL_AREAS } from "./areas.ts";
import { BUSYBOX, describeDocker } from "./docker.ts";

describeDocker({ ...BUSYBOX, areas: areasWithout(SHELL_AREAS) });
