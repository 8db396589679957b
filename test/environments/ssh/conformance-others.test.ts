/** The heart of the suite with other login shells and a small server; all of it is among the slow tests. */
import type { Area } from "../../conformance/index.ts";
import { DROPBEAR, describePlace, FISH, TCSH } from "./suite.ts";

const areas: readonly Area[] = ["exec", "sessions", "files"];

for (const place of [FISH, TCSH, DROPBEAR]) await describePlace({ ...place, areas });
