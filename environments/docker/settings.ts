/** The options of a Docker environment, and the check that happens before anything is touched. */
import { isAbsolute, posix, resolve } from "node:path";
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { EgressCredential, EgressPolicy } from "../base.ts";
import { doorVariables } from "../egress/door.ts";
import { compilePolicy } from "../egress/policy.ts";
import type { DockerEndpoint } from "./endpoint.ts";
import type { DockerPool } from "./pool.ts";

export interface DockerOptions {
  /** Image to make the container from. It needs /bin/sh. Exactly one of `image` and `attach` is given. */
  readonly image?: string;
  /** Name or id of a running container of someone else's; it is never stopped, changed or removed. */
  readonly attach?: string;
  /** Stable name, written into labels; a kept container of that name is found again. @default a random id */
  readonly id?: string;
  /** Absolute folder inside the container. @default "/workspace"; attached: the container's working directory */
  readonly workspace?: string;
  /** Folder of this host, bound to the workspace. Commands then run with its owner's ids; see `user`. */
  readonly mount?: string;
  /**
   * `name`, `uid` or `uid:gid` that commands run as.
   * @default with a mount the caller's ids, or the folder's owner's when the caller is root; else the image's
   */
  readonly user?: string;
  /** Bytes, or a number with k, m or g (powers of 1024); `0` for no limit. @default limits.dockerMemoryBytes */
  readonly memory?: number | string;
  /** Processor share, such as 1.5. @default all of the engine's */
  readonly cpus?: number;
  /** Processes and threads. @default limits.dockerPidsLimit */
  readonly pidsLimit?: number;
  /** Size of /dev/shm: bytes, or a number with k, m or g. @default limits.dockerShmBytes */
  readonly shmSize?: number | string;
  /** `linux/amd64` and the like. @default the engine's own */
  readonly platform?: string;
  /** Whether an image that is not there is pulled. @default "missing" */
  readonly pull?: "missing" | "never";
  /** Makes the container's own root read-only; the workspace, /tmp, /var/tmp and /run stay writable. @default false */
  readonly readOnly?: boolean;
  /**
   * `none` and allow-lists give the container no network at all; an allow-list also a door to a proxy.
   * @default "open"
   */
  readonly egress?: EgressPolicy;
  /** Put into requests by the proxy of an allow-list. */
  readonly credentials?: readonly EgressCredential[];
  /** Rules of the linter whose faults are accepted in a container that is attached to. @default none */
  readonly unsafe?: readonly string[];
  /** Variables of every command. They travel with each command and are never part of the container's record. */
  readonly env?: Readonly<Record<string, string>>;
  /** The container is left at `stop` and found again by `id`; orphan removal passes it over. @default false */
  readonly keep?: boolean;
  /** Started containers kept ready, or a pool shared with other environments of the same options. @default 0 */
  readonly pool?: number | DockerPool;
  /** Which engine. @default the one that the `docker` command would use */
  readonly endpoint?: DockerEndpoint;
}

/** Options after the check. */
export interface DockerSettings {
  readonly image: string | null;
  readonly attach: string | null;
  readonly id: string | null;
  readonly workspace: string | null;
  readonly mount: string | null;
  readonly user: string | null;
  readonly memoryBytes: number;
  readonly nanoCpus: number;
  readonly pidsLimit: number;
  readonly shmBytes: number;
  readonly platform: string | null;
  readonly pull: "missing" | "never";
  readonly readOnly: boolean;
  readonly egress: EgressPolicy;
  readonly unsafe: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly keep: boolean;
}

const KEYS = new Set<string>([
  "image",
  "attach",
  "id",
  "workspace",
  "mount",
  "user",
  "memory",
  "cpus",
  "pidsLimit",
  "shmSize",
  "platform",
  "pull",
  "readOnly",
  "egress",
  "credentials",
  "unsafe",
  "env",
  "keep",
  "pool",
  "endpoint",
] satisfies (keyof DockerOptions)[]);

/** What only makes sense for a container that we make. */
const CREATE_ONLY = [
  "mount",
  "memory",
  "cpus",
  "pidsLimit",
  "shmSize",
  "platform",
  "pull",
  "readOnly",
  "pool",
  "keep",
] as const satisfies (keyof DockerOptions)[];

/** Options that a specification spells in another way. */
const OPTION_WORDS: Readonly<Record<string, string>> = {
  pidsLimit: "pids",
  shmSize: "shm_size",
  readOnly: "read_only",
};

/** The engine's own minimum. */
const MEMORY_MIN_BYTES = 6 * 1024 * 1024;

/** @throws {MoorageError} INVALID_SPEC, UNSUPPORTED */
export function checkOptions(options: DockerOptions): DockerSettings {
  for (const key of Object.keys(options)) {
    if (!KEYS.has(key)) throw invalid(`"${key}" is no option of a Docker environment`);
  }
  const { image, attach, egress = "open" } = options;
  if ((image === undefined) === (attach === undefined))
    throw invalid("name either an image or a container to attach to");
  if (image !== undefined) checkImage(image);
  if (attach !== undefined) {
    if (!/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$/.test(attach))
      throw invalid(`"${attach}" is no container name or id`);
    const extra = CREATE_ONLY.find((key) => options[key] !== undefined && options[key] !== false);
    if (extra === "mount") {
      throw new MoorageError(
        "UNSUPPORTED",
        `Cannot mount a folder into container "${attach}": it runs already`,
        {
          suggestion:
            "Leave --workspace out and name a folder of the container with ?workspace=/path, or copy one in with --sync.",
        },
      );
    }
    if (extra)
      throw invalid(
        `"${OPTION_WORDS[extra] ?? extra}" is fixed for container "${attach}", which runs already`,
      );
  }
  if (options.unsafe !== undefined && attach === undefined)
    throw invalid('"unsafe" is for a container that is attached to; one of our own has nothing to accept');
  const { kind } = compilePolicy(egress);
  if (kind !== "open" && attach !== undefined) {
    throw new MoorageError(
      "UNSUPPORTED",
      "Cannot restrict the egress of a container that is attached to: its network is its owner's",
      { suggestion: "Name an image instead, or have the container's owner restrict it." },
    );
  }
  const { user, workspace, platform, pull = "missing", id, mount, cpus, env = {} } = options;
  if (
    user !== undefined &&
    !/^([a-z_][a-z0-9_.-]{0,31}|\d{1,10})(:([a-z_][a-z0-9_.-]{0,31}|\d{1,10}))?$/i.test(user)
  ) {
    throw invalid(`"${user}" is no user; write name, uid or uid:gid`);
  }
  if (platform !== undefined && !/^[a-z0-9]+(\/[a-z0-9_.]+){0,2}$/.test(platform)) {
    throw invalid(`"${platform}" is no platform such as linux/amd64`);
  }
  if (pull !== "missing" && pull !== "never")
    throw invalid(`pull is "missing" or "never", not "${String(pull)}"`);
  if (id !== undefined && !/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$/.test(id))
    throw invalid(`"${id}" is no environment id`);
  if (mount !== undefined && (mount === "" || mount.includes("\0")))
    throw invalid("the mount names no folder");
  if (cpus !== undefined && !(cpus > 0 && cpus <= 4096))
    throw invalid(`cpus is a number above 0, not ${cpus}`);
  for (const [name, value] of Object.entries(env)) {
    if (!/^[^=\0]+$/.test(name) || value.includes("\0"))
      throw invalid(`the variable "${name}" cannot be set`);
  }
  const memoryBytes = bytes("memory", options.memory, limits.dockerMemoryBytes);
  if (memoryBytes !== 0 && memoryBytes < MEMORY_MIN_BYTES)
    throw invalid("memory is at least 6m, or 0 for no limit");
  const poolSize = typeof options.pool === "number" ? count("pool", options.pool, 0) : options.pool ? 1 : 0;
  if (poolSize > 0 && options.keep) throw invalid("a kept container cannot come from a pool");
  return {
    image: image ?? null,
    attach: attach ?? null,
    id: id ?? null,
    workspace: workspace === undefined ? null : checkWorkspace(workspace),
    mount: mount === undefined ? null : resolve(mount),
    user: user ?? null,
    memoryBytes,
    nanoCpus: Math.round((cpus ?? 0) * 1e9),
    pidsLimit: count("pidsLimit", options.pidsLimit ?? limits.dockerPidsLimit, 1),
    shmBytes: bytes("shmSize", options.shmSize, limits.dockerShmBytes),
    platform: platform ?? null,
    pull,
    readOnly: options.readOnly ?? false,
    egress,
    unsafe: options.unsafe ?? [],
    env: kind === "allow-list" ? { ...doorVariables(), ...env } : env,
    keep: options.keep ?? false,
  };
}

/** `name[:tag][@digest]` with an optional registry; the engine checks the fine points. */
function checkImage(image: string): void {
  const part = "[a-zA-Z0-9](?:[a-zA-Z0-9._-]*[a-zA-Z0-9])?";
  const reference = `^(?:${part}(?::\\d{1,5})?/)?${part}(?:/${part})*(?::[\\w][\\w.-]{0,127})?(?:@[a-z0-9]+:[0-9a-f]{32,})?$`;
  if (image.length > 512 || !new RegExp(reference).test(image)) {
    throw invalid(`${JSON.stringify(image)} is no image name`);
  }
}

function checkWorkspace(path: string): string {
  const clean = posix.normalize(path).replace(/(.)\/$/, "$1");
  if (!isAbsolute(path) || path.includes("\0")) throw invalid(`the workspace "${path}" is not absolute`);
  if (/^\/(proc|sys|dev)(\/|$)/.test(clean)) {
    throw invalid(`the workspace "${path}" lies in a kernel file system`);
  }
  return clean;
}

function bytes(key: string, value: number | string | undefined, fallback: number): number {
  if (value === undefined) return fallback;
  const match = /^(\d+(?:\.\d+)?)\s*(?:([kmg])(?:i?b)?|b)?$/i.exec(String(value));
  const unit = { k: 1024, m: 1024 ** 2, g: 1024 ** 3 }[match?.[2]?.toLowerCase() ?? ""] ?? 1;
  const result = Math.round(Number(match?.[1]) * unit);
  if (!match || !Number.isSafeInteger(result)) {
    throw invalid(`${key} is bytes or a number with k, m or g, not "${value}"`);
  }
  return result;
}

function count(key: string, value: number, minimum: number): number {
  if (!Number.isInteger(value) || value < minimum || value > 1_000_000) {
    throw invalid(`${key} is a whole number from ${minimum}, not ${value}`);
  }
  return value;
}

function invalid(text: string): MoorageError {
  return new MoorageError("INVALID_SPEC", `Cannot use this Docker environment: ${text}`);
}
