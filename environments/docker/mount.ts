/**
 * Whether a host folder may be bound into a container, and whose ids commands get then.
 *
 * A container that can write an engine's socket, the kernel's file systems or the system's folders is the host.
 * The check is made on the real path, which is also the one that the engine is given.
 *
 * Commands run with the ids of the caller, or of the folder's owner when the caller is root, so that what they
 * make belongs on the host to whom it should. A rootless engine maps its root to the caller, so there it is root.
 */
import { readFileSync } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { MoorageError } from "../../src/errors.ts";
import { homeFolder } from "../../src/folders.ts";
import { DOOR_SOCKET, GATE_FOLDER } from "../egress/door.ts";
import type { DockerEndpoint } from "./endpoint.ts";
import { CREDENTIALS_FOLDER, covers, ENGINE_FOLDERS, HOME_FOLDER, RUN_BY_HOST, RUN_BY_USER } from "./lint.ts";

export interface CheckedMount {
  /** With every link resolved. */
  readonly hostPath: string;
  readonly uid: number;
  readonly gid: number;
}

/** Refused with all that is below them. */
const KERNEL = ["/proc", "/sys", "/dev", "/run", "/var/run", "/boot"];
/** Refused themselves, and with them every folder above. */
const SYSTEM = [...KERNEL, ...RUN_BY_HOST, ...ENGINE_FOLDERS, "/usr", "/home", "/root"];
/** Of the proxy of another environment, which has its policy. */
const GATE_SOCKET = new RegExp(`/${GATE_FOLDER}[^/]+/${DOOR_SOCKET}$`);
/** Refused themselves: an agent's sockets are there, a terminal's, and those of other environments' proxies. */
const COMMON = ["/tmp", "/var/tmp"];
const SOCKET_NAME = /^(docker|dockerd|podman|containerd|crio|buildkitd|lxd|incus|nerdctl)[\w.-]*$/;

/**
 * @throws {MoorageError} UNSAFE_MOUNT; WORKDIR_MISSING when there is no such folder; UNSUPPORTED when the engine
 *   runs on another machine
 */
export async function checkMount(path: string, endpoint: DockerEndpoint): Promise<CheckedMount> {
  if (!endpoint.local) {
    throw new MoorageError(
      "UNSUPPORTED",
      `Cannot mount "${path}": the Docker engine at ${endpoint.url} is on another machine`,
      {
        suggestion:
          "Use an engine on this machine, or leave the mount out and write the files through the environment.",
      },
    );
  }
  const [hostPath, facts] = await realFolder(path);
  const sockets = [...knownSockets(endpoint), ...listeningSockets()];
  const realSockets = await Promise.all(sockets.map((socket) => realpath(socket).catch(() => socket)));
  // A guarded path may itself be a link, as /var/run is: both spellings count.
  const system = await Promise.all(SYSTEM.map((entry) => realpath(entry).catch(() => entry)));
  const kernel = await Promise.all(KERNEL.map((entry) => realpath(entry).catch(() => entry)));
  const inside = [...KERNEL, ...kernel, ...RUN_BY_HOST, ...ENGINE_FOLDERS].find((entry) =>
    covers(entry, hostPath),
  );
  if (inside) throw unsafe(path, hostPath, `it is in "${inside}"`);
  const above = [...SYSTEM, ...system].find((entry) => covers(hostPath, entry));
  if (above)
    throw unsafe(path, hostPath, hostPath === above ? "it is a system folder" : `it holds "${above}"`);
  const home = await realpath(homeFolder()).catch(() => homeFolder());
  if (covers(hostPath, home)) throw unsafe(path, hostPath, `it holds the home folder "${home}"`);
  if (HOME_FOLDER.test(hostPath)) throw unsafe(path, hostPath, "it is a home folder");
  if (RUN_BY_USER.test(hostPath)) throw unsafe(path, hostPath, "its user's programs run what lies there");
  const common = await Promise.all([...COMMON, tmpdir()].map((entry) => realpath(entry).catch(() => entry)));
  if (common.includes(hostPath)) throw unsafe(path, hostPath, "every program's files and sockets are there");
  if (CREDENTIALS_FOLDER.test(hostPath)) throw unsafe(path, hostPath, "it holds credentials");
  const socket = [...sockets, ...realSockets].find((entry) => covers(hostPath, entry));
  if (socket) throw unsafe(path, hostPath, `it holds the socket "${socket}"`);
  return { hostPath, ...facts };
}

/** The ids that commands get for a mount, as `uid:gid`. */
export function mountUser(mount: CheckedMount, rootless: boolean): string {
  if (rootless) return "0:0";
  const caller = process.getuid?.() ?? 0;
  const group = process.getgid?.() ?? 0;
  return caller === 0 ? `${mount.uid}:${mount.gid}` : `${caller}:${group}`;
}

async function realFolder(path: string): Promise<[string, { uid: number; gid: number }]> {
  try {
    const hostPath = await realpath(path);
    const facts = await stat(hostPath);
    if (facts.isSocket()) throw unsafe(path, hostPath, "it is a socket");
    if (!facts.isDirectory()) {
      throw new MoorageError("NOT_A_DIRECTORY", `Cannot mount "${path}": it is not a folder`);
    }
    return [hostPath, { uid: facts.uid, gid: facts.gid }];
  } catch (error) {
    if (error instanceof MoorageError) throw error;
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    const reason = MOUNT_REASONS[code] ?? String(error);
    throw new MoorageError("WORKDIR_MISSING", `Cannot mount "${path}": ${reason}`, { cause: error });
  }
}

const MOUNT_REASONS: Readonly<Record<string, string>> = {
  ENOENT: "there is no such folder",
  ENOTDIR: "a part of the path is a file",
  EACCES: "this user may not look there",
  ELOOP: "its links lead in a circle",
};

function knownSockets(endpoint: DockerEndpoint): string[] {
  return [
    ...(endpoint.socketPath ? [endpoint.socketPath] : []),
    ...(process.env.SSH_AUTH_SOCK ? [process.env.SSH_AUTH_SOCK] : []),
    ...["run/docker.sock", "desktop/docker.sock"].map((path) => join(homeFolder(), ".docker", path)),
  ];
}

/** Sockets that engines listen on at this moment, wherever they were put. Linux lists them; elsewhere none. */
function listeningSockets(): string[] {
  let table: string;
  try {
    table = readFileSync("/proc/net/unix", "utf8");
  } catch {
    // Not Linux: the known places remain.
    return [];
  }
  const paths = table.split("\n").map((line) => /\s(\/.*)$/.exec(line)?.[1] ?? "");
  return [...new Set(paths)].filter((path) => SOCKET_NAME.test(basename(path)) || GATE_SOCKET.test(path));
}

function unsafe(path: string, hostPath: string, reason: string): MoorageError {
  const real = path === hostPath ? "" : ` (really "${hostPath}")`;
  return new MoorageError("UNSAFE_MOUNT", `Cannot mount "${path}"${real}: ${reason}`);
}
