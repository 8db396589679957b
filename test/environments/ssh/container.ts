/**
 * A machine of its own: a container with OpenSSH and dropbear, and an account for each login shell. What must cut a
 * server off, restart it or look at its processes uses one on this machine instead; see `sshd.ts`.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { GenericContainer } from "testcontainers";
import { listImages } from "../../../images/build.ts";
import { SSHD_IMAGE } from "../../host/images.ts";
import { makeKey, publicKey, SSHD_CONFIG, temporaryFolder, writeKnownHosts } from "./sshd.ts";

const PORTS = { sshd: 22, dropbear: 2222 } as const;

/** Login shells; each account has the name of its own. */
const SHELLS = ["bash", "dash", "fish", "tcsh"] as const;
export type LoginShell = (typeof SHELLS)[number];
export type Server = keyof typeof PORTS;

/** dropbear without X11 and message of the day, as sshd is here. */
const START = `set -e
for shell in ${SHELLS.join(" ")}; do
  useradd --create-home --shell "$(command -v "$shell")" --password '*' "$shell"
  install -d -m 700 -o "$shell" -g "$shell" "/home/$shell/.ssh"
  install -m 600 -o "$shell" -g "$shell" /keys/authorized "/home/$shell/.ssh/authorized_keys"
done
dropbearconvert openssh dropbear /keys/host /keys/host.dropbear 2>/dev/null
dropbear -E -s -m -r /keys/host.dropbear -p ${PORTS.dropbear}
exec "$(command -v sshd)" -D -e -f /keys/sshd_config
`;

export interface SshContainer extends AsyncDisposable {
  readonly host: string;
  readonly ports: Readonly<Record<Server, number>>;
  /** Opens every account. */
  readonly identityFile: string;
  readonly knownHostsFile: string;
  /** For what the environments keep here. */
  readonly stateDir: string;
  /** Processes of an account whose initial variables hold `text`, for messages. */
  readonly processesWith: (account: LoginShell, text: string) => Promise<readonly string[]>;
}

/** Why there can be no such container here; null when there can. */
export async function containerObstacle(): Promise<string | null> {
  try {
    const image = (await listImages()).find(({ tag }) => tag === SSHD_IMAGE);
    return image?.id ? null : `image ${SSHD_IMAGE} is not built ("npm run host" builds it)`;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

export async function startSshContainer(): Promise<SshContainer> {
  const folder = temporaryFolder();
  try {
    const identityFile = makeKey(folder.path, "id");
    const hostKey = makeKey(folder.path, "host");
    const container = await new GenericContainer(SSHD_IMAGE)
      .withExposedPorts(...Object.values(PORTS))
      .withCopyContentToContainer([
        { target: "/keys/authorized", content: `${publicKey(identityFile)}\n` },
        { target: "/keys/host", content: readFileSync(hostKey, "utf8"), mode: 0o600 },
        {
          target: "/keys/sshd_config",
          content: [`Port ${PORTS.sshd}`, "HostKey /keys/host", ...SSHD_CONFIG, ""].join("\n"),
        },
      ])
      .withCommand(["sh", "-c", START])
      .start();
    const host = container.getHost();
    const ports = {
      sshd: container.getMappedPort(PORTS.sshd),
      dropbear: container.getMappedPort(PORTS.dropbear),
    };
    const knownHostsFile = join(folder.path, "known_hosts");
    writeKnownHosts(
      knownHostsFile,
      Object.values(ports).map((port) => ({ address: host, port, hostKeys: [hostKey] })),
    );
    return {
      host,
      ports,
      identityFile,
      knownHostsFile,
      stateDir: join(folder.path, "state"),
      processesWith: async (account, text) => {
        const look =
          'grep -la -e "$1" /proc/[0-9]*/environ 2>/dev/null | while IFS=/ read -r _ _ pid _; do echo "$pid $(tr "\\0" " " <"/proc/$pid/cmdline")"; done';
        // Only their own account, and not even root in a container, may read the variables of processes.
        const { output } = await container.exec(["sh", "-c", look, "sh", text], { user: account });
        return output.split("\n").filter((line) => line !== "");
      },
      [Symbol.asyncDispose]: async () => {
        await container.stop();
        folder[Symbol.dispose]();
      },
    };
  } catch (error) {
    folder[Symbol.dispose]();
    throw error;
  }
}
