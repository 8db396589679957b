/** The whole suite in sandboxes with a POSIX shell, behind a policy for the network. */
import { BEHIND_A_POLICY, describeBubblewrap } from "./bubblewrap.ts";

describeBubblewrap(BEHIND_A_POLICY);
