/** Whether a Docker environment can be had now, in bounded time and by real requests, not by the engine's ping alone. */
import { isMoorageError, toMoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { Health } from "../base.ts";
import { type DockerClient, named } from "./client.ts";
import { type DockerContainer, inspectContainer } from "./container.ts";
import { LABELS } from "./labels.ts";
import type { DockerSettings } from "./settings.ts";

/**
 * @param container the environment's own, when it was started
 * @returns within `limits.probeTimeoutMs`; never throws
 */
export async function probe(
  client: DockerClient,
  settings: DockerSettings,
  container: DockerContainer | null,
): Promise<Health> {
  // Room for the answer to be made within the limit.
  const timeoutMs = limits.probeTimeoutMs - 200;
  let pinged = false;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Health>((resolve) => {
    timer = setTimeout(() => {
      const answers = pinged ? "answers pings but no requests" : "does not answer";
      resolve({
        healthy: false,
        code: "DOCKER_UNREACHABLE",
        reason: `The Docker engine at ${named(client.endpoint)} ${answers} within ${limits.probeTimeoutMs / 1000} s`,
        suggestion: "Look at the engine's own log and restart it.",
      });
    }, timeoutMs);
  });
  const options = { timeoutMs: limits.probeTimeoutMs };
  try {
    const ping = client.call("ping the engine", (docker) => docker.ping(), options);
    ping.then(
      () => {
        pinged = true;
      },
      () => {}, // the requests beside it fail with the same reason
    );
    const real = container ? containerHealth(container, settings) : engineHealth(client, settings);
    real.catch(() => {}); // after the deadline nobody waits for it
    return await Promise.race([real, late]);
  } catch (error) {
    const { code, message, suggestion } = toMoorageError(error, "ENVIRONMENT_UNAVAILABLE");
    return { healthy: false, code, reason: message, suggestion };
  } finally {
    clearTimeout(timer);
  }
}

async function containerHealth(container: DockerContainer, settings: DockerSettings): Promise<Health> {
  const { name } = container.facts;
  let State: { readonly Running: boolean; readonly Paused: boolean; readonly Status: string };
  try {
    ({ State } = await container.inspect(limits.probeTimeoutMs));
  } catch (error) {
    // The engine answers, so the next use makes another; hiding the tools would keep that use from coming.
    if (!isMoorageError(error, "CONTAINER_MISSING") || settings.attach !== null) throw error;
    return { healthy: true, detail: `container ${name} was removed; it is made anew on use` };
  }
  if (State.Paused) {
    return {
      healthy: false,
      code: "CONTAINER_PAUSED",
      reason: `Container "${name}" is paused`,
      suggestion: `Run \`docker unpause ${name}\`.`,
    };
  }
  if (State.Running) return { healthy: true, detail: `container ${name}` };
  if (settings.attach === null)
    return { healthy: true, detail: `container ${name} stopped; it is made anew on use` };
  return { healthy: false, code: "CONTAINER_MISSING", reason: `Container "${name}" is ${State.Status}` };
}

async function engineHealth(client: DockerClient, settings: DockerSettings): Promise<Health> {
  const timeoutMs = limits.probeTimeoutMs;
  if (settings.attach !== null) {
    const { State } = await inspectContainer(client, settings.attach, timeoutMs);
    if (State.Running && !State.Paused) return { healthy: true, detail: `container ${settings.attach}` };
    return {
      healthy: false,
      code: State.Paused ? "CONTAINER_PAUSED" : "CONTAINER_MISSING",
      reason: `Container "${settings.attach}" is ${State.Status}`,
    };
  }
  const image = settings.image ?? "";
  await client.call(
    "list containers",
    (docker, abortSignal) =>
      docker.listContainers({ limit: 1, filters: { label: [LABELS.owner] }, abortSignal }),
    { timeoutMs },
  );
  if (settings.pull === "never") {
    await client.call(`look for image "${image}"`, (docker) => docker.getImage(image).inspect(), {
      timeoutMs,
      image,
    });
  }
  return { healthy: true, detail: `engine at ${client.endpoint.url}` };
}
