/** The conformance suite on a server of its own and an account of a given login shell. */
import { join } from "node:path";
import { afterAll } from "vitest";
import { createSshEnvironment } from "../../../environments/ssh/index.ts";
import { type Conformance, describeEnvironment } from "../../conformance/index.ts";
import { dropbear, dropbearObstacle } from "./dropbear.ts";
import {
  type Account,
  canRun,
  describeProcess,
  makeAccount,
  makeKey,
  processesWith,
  publicKey,
  Sshd,
  sshdObstacle,
  temporaryFolder,
  writeKnownHosts,
} from "./sshd.ts";

const cleanups: (() => unknown)[] = [];
afterAll(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

export interface SuitePlace {
  readonly name: string;
  /** Login shell of the account. */
  readonly shell: string;
  readonly server: "sshd" | "dropbear";
  /** Shell that runs commands. @default the best there is */
  readonly commands?: "sh";
  readonly gaps?: Conformance["gaps"];
  /** @default all */
  readonly areas?: Conformance["areas"];
}

export const BASH: SuitePlace = { name: "ssh, login shell bash", shell: "/bin/bash", server: "sshd" };
export const DASH: SuitePlace = {
  name: "ssh, login shell dash",
  shell: "/bin/dash",
  server: "sshd",
  commands: "sh",
};
export const FISH: SuitePlace = { name: "ssh, login shell fish", shell: "/usr/bin/fish", server: "sshd" };
export const TCSH: SuitePlace = { name: "ssh, login shell tcsh", shell: "/bin/tcsh", server: "sshd" };
export const DROPBEAR: SuitePlace = {
  name: "ssh, dropbear",
  shell: "/bin/bash",
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

/** Registers the suite for one place. */
export async function describePlace(place: SuitePlace): Promise<void> {
  const obstacle = sshdObstacle(place.shell) ?? (place.server === "dropbear" ? dropbearObstacle() : null);
  canRun(place.name, obstacle);
  const server = obstacle === null ? await prepare(place.server, place.shell) : null;
  describeEnvironment({
    name: place.name,
    create: () => {
      if (!server) throw new Error(`No server: ${obstacle}`);
      return createSshEnvironment({
        ...server.options,
        host: "127.0.0.1",
        user: server.account.name,
        stateDir: server.stateDir,
        ...(place.commands && { shell: place.commands }),
      });
    },
    ...(obstacle !== null && { unavailable: obstacle }),
    gaps: { ...GAPS, ...place.gaps },
    ...(place.areas && { areas: place.areas }),
    facts: {
      leftovers: async ({ id }) => processesWith(`MOORAGE_WORKER=${id}.`).map(describeProcess),
    },
  });
}

interface Place {
  readonly account: Account;
  readonly stateDir: string;
  readonly options: {
    readonly port: number;
    readonly configFile: null;
    readonly identityFiles: readonly string[];
    readonly knownHostsFiles: readonly string[];
  };
}

async function prepare(kind: "sshd" | "dropbear", shell: string): Promise<Place> {
  const folder = temporaryFolder();
  cleanups.push(() => folder[Symbol.dispose]());
  const key = makeKey(folder.path, "id");
  const account = makeAccount(shell, publicKey(key));
  cleanups.push(account.remove);
  const server = kind === "sshd" ? await Sshd.start() : await dropbear(folder.path);
  cleanups.push(() => server[Symbol.asyncDispose]());
  const knownHosts = join(folder.path, "known_hosts");
  writeKnownHosts(knownHosts, [server]);
  return {
    account,
    stateDir: folder.path,
    options: { port: server.port, configFile: null, identityFiles: [key], knownHostsFiles: [knownHosts] },
  };
}
