/** Environments in Docker containers. */

import { limits } from "../../src/limits.ts";
import type { BaseEnvironment } from "../base.ts";
import {
  createShellEnvironment,
  randomEnvironmentId,
  type ShellEnvironmentOptions,
} from "../shell/environment.ts";
import { DockerBackend } from "./backend.ts";
import { DockerClient } from "./client.ts";
import type { DockerEndpoint } from "./endpoint.ts";
import { lintEngine } from "./lint.ts";
import type { DockerOptions } from "./settings.ts";

/**
 * Checks the options and touches nothing; `start` of the environment made of it brings the container up.
 *
 * @param stateDir folder for records of our own; none are kept without
 * @throws {MoorageError} INVALID_SPEC when an option is wrong, UNSUPPORTED when one cannot be kept
 */
export function createDockerBackend(options: DockerOptions, stateDir?: string): DockerBackend {
  return new DockerBackend(options, stateDir);
}

/**
 * An environment in a container of its own, or, with `attach`, in a running one of someone else's.
 *
 * @throws {MoorageError} INVALID_SPEC when an option is wrong, UNSUPPORTED when one cannot be kept
 */
export function createDockerEnvironment(options: DockerOptions & ShellEnvironmentOptions): BaseEnvironment {
  const { stateDir, onProgress, now, shell, id = randomEnvironmentId(), ...own } = options;
  const { workspace, env, keep } = own;
  return createShellEnvironment(createDockerBackend({ ...own, id }, stateDir), {
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

/** What of the engine has publicly known ways out, one sentence each. @throws {MoorageError} DOCKER_* */
export async function warningsOfEngine(
  options: { readonly endpoint?: DockerEndpoint } = {},
): Promise<readonly string[]> {
  const { endpoint } = options;
  const client = new DockerClient(endpoint ? () => endpoint : undefined);
  const timeoutMs = limits.probeTimeoutMs;
  const version = await client.call("ask the engine's version", (docker) => docker.version(), { timeoutMs });
  return lintEngine(version.Components ?? []).map(({ text }) => `warning: ${text}`);
}

export type { DockerBackend } from "./backend.ts";
export { type DockerEndpoint, resolveEndpoint } from "./endpoint.ts";
export { DockerPool } from "./pool.ts";
export { type DockerEntry, listDocker, type ReapOptions, type ReapReport, reapDocker } from "./reap.ts";
export type { DockerOptions } from "./settings.ts";
