/** The whole suite with login shells that are no POSIX shells, and on a small server without sftp. */
import { DROPBEAR, describePlace, FISH, TCSH } from "./suite.ts";

for (const place of [FISH, TCSH, DROPBEAR]) await describePlace(place);
