/**
 * The door of a container without a network: a companion container that joins its network namespace, listens on the
 * loopback there and passes bytes to the proxy's unix socket. Nothing of it can be seen from inside but the open port.
 *
 * It needs no image of its own: it runs this host's Node, bound in with the libraries that it loads, on the file
 * system of the environment's own image, of which nothing is executed: neither its variables nor its files tell the
 * loader or Node of anything more to load.
 */
import { execFile } from "node:child_process";
import { realpath } from "node:fs/promises";
import { basename } from "node:path";
import { promisify } from "node:util";
import type Dockerode from "dockerode";
import { isMoorageError, MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import { DOOR_PORT, DOOR_SOCKET, FORWARDING_DOOR } from "../egress/door.ts";
import { hostProgram } from "../host-programs.ts";
import type { DockerClient } from "./client.ts";
import { type DockerContainer, removeContainer } from "./container.ts";
import { isRootless } from "./create.ts";
import { type ContainerIdentity, DOOR_ROLE, LABELS, ownLabels } from "./labels.ts";

/** Where the companion finds what is bound into it. */
const PLACE = "/moorage-door";
const MEMORY_BYTES = 256 * 1024 * 1024;
const POLL_MS = 25;
/** What the loader and Node would read by themselves. */
const LOADED_BY_FILE = "/etc/ld.so.preload";
const NO_CONFIGURATION = "OPENSSL_CONF=/dev/null";

export interface Door {
  readonly containerId: string;
  /** @throws {MoorageError} CLEANUP_FAILED */
  close(): Promise<void>;
}

/**
 * Opens the door of a running container that has no network.
 *
 * @param gateFolder where the proxy's socket is
 * @throws {MoorageError} UNSUPPORTED when the engine is on another machine; CONTAINER_START_FAILED
 */
export async function openDoor(
  client: DockerClient,
  container: DockerContainer,
  gateFolder: string,
  identity: ContainerIdentity,
): Promise<Door> {
  requireLocal(client);
  const [program, { Config }] = await Promise.all([
    programOfHost(container.facts.hostPaths),
    container.inspect(),
  ]);
  // By its name alone a variable of the image is taken away.
  const imageVariables = (Config.Env ?? []).map((text) => text.replace(/=.*$/s, ""));
  const user = (await isRootless(client)) ? "0:0" : `${process.getuid?.() ?? 0}:${process.getgid?.() ?? 0}`;
  const name = `moorage-door-${crypto.randomUUID().slice(0, 12)}`;
  const bind = (Source: string, Target: string) => ({
    Type: "bind" as const,
    Source,
    Target,
    ReadOnly: true,
  });
  const body: Dockerode.ContainerCreateOptions = {
    Image: container.facts.image,
    Entrypoint: [
      ...program.argv,
      "-e",
      FORWARDING_DOOR,
      "--",
      String(DOOR_PORT),
      `${PLACE}/gate/${DOOR_SOCKET}`,
    ],
    Cmd: [],
    Env: [...imageVariables, NO_CONFIGURATION],
    User: user,
    WorkingDir: "/",
    Healthcheck: { Test: ["NONE"] },
    Labels: {
      ...ownLabels(name, identity),
      [LABELS.role]: DOOR_ROLE,
    },
    HostConfig: {
      NetworkMode: `container:${container.facts.id}`,
      ReadonlyRootfs: true,
      CapDrop: ["ALL"],
      SecurityOpt: ["no-new-privileges"],
      PidsLimit: 64,
      Memory: MEMORY_BYTES,
      MemorySwap: MEMORY_BYTES,
      LogConfig: { Type: "json-file", Config: { "max-size": "64k" } },
      Mounts: [
        ...program.files.map((file) => bind(file.source, file.target)),
        bind("/dev/null", LOADED_BY_FILE),
        bind(gateFolder, `${PLACE}/gate`),
      ],
    },
  };
  const action = `open the door of container "${container.facts.name}"`;
  const fallback = "CONTAINER_START_FAILED" as const;
  const created = await client.call(
    action,
    (docker, abortSignal) => {
      // With `_query` and `_body` the library keeps the record out of the URL; its types do not know them.
      const labels = { ...body.Labels, [LABELS.container]: name };
      const options = { _query: { name }, _body: { ...body, Labels: labels }, abortSignal };
      return docker.createContainer(options as unknown as Dockerode.ContainerCreateOptions);
    },
    { fallback, container: container.facts.id },
  );
  const close = () => removeContainer(client, created.id);
  try {
    await client.call(
      action,
      (docker, abortSignal) => docker.getContainer(created.id).start({ abortSignal }),
      {
        fallback,
        container: created.id,
      },
    );
    await untilOpen(client, created.id, container.facts.name);
    return { containerId: created.id, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** @throws {MoorageError} UNSUPPORTED when a unix socket of this machine cannot be bound into the engine's containers */
export function requireLocal(client: DockerClient): void {
  if (client.endpoint.local && process.platform === "linux") return;
  throw new MoorageError(
    "UNSUPPORTED",
    `Cannot enforce an allow-list: the Docker engine at ${client.endpoint.url} does not run on this Linux machine`,
    {
      suggestion:
        "Use egress=none or egress=open with this engine, or an engine on the machine that runs Moorage.",
    },
  );
}

async function untilOpen(client: DockerClient, id: string, name: string): Promise<void> {
  const deadline = performance.now() + limits.openTimeoutMs;
  for (;;) {
    const action = `open the door of container "${name}"`;
    const log = await client.call(
      action,
      (docker, abortSignal) => docker.getContainer(id).logs({ stdout: true, stderr: true, abortSignal }),
      { container: id },
    );
    const text = log.toString("latin1");
    if (/open\n/.test(text)) return;
    const { State } = await client.call(action, (docker) => docker.getContainer(id).inspect(), {
      container: id,
    });
    if (State.ExitCode !== 0 || performance.now() > deadline) {
      const reason = text.replace(/[^\x20-\x7e]+/g, " ").trim() || `exit code ${State.ExitCode}`;
      throw new MoorageError("CONTAINER_START_FAILED", `Cannot ${action}: ${reason.slice(0, 500)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

interface HostProgram {
  readonly argv: readonly string[];
  readonly files: readonly { readonly source: string; readonly target: string }[];
}

/**
 * This very Node, with what it loads, told by the loader itself.
 *
 * @param exposed folders that the container can write to
 */
async function programOfHost(exposed: readonly string[]): Promise<HostProgram> {
  const node = await realpath(process.execPath);
  const target = (path: string) => `${PLACE}/${basename(path)}`;
  let listing = "";
  try {
    const ldd = hostProgram("ldd", exposed);
    if (ldd === null) throw new Error("there is no ldd");
    listing = (await promisify(execFile)(ldd, [node])).stdout;
  } catch (error) {
    const text = error instanceof Error && "stderr" in error ? String(error.stderr) : "";
    if (!/not a dynamic executable|Not a valid dynamic program/.test(text)) throw noProgram(error);
  }
  const libraries = [...listing.matchAll(/^\s*(\S+) => (\/\S+) \(0x/gm)].map(([, name = "", path = ""]) => ({
    name,
    path,
  }));
  const loader = /^\s*(\/\S*ld[-\w.]*)(?: => \S+)? \(0x/m.exec(listing)?.[1];
  if (listing !== "" && loader === undefined) throw noProgram(new Error("its loader is not known"));
  const files = await Promise.all(
    [
      ...libraries.map(({ name, path }) => ({ path, target: `${PLACE}/lib/${basename(name)}` })),
      ...(loader === undefined ? [] : [{ path: loader, target: target(loader) }]),
    ].map(async (file) => ({ source: await realpath(file.path), target: file.target })),
  );
  const start = loader === undefined ? [] : [target(loader), "--library-path", `${PLACE}/lib`];
  return {
    argv: [...start, `${PLACE}/node`],
    files: [{ source: node, target: `${PLACE}/node` }, ...files.filter(unique)],
  };
}

function unique(file: { target: string }, index: number, all: readonly { target: string }[]): boolean {
  return all.findIndex(({ target }) => target === file.target) === index;
}

function noProgram(error: unknown): MoorageError {
  const reason = isMoorageError(error) || error instanceof Error ? error.message : String(error);
  return new MoorageError(
    "UNSUPPORTED",
    `Cannot enforce an allow-list: this host's Node cannot be bound into a container: ${reason}`,
    {
      cause: error,
    },
  );
}
