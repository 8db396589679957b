/**
 * Environments for test suites, exported as `moorage/testing`: a throw-away one in one call, and one in a container
 * that testcontainers, or anyone else, started.
 *
 * ```ts
 * await using environment = await testEnvironment({ image: "node:24" });
 * expect((await environment.exec("node --version")).exitCode).toBe(0);
 * ```
 */
import type { BaseEnvironment } from "../environments/base.ts";
import { createDockerEnvironment, type DockerOptions } from "../environments/docker/index.ts";
import { ensureStateDir, stateDir } from "./paths.ts";

export type TestEnvironmentOptions = Omit<DockerOptions, "attach" | "keep"> & {
  /** Image to make the container from. It needs /bin/sh. */
  readonly image: string;
};

/**
 * Starts a container of its own; `stop`, or the end of an `await using`, removes it, and so does the next start of
 * any environment when the test run was killed.
 *
 * @throws {MoorageError} DOCKER_UNREACHABLE, DOCKER_PERMISSION, IMAGE_MISSING, CONTAINER_START_FAILED, INVALID_SPEC
 */
export async function testEnvironment(options: TestEnvironmentOptions): Promise<BaseEnvironment> {
  const environment = createDockerEnvironment({ ...options, stateDir: await ensureStateDir(stateDir()) });
  try {
    await environment.start();
    return environment;
  } catch (error) {
    await environment.stop();
    throw error;
  }
}

/** A container of testcontainers, or its id or name. */
export type StartedContainer = string | { getId(): string };

/**
 * Joins a running container of someone else's. `stop` ends what ran through it and leaves the container as it is.
 *
 * @throws {MoorageError} CONTAINER_MISSING, CONTAINER_PAUSED, SHELL_MISSING and the engine's own
 */
export async function attachDocker(
  container: StartedContainer,
  options: Pick<DockerOptions, "workspace" | "user" | "env" | "endpoint"> = {},
): Promise<BaseEnvironment> {
  const attach = typeof container === "string" ? container : container.getId();
  const environment = createDockerEnvironment({
    ...options,
    attach,
    stateDir: await ensureStateDir(stateDir()),
  });
  await environment.start();
  return environment;
}
