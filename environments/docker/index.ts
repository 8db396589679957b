/** Environments in Docker containers. */
import type { BaseEnvironment } from "../base.ts";
import {
  createShellEnvironment,
  randomEnvironmentId,
  type ShellEnvironmentOptions,
} from "../shell/environment.ts";
import { DockerBackend } from "./backend.ts";
import type { DockerOptions } from "./settings.ts";

/**
 * Checks the options and touches nothing; `start` of the environment made of it brings the container up.
 *
 * @throws {MoorageError} INVALID_SPEC when an option is wrong, UNSUPPORTED when one cannot be kept
 */
export function createDockerBackend(options: DockerOptions): DockerBackend {
  return new DockerBackend(options);
}

/**
 * An environment in a container of its own, or, with `attach`, in a running one of someone else's.
 *
 * @throws {MoorageError} INVALID_SPEC when an option is wrong, UNSUPPORTED when one cannot be kept
 */
export function createDockerEnvironment(options: DockerOptions & ShellEnvironmentOptions): BaseEnvironment {
  const { stateDir, onProgress, now, shell, id = randomEnvironmentId(), ...own } = options;
  const { workspace, env, keep } = own;
  return createShellEnvironment(createDockerBackend({ ...own, id }), {
    stateDir,
    id,
    ...(onProgress && { onProgress }),
    ...(now && { now }),
    ...(shell && { shell }),
    ...(workspace !== undefined && { workspace }),
    ...(env && { env }),
    ...(keep !== undefined && { keep }),
  });
}

export type { DockerBackend } from "./backend.ts";
export { type DockerEndpoint, resolveEndpoint } from "./endpoint.ts";
export { DockerPool } from "./pool.ts";
export { type DockerEntry, listDocker, type ReapOptions, type ReapReport, reapDocker } from "./reap.ts";
export type { DockerOptions } from "./settings.ts";
