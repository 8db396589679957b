/** Programs that the tests use, and the Debian packages that bring them. */
import { linkageOf } from "../../images/busybox.ts";
import { findProgram } from "../../images/find-program.ts";

interface NeededProgram {
  readonly program: string;
  /** The first one that apt knows is taken: releases differ. */
  readonly packages: readonly string[];
}

const NEEDED: readonly NeededProgram[] = [
  { program: "bash", packages: ["bash"] },
  { program: "busybox", packages: ["busybox-static"] },
  { program: "bwrap", packages: ["bubblewrap"] },
  { program: "dash", packages: ["dash"] },
  { program: "docker", packages: ["docker-cli", "docker.io"] },
  { program: "dockerd", packages: ["docker.io"] },
  { program: "dropbear", packages: ["dropbear-bin"] },
  { program: "fish", packages: ["fish"] },
  { program: "git", packages: ["git"] },
  { program: "ip", packages: ["iproute2"] },
  { program: "iptables", packages: ["iptables"] },
  { program: "mmdebstrap", packages: ["mmdebstrap"] },
  { program: "ps", packages: ["procps"] },
  { program: "python3", packages: ["python3"] },
  { program: "rg", packages: ["ripgrep"] },
  { program: "rsync", packages: ["rsync"] },
  { program: "setsid", packages: ["util-linux"] },
  { program: "socat", packages: ["socat"] },
  { program: "ssh", packages: ["openssh-client"] },
  { program: "sshd", packages: ["openssh-server"] },
  { program: "tcsh", packages: ["tcsh"] },
];

/** Programs that this machine lacks; a busybox that is not static counts as missing. */
export async function missingPrograms(): Promise<readonly NeededProgram[]> {
  const missing = NEEDED.filter(({ program }) => findProgram(program) === null);
  const busybox = findProgram("busybox");
  if (busybox === null || (await linkageOf(busybox)) === "static") return missing;
  return [...missing, ...NEEDED.filter(({ program }) => program === "busybox")];
}
