import { LONG_AREAS } from "./areas.ts";
import { BUSYBOX, describeDocker } from "./docker.ts";

describeDocker({ ...BUSYBOX, areas: LONG_AREAS });
