/** The areas that take long are asked in the workbench in the ordinary run, and of BusyBox by the slow suite. */
import { QUICK_AREAS } from "./areas.ts";
import { BUSYBOX, describeDocker } from "./docker.ts";

describeDocker({ ...BUSYBOX, areas: QUICK_AREAS });
