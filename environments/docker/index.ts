/** Environments in Docker containers. */
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

export type { DockerBackend } from "./backend.ts";
export { type DockerEndpoint, resolveEndpoint } from "./endpoint.ts";
export { DockerPool } from "./pool.ts";
export { type DockerEntry, listDocker, type ReapOptions, type ReapReport, reapDocker } from "./reap.ts";
export type { DockerOptions } from "./settings.ts";
