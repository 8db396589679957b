/** The suite with every other login shell, and on a small server without sftp. */
import { describePlace } from "./suite.ts";

await describePlace({ name: "ssh, login shell dash", shell: "/bin/dash", server: "sshd", commands: "sh" });
await describePlace({ name: "ssh, login shell fish", shell: "/usr/bin/fish", server: "sshd" });
await describePlace({ name: "ssh, login shell tcsh", shell: "/bin/tcsh", server: "sshd" });
await describePlace({
  name: "ssh, dropbear",
  shell: "/bin/bash",
  server: "dropbear",
  gaps: {
    "/dev/stdout and /dev/stderr can be opened": "dropbear makes the pipes as root, for root alone to open",
  },
});
