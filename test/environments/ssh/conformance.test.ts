/** The suite on OpenSSH with bash. */
import { describePlace } from "./suite.ts";

await describePlace({ name: "ssh, login shell bash", shell: "/bin/bash", server: "sshd" });
