/** The conformance suite on accounts of a container, each with a login shell of its own. */
import { afterAll, beforeAll } from "vitest";
import { createSshEnvironment } from "../../../environments/ssh/index.ts";
import { type Conformance, describeEnvironment } from "../../conformance/index.ts";
import { canTest } from "../../host/required.ts";
import {
  containerObstacle,
  type LoginShell,
  type Server,
  type SshContainer,
  startSshContainer,
} from "./container.ts";

export interface SuitePlace {
  readonly name: string;
  readonly shell: LoginShell;
  readonly server: Server;
  /** Shell that runs commands. @default the best there is */
  readonly commands?: "sh";
  readonly gaps?: Conformance["gaps"];
  /** @default all */
  readonly areas?: Conformance["areas"];
}

export const BASH: SuitePlace = { name: "ssh, login shell bash", shell: "bash", server: "sshd" };
export const DASH: SuitePlace = {
  name: "ssh, login shell dash",
  shell: "dash",
  server: "sshd",
  commands: "sh",
};
export const FISH: SuitePlace = { name: "ssh, login shell fish", shell: "fish", server: "sshd" };
export const TCSH: SuitePlace = { name: "ssh, login shell tcsh", shell: "tcsh", server: "sshd" };
export const DROPBEAR: SuitePlace = {
  name: "ssh, dropbear",
  shell: "bash",
  server: "dropbear",
  gaps: {
    "/dev/stdout and /dev/stderr can be opened": "dropbear makes the pipes as root, for root alone to open",
  },
};

/** The account is nobody special, so what only root may do is not asked. */
const GAPS: NonNullable<Conformance["gaps"]> = {
  "writeFile() takes a mode for a new file and keeps that of an old one (FT-23)":
    "one of its files is read-only, which only root may replace",
};

/** Registers the suite for places on one container. */
export async function describePlaces(places: readonly SuitePlace[]): Promise<void> {
  const obstacle = await containerObstacle();
  for (const { name } of places) canTest("ssh", name, obstacle);
  let container: SshContainer;
  if (obstacle === null) {
    beforeAll(async () => {
      container = await startSshContainer();
    });
    afterAll(() => container?.[Symbol.asyncDispose]());
  }
  for (const { name, shell, server, commands, gaps, areas } of places) {
    describeEnvironment({
      name,
      create: () =>
        createSshEnvironment({
          host: container.host,
          port: container.ports[server],
          user: shell,
          configFile: null,
          agent: null,
          identityFiles: [container.identityFile],
          knownHostsFiles: [container.knownHostsFile],
          stateDir: container.stateDir,
          ...(commands && { shell: commands }),
        }),
      ...(obstacle !== null && { unavailable: obstacle }),
      gaps: { ...GAPS, ...gaps },
      ...(areas && { areas }),
      facts: { leftovers: ({ id }) => container.processesWith(shell, `MOORAGE_WORKER=${id}\\.`) },
    });
  }
}
