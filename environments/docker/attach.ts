/**
 * Joining a container that someone else owns. It is never stopped, changed or removed; what we started in it carries
 * a marker variable, and is ended by it when we leave.
 */

import { realpath } from "node:fs/promises";
import type Dockerode from "dockerode";
import { MoorageError } from "../../src/errors.ts";
import type { DockerClient } from "./client.ts";
import { type DockerContainer, inspectContainer } from "./container.ts";
import { adoptContainer, engineInfo } from "./create.ts";
import { hasHostCgroups, type LintFinding, lintContainer } from "./lint.ts";
import type { DockerSettings } from "./settings.ts";

const MARKER = "MOORAGE_SESSION";

/** In every program's initial environment, by which its whole tree is known. */
export function markerEnv(session: string): Record<string, string> {
  return { [MARKER]: session };
}

/**
 * @throws {MoorageError} UNSAFE_ENVIRONMENT, CONTAINER_MISSING when there is none or it does not run, CONTAINER_PAUSED,
 * SHELL_MISSING, DOCKER_*
 */
export async function attachContainer(
  client: DockerClient,
  settings: DockerSettings,
  session: string,
): Promise<DockerContainer> {
  const name = settings.attach ?? "";
  const info = await inspectContainer(client, name);
  const { Id, State } = info;
  const details = { container: Id };
  if (State.Paused) {
    throw new MoorageError("CONTAINER_PAUSED", `Cannot attach to container "${name}": it is paused`, {
      details,
    });
  }
  if (!State.Running) {
    throw new MoorageError(
      "CONTAINER_MISSING",
      `Cannot attach to container "${name}": it is ${State.Status}`,
      {
        details,
        suggestion: "Start the container first.",
      },
    );
  }
  const mounts = { ...info, Mounts: await realMounts(client, info.Mounts ?? []) };
  const findings = [
    ...(await ownSocketFindings(client, mounts.Mounts)),
    ...lintContainer(mounts, hasHostCgroups(info) ? await cgroupVersionOf(client) : null),
  ];
  refuseUnsafe(name, Id, findings, settings.unsafe);
  const container = await adoptContainer(client, Id, settings, false);
  container.env = { ...container.env, ...markerEnv(session) };
  container.warnings = findings.map(({ rule, text }) => `${text} (${rule})`);
  try {
    // Also proves that there is a shell.
    await container.run(["/bin/sh", "-c", ":"]);
  } catch (error) {
    await container.detach();
    throw error;
  }
  return container;
}

type Mount = Dockerode.ContainerInspectInfo["Mounts"][number];

/** By what they are on the host: volumes whose options have them lie elsewhere, and links. */
async function realMounts(client: DockerClient, mounts: readonly Mount[]): Promise<Mount[]> {
  const found = await Promise.all(
    mounts.map(async (mount): Promise<Mount[]> => {
      if (mount.Type !== "volume" || !mount.Name) return [mount];
      const name = mount.Name;
      const { Options } = await client.call(`inspect volume "${name}"`, (docker) =>
        docker.getVolume(name).inspect(),
      );
      return [
        mount,
        ...volumeSources(Options ?? {}).map((Source) => ({ ...mount, Type: "bind" as const, Source })),
      ];
    }),
  );
  if (!client.endpoint.local) return found.flat();
  return await Promise.all(
    found.flat().map(async (mount) => {
      // One that is gone since, or not on this machine, is judged by its name.
      const Source =
        mount.Type === "bind" ? await realpath(mount.Source).catch(() => mount.Source) : mount.Source;
      return { ...mount, Source };
    }),
  );
}

/** The engine's own socket may have any name, and lie in any folder. */
async function ownSocketFindings(
  { endpoint }: DockerClient,
  mounts: readonly Mount[],
): Promise<LintFinding[]> {
  if (!endpoint.local || endpoint.socketPath === null) return [];
  const socket = await realpath(endpoint.socketPath).catch(() => endpoint.socketPath ?? "");
  return mounts
    .filter(({ Type, Source }) => Type === "bind" && (Source === socket || socket.startsWith(`${Source}/`)))
    .map(({ Destination }) => ({
      rule: "engine-socket",
      level: "unsafe" as const,
      text: `this engine's socket is mounted at ${Destination}`,
    }));
}

/** Paths of the host that a volume of the engine's own driver is made of: a folder, a disk, layers. */
function volumeSources(options: Readonly<Record<string, string>>): string[] {
  const { device = "", o = "" } = options;
  const layers = [...o.matchAll(/(?:lower|upper)dir=([^,]+)/g)].flatMap(([, paths = ""]) => paths.split(":"));
  return [device, ...layers].filter((path) => path.startsWith("/"));
}

/** Null where the engine does not tell. */
async function cgroupVersionOf(client: DockerClient): Promise<string | null> {
  const facts = await engineInfo(client);
  if (!(facts instanceof Object) || !("CgroupVersion" in facts)) return null;
  return String(facts.CgroupVersion);
}

/** A container that is the host, more or less, is joined only by an operator who says so. */
function refuseUnsafe(
  name: string,
  id: string,
  findings: readonly LintFinding[],
  accepted: readonly string[],
): void {
  const refused = findings.filter(({ level, rule }) => level === "unsafe" && !accepted.includes(rule));
  if (refused.length === 0) return;
  const rules = [...new Set(refused.map(({ rule }) => rule))];
  throw new MoorageError(
    "UNSAFE_ENVIRONMENT",
    `Cannot attach to container "${name}": ${refused.map(({ text }) => text).join("; ")}`,
    {
      suggestion: `Use a container without these ways to the host, or have the operator accept them: unsafe=${rules.join(",")}.`,
      details: { container: id, rules },
    },
  );
}

/** Ends them until none is left: one may start another while it is being ended. */
const END_SCRIPT = `
round=0
while [ $round -lt 20 ]; do
  round=$((round + 1)) left=
  # By tr, since the grep of BusyBox sees nothing after a NUL.
  for file in /proc/[0-9]*/environ; do
    [ -r "$file" ] && tr '\\000' '\\n' <"$file" 2>/dev/null | grep -qxF -e "$1" || continue
    pid=\${file#/proc/} pid=\${pid%/environ}
    kill -9 "$pid" 2>/dev/null && left=1
  done
  [ -n "$left" ] || exit 0
done
exit 1
`;

/** @throws {MoorageError} CLEANUP_FAILED when something of ours is still there */
export async function endOurProcesses(container: DockerContainer, session: string): Promise<void> {
  const argv = ["/bin/sh", "-c", END_SCRIPT, "sh", `${MARKER}=${session}`];
  // The script itself must not be found.
  const { exitCode } = await container.run(argv, { env: { [MARKER]: "" } });
  if (exitCode === 0) return;
  throw new MoorageError(
    "CLEANUP_FAILED",
    `Processes of ours may be left in container "${container.facts.name}"`,
    {
      details: { container: container.facts.id },
      suggestion: `End the processes that carry ${MARKER}=${session} in their variables.`,
    },
  );
}
