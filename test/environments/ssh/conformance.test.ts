/** The suite on a server of OpenSSH, once for each kind of login shell, and on dropbear. */
import { join } from "node:path";
import { afterAll } from "vitest";
import { createSshEnvironment } from "../../../environments/ssh/index.ts";
import { describeEnvironment } from "../../conformance/index.ts";
import { dropbear, dropbearObstacle } from "./dropbear.ts";
import {
  type Account,
  makeAccount,
  makeKey,
  processesWith,
  publicKey,
  Sshd,
  sshdObstacle,
  temporaryFolder,
  writeKnownHosts,
} from "./sshd.ts";

const PLACES = [
  { name: "ssh, login shell bash", shell: "/bin/bash", server: "sshd" },
  { name: "ssh, login shell dash, commands in sh", shell: "/bin/dash", server: "sshd", commands: "sh" },
  { name: "ssh, login shell fish", shell: "/usr/bin/fish", server: "sshd" },
  { name: "ssh, login shell tcsh", shell: "/bin/tcsh", server: "sshd" },
  { name: "ssh, dropbear", shell: "/bin/bash", server: "dropbear" },
] as const;

const cleanups: (() => unknown)[] = [];
afterAll(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

for (const place of PLACES) {
  const obstacle = sshdObstacle(place.shell) ?? (place.server === "dropbear" ? dropbearObstacle() : null);
  if (obstacle !== null) process.stderr.write(`${place.name}: not tested here: ${obstacle}\n`);
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
        ...("commands" in place && { shell: place.commands }),
      });
    },
    ...(obstacle !== null && { unavailable: obstacle }),
    facts: {
      leftovers: async ({ id }) => processesWith(`MOORAGE_WORKER=${id}.`).map((pid) => `process ${pid}`),
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
