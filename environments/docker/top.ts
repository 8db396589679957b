/** What runs in a container apart from our own shells. */
import type { LeftProcess } from "../base.ts";
import { DockerClient } from "./client.ts";
import { MAIN_SCRIPT } from "./create.ts";
import type { DockerEndpoint } from "./endpoint.ts";

/**
 * Lists the processes of a container by their pids on the engine's host.
 *
 * @throws {MoorageError} DOCKER_*, CONTAINER_MISSING
 */
export async function listContainerProcesses(
  containerId: string,
  options: { readonly endpoint?: DockerEndpoint } = {},
): Promise<readonly LeftProcess[]> {
  const { endpoint } = options;
  const client = new DockerClient(endpoint ? () => endpoint : undefined);
  const table: { readonly Processes: readonly (readonly string[])[] | null } = await client.call(
    "list processes",
    (docker) => docker.getContainer(containerId).top({ ps_args: "-eo pid,args" }),
    { container: containerId },
  );
  return (table.Processes ?? []).flatMap(([pid = "", command = ""]) =>
    isOurs(command) ? [] : [{ pid: Number(pid), command: command.slice(0, 200) }],
  );
}

/** The container's main script, resident shells, and the init that holds them. */
function isOurs(command: string): boolean {
  return command === "sh" || command.includes(MAIN_SCRIPT) || command.includes("__moor_");
}
