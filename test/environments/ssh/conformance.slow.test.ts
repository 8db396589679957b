/** What takes long with bash, and the whole suite with dash, which also runs the commands. */
import { LONG_AREAS } from "../../conformance/areas.ts";
import { BASH, DASH, describePlace } from "./suite.ts";

await describePlace({ ...BASH, areas: LONG_AREAS });
await describePlace(DASH);
