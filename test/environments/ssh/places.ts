/** A server, an account on it and an environment there, for one test. */
import { chownSync, mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import type { BaseEnvironment } from "../../../environments/base.ts";
import { createSshEnvironment, type SshOptions } from "../../../environments/ssh/index.ts";
import {
  type Account,
  makeAccount,
  makeKey,
  publicKey,
  Sshd,
  type SshdOptions,
  temporaryFolder,
  writeKnownHosts,
} from "./sshd.ts";

export interface Place extends AsyncDisposable {
  readonly sshd: Sshd;
  readonly account: Account;
  readonly key: string;
  readonly folder: string;
  readonly knownHosts: string;
  /** Not started; stopped with the place. */
  readonly make: (
    more?: Partial<SshOptions & { readonly id: string; readonly keep: boolean }>,
  ) => BaseEnvironment;
}

export async function makePlace(options: SshdOptions & { readonly shell?: string } = {}): Promise<Place> {
  const { shell = "/bin/bash", ...sshdOptions } = options;
  const folder = temporaryFolder();
  const key = makeKey(folder.path, "id");
  const account = makeAccount(shell, publicKey(key));
  const sshd = await Sshd.start(sshdOptions);
  const knownHosts = join(folder.path, "known_hosts");
  writeKnownHosts(knownHosts, [sshd]);
  const made: BaseEnvironment[] = [];
  return {
    sshd,
    account,
    key,
    folder: folder.path,
    knownHosts,
    make: (more = {}) => {
      const environment = createSshEnvironment({
        host: sshd.address,
        port: sshd.port,
        user: account.name,
        configFile: null,
        agent: null,
        identityFiles: [key],
        knownHostsFiles: [knownHosts],
        stateDir: join(folder.path, "state"),
        ...more,
      });
      made.push(environment);
      return environment;
    },
    [Symbol.asyncDispose]: async () => {
      await Promise.allSettled(made.map((environment) => environment.stop()));
      await sshd[Symbol.asyncDispose]();
      account.remove();
      folder[Symbol.dispose]();
    },
  };
}

/** An environment of a new place, in an empty folder of its account; the place goes with it. */
export async function makeWorkspacePlace(): Promise<BaseEnvironment> {
  const place = await makePlace();
  const { home } = place.account;
  const workspace = join(home, "work");
  mkdirSync(workspace);
  const { uid, gid } = statSync(home);
  chownSync(workspace, uid, gid);
  return Object.assign(place.make({ workspace }), {
    [Symbol.asyncDispose]: () => place[Symbol.asyncDispose](),
  });
}
