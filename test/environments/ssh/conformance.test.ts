/** The suite on OpenSSH with bash, but for what takes long. */
import { QUICK_AREAS } from "../../conformance/areas.ts";
import { BASH, describePlace } from "./suite.ts";

await describePlace({ ...BASH, areas: QUICK_AREAS });
