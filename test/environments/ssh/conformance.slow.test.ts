/** The whole suite with other login shells, dash of which also runs the commands, and on a small server without sftp. */
import { DASH, DROPBEAR, describePlace, FISH, TCSH } from "./suite.ts";

for (const place of [DASH, FISH, TCSH, DROPBEAR]) await describePlace(place);
