/** Containers that an earlier orchestrator left for the next one of the same environment id. */
import { isMoorageError, MoorageError } from "../../src/errors.ts";
import type { DockerClient } from "./client.ts";
import { type DockerContainer, removeContainer } from "./container.ts";
import { adoptContainer } from "./create.ts";
import { LABELS } from "./labels.ts";
import { listEntries } from "./reap.ts";
import type { DockerSettings } from "./settings.ts";

/**
 * The kept container of `environment`, started again when it was stopped; null when there is none that works. One in
 * which nothing can be run any more is removed.
 *
 * @throws {MoorageError} CONTAINER_PAUSED, DOCKER_*, CLEANUP_FAILED
 */
export async function findKept(
  client: DockerClient,
  settings: DockerSettings,
  environment: string,
): Promise<DockerContainer | null> {
  const labels = [`${LABELS.environment}=${environment}`, `${LABELS.keep}=true`];
  for (const { containerId, name, state } of await listEntries(client, labels)) {
    if (state === "paused") {
      const text = `Cannot reuse container "${name}": it is paused`;
      throw new MoorageError("CONTAINER_PAUSED", text, { details: { container: containerId } });
    }
    const container = await revive(client, settings, containerId, state !== "running");
    if (container) return container;
    await removeContainer(client, containerId);
  }
  return null;
}

/** Null when it does not come up or nothing runs in it. */
export async function revive(
  client: DockerClient,
  settings: DockerSettings,
  containerId: string,
  startFirst: boolean,
): Promise<DockerContainer | null> {
  let container: DockerContainer | null = null;
  try {
    if (startFirst) {
      await client.call(
        `start container "${containerId}"`,
        (docker, abortSignal) => docker.getContainer(containerId).start({ abortSignal }),
        { container: containerId, fallback: "CONTAINER_START_FAILED" },
      );
    }
    container = await adoptContainer(client, containerId, settings, true);
    if (await works(container)) return container;
  } catch (error) {
    // What must not be used as it is must not be removed for it either.
    if (!isMoorageError(error) || /^(DOCKER_|UNSUPPORTED)/.test(error.code)) throw error;
    // Any other failure is the container's own, and it will be replaced.
  }
  await container?.detach();
  return null;
}

/** One look whether a program can be started in it, which a container that is merely `running` does not promise. */
export async function works(container: DockerContainer): Promise<boolean> {
  try {
    return (await container.run(["/bin/sh", "-c", ":"])).exitCode === 0;
  } catch (error) {
    const telling = isMoorageError(error) && /^(DOCKER_|CONTAINER_PAUSED)/.test(error.code);
    if (telling) throw error;
    return false;
  }
}
