/** The suite on OpenSSH with dash, which also runs the commands. */
import { describePlace } from "./suite.ts";

await describePlace({ name: "ssh, login shell dash", shell: "/bin/dash", server: "sshd", commands: "sh" });
