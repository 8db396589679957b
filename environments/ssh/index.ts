/** Environments on machines over SSH. */
import type { BaseEnvironment } from "../base.ts";
import { createShellEnvironment, type ShellEnvironmentOptions } from "../shell/environment.ts";
import { SshBackend } from "./backend.ts";
import type { SshOptions } from "./settings.ts";

/**
 * Checks the options and touches nothing; `start` of the environment made of it connects.
 *
 * @throws {MoorageError} INVALID_SPEC when an option is wrong
 */
export function createSshBackend(options: SshOptions): SshBackend {
  return new SshBackend(options);
}

/**
 * An environment on another machine, reached as `ssh` would reach it: configuration, jump hosts, agent, keys and
 * known hosts are the user's. A host key that is not known, has changed or is revoked is refused before any
 * credential is sent. No ProxyCommand, no `Match exec` and no password prompt is ever run.
 *
 * @throws {MoorageError} INVALID_SPEC when an option is wrong
 */
export function createSshEnvironment(options: SshOptions & ShellEnvironmentOptions): BaseEnvironment {
  const { stateDir, onProgress, now, shell, id, env, keep, ...own } = options;
  return createShellEnvironment(createSshBackend(own), {
    stateDir,
    ...(id !== undefined && { id }),
    ...(onProgress && { onProgress }),
    ...(now && { now }),
    ...(shell && { shell }),
    ...(env && { env }),
    ...(keep !== undefined && { keep }),
  });
}

export type { SshBackend } from "./backend.ts";
export type { SshOptions } from "./settings.ts";
