/** What takes long with bash, and the whole suite with dash, which also runs the commands. */
import { areasWithout, WAY_AREAS } from "../../conformance/areas.ts";
import { BASH, DASH, describePlaces } from "./suite.ts";

await describePlaces([{ ...BASH, areas: areasWithout(WAY_AREAS) }, DASH]);
