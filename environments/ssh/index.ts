/** Environments on machines over SSH. */
import type { BaseEnvironment } from "../base.ts";
import {
  createShellEnvironment,
  randomEnvironmentId,
  type ShellEnvironmentOptions,
} from "../shell/environment.ts";
import { SshBackend, type SshRecording } from "./backend.ts";
import type { SshOptions } from "./settings.ts";

/**
 * Checks the options and touches nothing; `start` of the environment made of it connects.
 *
 * @param recording where the environment is recorded, so that the next owner ends what a killed one left. @default nowhere
 * @throws {MoorageError} INVALID_SPEC when an option is wrong
 */
export function createSshBackend(options: SshOptions, recording: SshRecording | null = null): SshBackend {
  return new SshBackend(options, recording);
}

/**
 * An environment on another machine, reached as `ssh` would reach it: configuration, jump hosts, agent, keys and
 * known hosts are the user's. A host key that is not known, has changed or is revoked is refused before any
 * credential is sent. No ProxyCommand, no `Match exec` and no password prompt is ever run.
 *
 * @throws {MoorageError} INVALID_SPEC when an option is wrong
 */
export function createSshEnvironment(options: SshOptions & ShellEnvironmentOptions): BaseEnvironment {
  const { stateDir, onProgress, now, shell, id = randomEnvironmentId(), env, keep, ...own } = options;
  const recording = { stateDir, id, ...(keep !== undefined && { keep }) };
  return createShellEnvironment(createSshBackend(own, recording), {
    stateDir,
    id,
    ...(onProgress && { onProgress }),
    ...(now && { now }),
    ...(shell && { shell }),
    ...(env && { env }),
    ...(keep !== undefined && { keep }),
  });
}

export type { SshBackend, SshRecording } from "./backend.ts";
export { listSsh, type ReapedSsh, reapSsh, type SshEntry } from "./reap.ts";
export type { SshOptions } from "./settings.ts";
