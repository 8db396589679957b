/** Environments in Docker containers. */

import type Dockerode from "dockerode";
import type { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { BaseEnvironment } from "../base.ts";
import {
  createShellEnvironment,
  randomEnvironmentId,
  type ShellEnvironmentOptions,
} from "../shell/environment.ts";
import { DockerBackend } from "./backend.ts";
import { DockerClient, engineError } from "./client.ts";
import { type DockerEndpoint, resolveEndpoint } from "./endpoint.ts";
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

/** The engine that the docker backend works with, for whoever builds images on it or asks it for more. */
export interface DockerEngine {
  readonly docker: Dockerode;
  readonly endpoint: DockerEndpoint;
  /** Tells a failed request by what it means. @param action completes "Cannot …" */
  explain(error: unknown, action: string): MoorageError;
}

/**
 * Finds the engine as the `docker` command does: DOCKER_HOST, the context, the default socket. Connects to nothing.
 *
 * @throws {MoorageError} DOCKER_CONTEXT_INVALID, UNSUPPORTED
 */
export async function openEngine(endpoint: DockerEndpoint = resolveEndpoint()): Promise<DockerEngine> {
  const docker = await new DockerClient(() => endpoint).dockerode("use the Docker engine");
  return { docker, endpoint, explain: (error, action) => engineError(error, action, endpoint) };
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
export { type DockerEndpoint, endpointOf, resolveEndpoint } from "./endpoint.ts";
export { DockerPool } from "./pool.ts";
export { type DockerEntry, listDocker, type ReapOptions, type ReapReport, reapDocker } from "./reap.ts";
export type { DockerOptions } from "./settings.ts";
