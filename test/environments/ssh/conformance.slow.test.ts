/** What takes long with bash, and the whole suite with dash, which also runs the commands. */
import { LONG_AREAS } from "../../conformance/areas.ts";
import { BASH, DASH, describePlaces } from "./suite.ts";

await describePlaces([{ ...BASH, areas: LONG_AREAS }, DASH]);
