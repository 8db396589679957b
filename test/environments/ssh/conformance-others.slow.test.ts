/** The whole suite with login shells that are no POSIX shells, and on a small server without sftp. */
import { DROPBEAR, describePlaces, FISH, TCSH } from "./suite.ts";

await describePlaces([FISH, TCSH, DROPBEAR]);
