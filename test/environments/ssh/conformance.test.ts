/** The suite on OpenSSH. Other login shells and servers have theirs among the slow tests. */
import { describePlace } from "./suite.ts";

await describePlace({ name: "ssh, login shell bash", shell: "/bin/bash", server: "sshd" });
