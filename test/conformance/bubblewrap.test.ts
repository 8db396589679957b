/** What a sandbox and its policy could touch; the slow suites ask the rest. */
import { WAY_AREAS } from "./areas.ts";
import { BEHIND_A_POLICY, describeBubblewrap, PLAIN } from "./bubblewrap.ts";

describeBubblewrap({ ...PLAIN, areas: WAY_AREAS });
describeBubblewrap({ ...BEHIND_A_POLICY, areas: ["argv", "lifecycle", "health"] });
