/** The suite on OpenSSH with bash, but for what takes long. */
import { WAY_AREAS } from "../../conformance/areas.ts";
import { BASH, describePlaces } from "./suite.ts";

await describePlaces([{ ...BASH, areas: WAY_AREAS }]);
