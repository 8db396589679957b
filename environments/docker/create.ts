/**
 * Makes a container that is safe by default and keeps itself alive with nothing but /bin/sh, then prepares its
 * workspace and home for the user that commands run as.
 */
import { join, relative } from "node:path/posix";
import type Dockerode from "dockerode";
import { type ErrorCode, isMoorageError, MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { EnvironmentProgress } from "../base.ts";
import type { DockerClient } from "./client.ts";
import { DockerContainer, inspectContainer, removeContainer } from "./container.ts";
import { type ContainerIdentity, LABELS, ownLabels } from "./labels.ts";
import { type CheckedMount, checkMount, mountUser } from "./mount.ts";
import { pullImage } from "./pull.ts";
import { seccompObstacle, seccompProfile } from "./seccomp.ts";
import type { DockerSettings } from "./settings.ts";
import type { ContainerWatch } from "./watch.ts";

export const DEFAULT_WORKSPACE = "/workspace";

/**
 * What root inside needs to install packages, to serve files of other owners, and to end programs that changed
 * their user. Everything else is dropped; a user other than root has none of them.
 */
const CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL"];

/** Waits on a stdin that nobody writes to: no process, no timer, no program beside the shell. */
export const MAIN_SCRIPT = "while IFS= read -r _; do :; done; while sleep 3600; do :; done";

/** The first events are waited for this long, milliseconds. */
const EVENTS_WAIT_MS = 500;

const SCRATCH = "rw,exec,nosuid,nodev";

/**
 * Creates and starts a container, pulling its image when it is not there.
 *
 * @throws {MoorageError} IMAGE_MISSING, IMAGE_PULL_FAILED, CONTAINER_START_FAILED, SHELL_MISSING, UNSAFE_MOUNT, DOCKER_*
 */
export async function createContainer(
  client: DockerClient,
  settings: DockerSettings,
  identity: ContainerIdentity,
  onProgress: (progress: EnvironmentProgress) => void,
): Promise<DockerContainer> {
  const mount = settings.mount === null ? null : await checkMount(settings.mount, client.endpoint);
  const image = settings.image ?? "";
  const name = `moorage-${identity.environment.slice(0, 40)}-${crypto.randomUUID().slice(0, 8)}`;
  // Without a policy there is nothing that another way out would go round.
  const obstacle = settings.egress === "open" ? null : seccompObstacle(await engineInfo(client));
  const filtered = settings.egress !== "open" && obstacle === null;
  const body = containerBody(name, settings, identity, { mount, filtered });
  const create = () =>
    startStep(client, `create a container from "${image}"`, name, image, (docker, abortSignal) =>
      docker.createContainer(createOptions(name, settings.platform, body, abortSignal)),
    );
  let created: Dockerode.Container;
  try {
    created = await create();
  } catch (error) {
    if (!isMoorageError(error, "IMAGE_MISSING") || settings.pull === "never") throw error;
    await pullImage(client, image, { platform: settings.platform, onProgress });
    created = await create();
  }
  try {
    await requireShell(client, created.id, image);
    await startStep(client, `start a container from "${image}"`, created.id, image, (docker, abortSignal) =>
      docker.getContainer(created.id).start({ abortSignal }),
    );
    const container = await adoptContainer(client, created.id, settings, true);
    if (obstacle !== null) container.warnings = [`vsock is not filtered: ${obstacle}`];
    return container;
  } catch (error) {
    await removeContainer(client, created.id);
    throw error;
  }
}

/** A running container with its user's folders prepared and its events watched. */
export async function adoptContainer(
  client: DockerClient,
  id: string,
  settings: DockerSettings,
  owned: boolean,
): Promise<DockerContainer> {
  const info = await inspectContainer(client, id);
  if (owned && settings.egress !== "open") requireNoNetwork(info);
  const workspace = settings.workspace ?? (owned ? DEFAULT_WORKSPACE : info.Config.WorkingDir || "/");
  const container = new DockerContainer(client, {
    id: info.Id,
    name: info.Name.replace(/^\//, ""),
    image: info.Config.Image,
    workspace,
    hostPaths: hostPaths(info),
    sharedFolder: sharedFolder(info, workspace),
    owned,
  });
  container.env = settings.env;
  await openInTime(container.watch);
  try {
    const user = owned ? await commandUser(client, settings, info.Image) : settings.user;
    if (user && !ROOT.test(user)) container.user = user;
    if (owned) await prepare(container, settings);
    else if (settings.workspace) await requireFolder(container);
    if (owned && settings.egress !== "open" && !isFiltered(info))
      container.warnings = ["vsock is not filtered: it was made without a filter of system calls of ours"];
    return container;
  } catch (error) {
    await container.detach();
    throw error;
  }
}

/** An engine that is slow to tell its events does not hold up a start; the watch goes on by itself. */
async function openInTime(watch: ContainerWatch): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, EVENTS_WAIT_MS);
  });
  await Promise.race([watch.open(), late]);
  clearTimeout(timer);
}

/** An engine's failure here is the container's, unless its code says more. */
async function startStep<Result>(
  client: DockerClient,
  action: string,
  container: string,
  image: string,
  request: (docker: Dockerode, abortSignal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const fallback: ErrorCode = "CONTAINER_START_FAILED";
  try {
    return await client.call(action, request, { fallback, image, container });
  } catch (error) {
    // A request that got no answer may still be carried out.
    if (isMoorageError(error, "DOCKER_UNREACHABLE") && /no answer within/.test(error.message)) {
      await removeContainer(client, container).catch(() => {}); // the first failure is the one to tell
    }
    if (isMoorageError(error, "CONTAINER_MISSING")) {
      throw new MoorageError(fallback, error.message, { details: error.details, cause: error.cause });
    }
    if (isMoorageError(error, fallback) && /\/bin\/sh": .*no such file/i.test(error.message)) {
      throw shellMissing(image, error);
    }
    throw error;
  }
}

function createOptions(name: string, platform: string | null, body: object, abortSignal: AbortSignal) {
  // With `_query` and `_body` the library keeps the record out of the URL; its types do not know them.
  const options = { _query: { name, ...(platform && { platform }) }, _body: body, abortSignal };
  return options as unknown as Dockerode.ContainerCreateOptions;
}

function containerBody(
  name: string,
  settings: DockerSettings,
  identity: ContainerIdentity,
  { mount, filtered }: { readonly mount: CheckedMount | null; readonly filtered: boolean },
): Dockerode.ContainerCreateOptions {
  const workspace = settings.workspace ?? DEFAULT_WORKSPACE;
  const ownVolume = settings.readOnly && !mount;
  return {
    Image: settings.image ?? "",
    Entrypoint: ["/bin/sh", "-c", MAIN_SCRIPT],
    Cmd: [],
    OpenStdin: true,
    WorkingDir: workspace,
    // Its own process prepares and waits as root; every command names its user. Under another user here, not even
    // root could prepare anything: no-new-privileges keeps it from the powers that such a container begins without.
    User: "0",
    // The image's own check would run programs that nobody here asks about.
    Healthcheck: { Test: ["NONE"] },
    StopTimeout: limits.dockerStopGraceSeconds,
    Labels: {
      ...ownLabels(name, identity),
      ...(settings.keep && { [LABELS.keep]: "true" }),
    },
    HostConfig: {
      Init: true,
      CapDrop: ["ALL"],
      CapAdd: CAPABILITIES,
      SecurityOpt: ["no-new-privileges", ...(filtered ? [`seccomp=${seccompProfile()}`] : [])],
      Privileged: false,
      PidsLimit: settings.pidsLimit,
      ...(settings.memoryBytes > 0 && { Memory: settings.memoryBytes, MemorySwap: settings.memoryBytes }),
      ...(settings.nanoCpus > 0 && { NanoCpus: settings.nanoCpus }),
      ShmSize: settings.shmBytes,
      // No route, no resolver, no neighbour; the door of an allow-list joins this very namespace.
      ...(settings.egress !== "open" && { NetworkMode: "none" }),
      RestartPolicy: { Name: "no" },
      ...(settings.readOnly && {
        ReadonlyRootfs: true,
        Tmpfs: { "/tmp": `${SCRATCH},mode=1777`, "/var/tmp": `${SCRATCH},mode=1777`, "/run": SCRATCH },
      }),
      Mounts: [
        ...(mount ? [{ Type: "bind" as const, Source: mount.hostPath, Target: workspace }] : []),
        ...(ownVolume ? [{ Type: "volume" as const, Source: "", Target: workspace }] : []),
      ],
    },
  };
}

async function requireShell(client: DockerClient, id: string, image: string): Promise<void> {
  try {
    await client.call(`look for /bin/sh in "${image}"`, (docker, abortSignal) =>
      docker.getContainer(id).infoArchive({ path: "/bin/sh", abortSignal }),
    );
  } catch (error) {
    if (isMoorageError(error) && error.details.statusCode === 404) throw shellMissing(image, error);
    throw error;
  }
}

function shellMissing(image: string, cause: unknown): MoorageError {
  return new MoorageError("SHELL_MISSING", `Cannot use image "${image}": it has no /bin/sh`, { cause });
}

const ROOT = /^(0|root)(:|$)/;

/** Who commands run as: what the caller says, else what the mount asks for, else what the image says. */
async function commandUser(
  client: DockerClient,
  settings: DockerSettings,
  imageId: string,
): Promise<string | null> {
  if (settings.user !== null) return settings.user;
  if (settings.mount !== null) {
    return mountUser(await checkMount(settings.mount, client.endpoint), await isRootless(client));
  }
  const image = await client.call(`inspect image "${imageId}"`, (docker) =>
    docker.getImage(imageId).inspect(),
  );
  return image.Config.User || null;
}

/** Whether the engine's root is a user of this machine. */
export async function isRootless(client: DockerClient): Promise<boolean> {
  const info = await engineInfo(client);
  const options =
    typeof info === "object" && info !== null && "SecurityOptions" in info ? info.SecurityOptions : [];
  return Array.isArray(options) && options.some((option) => String(option).includes("name=rootless"));
}

/** What the engine tells of itself. */
export function engineInfo(client: DockerClient): Promise<unknown> {
  return client.call("ask about the engine", (docker) => docker.info());
}

/** A container kept from an earlier time, or one that somebody joined to a network, must not be taken for closed. */
function requireNoNetwork({ Name, HostConfig, NetworkSettings }: Dockerode.ContainerInspectInfo): void {
  const networks = Object.keys(NetworkSettings.Networks ?? {}).filter((network) => network !== "none");
  if (HostConfig.NetworkMode === "none" && networks.length === 0) return;
  throw new MoorageError(
    "UNSUPPORTED",
    `Cannot restrict egress: container "${Name.replace(/^\//, "")}" was made with the network "${networks.join(", ") || HostConfig.NetworkMode}"`,
    { suggestion: "Remove the kept container, or use another id." },
  );
}

function isFiltered({ HostConfig }: Dockerode.ContainerInspectInfo): boolean {
  return (HostConfig.SecurityOpt ?? []).some((option: string) => option.startsWith("seccomp={"));
}

/** Writable folders of the host in a container; the host's root when it has the host's own powers. */
function hostPaths(info: Dockerode.ContainerInspectInfo): string[] {
  const { Privileged, PidMode } = info.HostConfig;
  if (Privileged || PidMode === "host") return ["/"];
  const sources = info.Mounts.filter((mount) => mount.Type === "bind" && mount.RW).map(
    ({ Source }) => Source,
  );
  return sources.some((source) => /\.sock$/.test(source)) ? ["/"] : sources;
}

/** The host's folder at the workspace, which may lie deeper than what is mounted. */
function sharedFolder({ Mounts }: Dockerode.ContainerInspectInfo, workspace: string): string | null {
  const [nearest] = Mounts.filter(
    ({ Destination }) => workspace === Destination || !relative(Destination, workspace).startsWith(".."),
  ).sort((a, b) => b.Destination.length - a.Destination.length);
  if (nearest?.Type !== "bind" || !nearest.RW) return null;
  return join(nearest.Source, relative(nearest.Destination, workspace));
}

/**
 * Gives a user other than root, or any user on a read-only root, a home and a workspace of its own. Prints the home.
 * Arguments: user, workspace, and whether the workspace is mounted. As root, whatever the user.
 */
const PREPARE_SCRIPT = `
user=$1 workspace=$2 mounted=$3
name=\${user%%:*} uid= gid= home=
case $user in *:*) group=\${user#*:} ;; *) group= ;; esac
if [ -r /etc/passwd ]; then
  while IFS=: read -r n _ u g _ h _; do
    if [ "$n" = "$name" ] || [ "$u" = "$name" ]; then uid=$u gid=$g home=$h; break; fi
  done </etc/passwd
fi
case $name in '' | *[!0-9]*) ;; *) uid=$name ;; esac
owner=\${uid:-$name}:\${group:-\${gid:-0}}
mine() {
  [ -d "$1" ] || return 1
  set -- $(ls -dn "$1")
  [ "$3" = "$uid" ]
}
# A test of permission bits says yes to root also where the file system is read-only.
writable() { (: >"$1/.moorage") && rm -f "$1/.moorage"; } 2>/dev/null
make() { mkdir -p "$1" && chown "$owner" "$1" && writable "$1"; } 2>/dev/null
case $home in / | /nonexistent | /dev/null | '') home=/home/moorage ;; esac
if [ -d "$home" ]; then
  mine "$home" || home=/home/moorage
fi
{ mine "$home" && writable "$home"; } || make "$home" || { home=/tmp/moorage-home && make "$home"; } || home=
if [ "$mounted" = 0 ] && ! mine "$workspace" && [ ! -k "$workspace" ]; then
  [ -n "$(ls -A "$workspace" 2>/dev/null)" ] || make "$workspace"
fi
printf '%s' "$home"
`;

/** Somebody else's container is not changed: a folder that is not there is not made. */
async function requireFolder(container: DockerContainer): Promise<void> {
  const { name, workspace } = container.facts;
  const { exitCode } = await container.run(["/bin/sh", "-c", '[ -d "$1" ]', "sh", workspace], {});
  if (exitCode !== 1) return;
  throw new MoorageError(
    "WORKDIR_MISSING",
    `Cannot work in "${workspace}": there is no such folder in container "${name}"`,
  );
}

async function prepare(container: DockerContainer, settings: DockerSettings): Promise<void> {
  const { facts, user } = container;
  if (user === undefined && !settings.readOnly) return;
  const mounted = settings.mount === null ? "0" : "1";
  const argv = ["/bin/sh", "-c", PREPARE_SCRIPT, "sh", user ?? "0", facts.workspace, mounted];
  const { stdout, exitCode } = await container.run(argv, { user: "0" });
  if (exitCode !== 0) {
    throw new MoorageError(
      "CONTAINER_START_FAILED",
      `Cannot prepare the folders of user "${user}" in container "${facts.name}": exit code ${exitCode}`,
    );
  }
  if (stdout) container.env = { HOME: stdout, ...container.env };
}
