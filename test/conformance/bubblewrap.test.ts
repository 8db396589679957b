/** The whole suite in sandboxes with bash and the host's network, and behind a policy what a policy could touch. */
import { BEHIND_A_POLICY, describeBubblewrap } from "./bubblewrap.ts";

describeBubblewrap({ name: "bubblewrap bash, egress open", shell: "bash", egress: "open" });
// All of them are asked by the slow suite.
describeBubblewrap({ ...BEHIND_A_POLICY, areas: ["argv", "lifecycle", "health"] });
