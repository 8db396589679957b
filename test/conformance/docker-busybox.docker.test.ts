/** The areas that take long are asked in the workbench in the ordinary run, and of BusyBox by the slow suite. */
import { SHELL_AREAS } from "./areas.ts";
import { BUSYBOX, describeDocker } from "./docker.ts";

describeDocker({ ...BUSYBOX, areas: SHELL_AREAS });
