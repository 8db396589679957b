/** The images that the tests of this folder run in, and how they are grouped. */
export { describe as describeWithEngine } from "vitest";

/** Nothing but BusyBox: no bash, no GNU tools. */
export const BUSYBOX_IMAGE = "moorage/busybox:latest";
/** bash, git, ripgrep, python3, node and the usual tools. */
export const WORKBENCH_IMAGE = "moorage/workbench:latest";
