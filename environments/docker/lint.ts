/**
 * What of a container's making, or of its engine, lets commands out of it. Looks at the engine's own record, so it
 * finds the same faults in containers that others made.
 *
 * `unsafe` is the host, more or less: such a container is joined only when the operator names the rule. `weak` is a
 * defence that is missing.
 */
import { normalize } from "node:path/posix";
import type Dockerode from "dockerode";
import { isSecretVariable } from "../local/variables.ts";

export interface LintFinding {
  /** Stable, such as `privileged`; what the operator names to have it all the same. */
  readonly rule: string;
  readonly level: "unsafe" | "weak";
  /** For people. */
  readonly text: string;
}

/** Capabilities that are the host's root, or a way to it. */
const UNSAFE_CAPABILITIES = new Set([
  "ALL",
  "SYS_ADMIN",
  "SYS_MODULE",
  "SYS_PTRACE",
  "SYS_RAWIO",
  "SYS_BOOT",
  "SYS_TIME",
  "SYSLOG",
  "DAC_READ_SEARCH",
  "BPF",
  "PERFMON",
  "MAC_ADMIN",
  "MAC_OVERRIDE",
  "NET_ADMIN",
  "CHECKPOINT_RESTORE",
]);

/** Host paths that are unsafe themselves, below and, when writable, above. */
const KERNEL_PATHS = ["/proc", "/sys", "/dev", "/boot", "/run", "/var/run", "/lib/modules"];
const SYSTEM_PATHS = [
  "/etc",
  "/root",
  "/home",
  "/usr",
  "/bin",
  "/sbin",
  "/lib",
  "/lib64",
  "/var",
  "/var/lib/docker",
  "/var/lib/containerd",
  "/var/lib/kubelet",
  "/opt",
];
/** What is written there or below, the machine runs. */
export const RUN_BY_HOST = [
  "/etc",
  "/bin",
  "/sbin",
  "/lib",
  "/lib32",
  "/lib64",
  "/libx32",
  ...["bin", "sbin", "lib", "lib32", "lib64", "libexec"].flatMap((name) => [
    `/usr/${name}`,
    `/usr/local/${name}`,
  ]),
  "/var/spool/cron",
  "/var/spool/at",
];
/** Everything of all containers is there or below. */
export const ENGINE_FOLDERS = [
  "/var/lib/docker",
  "/var/lib/containerd",
  "/var/lib/containers",
  "/var/lib/kubelet",
];
/** A user's own folder, with what their shell runs and where they may go. */
export const HOME_FOLDER = /^\/(?:root|home\/[^/]+|Users\/[^/]+)$/;
/** Paths of folders and files in which programs keep their users' credentials. */
export const CREDENTIALS_FOLDER =
  /(?:^|\/)\.(?:ssh|aws|gnupg|kube|docker|azure|netrc|git-credentials|pypirc|password-store|terraform\.d|config\/(?:gcloud|gh)|local\/share\/keyrings)(?:\/|$)/;
/** What a user's shell, session or tools run from their own folder. */
export const RUN_BY_USER =
  /^\/(?:root|home\/[^/]+|Users\/[^/]+)\/(?:\.(?:bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|zshrc|zshenv|zprofile|zlogin|login|cshrc|tcshrc|kshrc|pam_environment|gitconfig|vimrc|tmux\.conf|xprofile|xinitrc|xsession|npmrc)|\.config(?:\/(?:autostart|systemd|environment\.d|git|fish|nvim)(?:\/.*)?)?|\.local(?:\/(?:bin|share\/(?:applications|systemd))(?:\/.*)?)?|\.(?:cargo|vscode|vscode-server)(?:\/.*)?|bin)$/;
/** Names of an engine's address for its clients. */
const ENGINE_ADDRESS = /^(?:DOCKER_HOST|CONTAINER_HOST|BUILDKIT_HOST|CONTAINERD_ADDRESS|PODMAN_HOST)$/;
const CREDENTIALS_OF_HOST =
  /^\/(?:home|Users|etc(?:\/(?:g?shadow-?|ssh|ssl\/private|kubernetes|krb5\.keytab)(?:\/.*)?)?)$/;
const ENGINE_SOCKET =
  /(?:^|\/)(?:docker|dockerd|podman|containerd|crio|cri-dockerd|buildkitd|lxd|incus|nerdctl)[\w.-]*\.sock$/;

/**
 * Findings, `unsafe` ones first; none for a container as this backend makes it.
 *
 * @param cgroupVersion of the engine's machine: with version 1 the host's own control groups, mounted read-only, are
 *   what every container gets. @default not known, and taken for 2
 */
export function lintContainer(
  info: Dockerode.ContainerInspectInfo,
  cgroupVersion: string | null = null,
): readonly LintFinding[] {
  const host = info.HostConfig;
  const findings: LintFinding[] = [];
  const unsafe = (rule: string, text: string) => findings.push({ rule, level: "unsafe", text });
  const weak = (rule: string, text: string) => findings.push({ rule, level: "weak", text });

  if (host.Privileged) unsafe("privileged", "it is privileged");
  for (const [rule, mode, name] of [
    ["host-pid", host.PidMode, "processes"],
    ["host-network", host.NetworkMode, "network"],
    ["host-ipc", host.IpcMode, "shared memory"],
    ["host-uts", host.UTSMode, "host name"],
    ["host-userns", host.UsernsMode, "user numbers, on an engine that remaps them"],
  ] as const) {
    if (mode === "host") unsafe(rule, `it has the host's ${name}`);
    // The companion of a door joins another container on purpose, and is never worked in.
    else if (/^container:/.test(mode ?? ""))
      weak(rule.replace("host-", "shared-"), `it shares ${name} with another container`);
  }
  const added = (host.CapAdd ?? []).map((capability: string) =>
    capability.replace(/^CAP_/i, "").toUpperCase(),
  );
  for (const capability of added.filter((name: string) => UNSAFE_CAPABILITIES.has(name)))
    unsafe("capabilities", `it has the capability ${capability}`);
  for (const option of host.SecurityOpt ?? []) {
    const [, name = "", value = ""] = /^([a-z-]+)[=:](.*)$/is.exec(option) ?? [];
    // With its privileges the engine switches labels off by itself: who accepts them has accepted that.
    const unlabelled = name === "label" && /^(?:disable$|type:(?:spc_t|unconfined_t)$)/.test(value);
    const allowsAll = name === "seccomp" && filtersNothing(value);
    if (value === "unconfined" || allowsAll || (unlabelled && !host.Privileged))
      unsafe(`unconfined-${name}`, `its ${name} confinement is switched off`);
  }
  // `systempaths=unconfined` is told only by its effect.
  if ((host.MaskedPaths?.length === 0 || host.ReadonlyPaths?.length === 0) && !host.Privileged)
    unsafe("unconfined-systempaths", "nothing of /proc is hidden in it or read-only");
  for (const { PathOnHost } of host.Devices ?? [])
    unsafe("devices", `it has the host's device ${PathOnHost}`);
  if (hasHostCgroups(info) && cgroupVersion !== "1") weak("host-cgroup", "it sees the host's control groups");
  if ((host.DeviceCgroupRules ?? []).length > 0)
    unsafe("device-rules", "it may make device files of the host");
  for (const mount of info.Mounts ?? []) lintMount(mount, unsafe);

  if (
    !(host.CapDrop ?? []).some((capability: string) => /^(CAP_)?ALL$/i.test(capability)) &&
    !host.Privileged
  )
    weak("default-capabilities", "it keeps the engine's default capabilities");
  if (!(host.SecurityOpt ?? []).some((option: string) => /^no-new-privileges(?:[=:]true)?$/.test(option)))
    weak("new-privileges", "programs in it can gain privileges");
  if (!host.PidsLimit || host.PidsLimit < 0)
    weak("no-pids-limit", "the number of its processes is not limited");
  if (!host.Memory) weak("no-memory-limit", "its memory is not limited");
  if (/^(0|root)?(:.*)?$/.test(info.Config.User ?? "")) weak("root", "its programs run as root");
  for (const variable of info.Config.Env ?? []) {
    const [name = "", ...value] = variable.split("=");
    if (ENGINE_ADDRESS.test(name)) unsafe("engine-address", "its variables name an engine");
    // Never the value.
    else if (isSecretVariable(name, value.join("=")))
      weak("secret-variables", `its record holds the value of ${name}`);
  }
  return findings.sort((a, b) => a.level.localeCompare(b.level));
}

/** Whether a filter of system calls, as the engine keeps it, lets through what it does not name. */
function filtersNothing(profile: string): boolean {
  if (!profile.startsWith("{")) return false;
  try {
    const { defaultAction } = JSON.parse(profile) as { readonly defaultAction?: unknown };
    return /^SCMP_ACT_(?:ALLOW|LOG)$/.test(String(defaultAction));
  } catch {
    // The engine would not have taken it.
    return false;
  }
}

export function hasHostCgroups({ HostConfig }: Dockerode.ContainerInspectInfo): boolean {
  // The engine says more than the library's types know.
  const host: Dockerode.HostConfig & { readonly CgroupnsMode?: string } = HostConfig;
  return host.CgroupnsMode === "host";
}

/** Whether a path is another one, or what that lies in. */
export function covers(outer: string, inner: string): boolean {
  return outer === "/" || inner === outer || inner.startsWith(`${outer}/`);
}

function lintMount(
  { Type, Source: source = "", Destination, RW }: Dockerode.ContainerInspectInfo["Mounts"][number],
  unsafe: (rule: string, text: string) => void,
): void {
  const Source = source === "" ? "" : normalize(`/${source}`).replace(/(?<=.)\/$/, "");
  if (Type !== undefined && Type !== "bind") return;
  // Files that the engine itself binds.
  if (
    /^\/etc\/(?:hosts|hostname|resolv\.conf)$/.test(Destination) &&
    /\/containers\/[0-9a-f]{12,}\//.test(Source)
  )
    return;
  if (ENGINE_SOCKET.test(Source) || ENGINE_SOCKET.test(Destination)) {
    unsafe("engine-socket", `an engine's socket is mounted at ${Destination}`);
  } else if (Source === "/") {
    unsafe("host-root", `the host's root is mounted at ${Destination}`);
  } else if (KERNEL_PATHS.some((path) => covers(path, Source) || covers(Source, path))) {
    unsafe("kernel-mount", `the host's ${Source} is mounted at ${Destination}`);
  } else if (
    RW &&
    (SYSTEM_PATHS.some((path) => covers(Source, path)) ||
      [...RUN_BY_HOST, ...ENGINE_FOLDERS].some((path) => covers(path, Source)) ||
      HOME_FOLDER.test(Source) ||
      RUN_BY_USER.test(Source))
  ) {
    unsafe("system-mount", `the host's ${Source} is mounted writable at ${Destination}`);
  } else if (
    [CREDENTIALS_FOLDER, CREDENTIALS_OF_HOST, HOME_FOLDER].some((path) => path.test(Source)) ||
    // Other containers' files and tokens.
    ENGINE_FOLDERS.some((path) => covers(path, Source) || covers(Source, path))
  ) {
    unsafe("credentials-mount", `the host's ${Source} is mounted at ${Destination}`);
  }
}

/** Known escapes by version: the first fixed versions of each line, newest first. */
const KNOWN: readonly {
  readonly component: string;
  readonly name: string;
  /** A version is good from the one of its own line on; lines above all of them are good. */
  readonly fixed: readonly string[];
}[] = [
  { component: "runc", name: "CVE-2019-5736", fixed: ["1.0.0"] },
  { component: "runc", name: "CVE-2024-21626", fixed: ["1.1.12"] },
  { component: "runc", name: "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881", fixed: ["1.3.3", "1.2.8"] },
  { component: "containerd", name: "CVE-2022-23648", fixed: ["1.6.1", "1.5.10", "1.4.13"] },
];

/**
 * Parts of an engine with publicly known ways out. Distributions mend old versions without changing the number, so each
 * is a reason to look, not a proof.
 *
 * @param components as the engine's `version` has them
 */
export function lintEngine(
  components: readonly { readonly Name?: string; readonly Version?: string }[],
): readonly LintFinding[] {
  return components.flatMap(({ Name = "", Version = "" }) =>
    KNOWN.filter(({ component, fixed }) => component === Name && !isFixed(Version, fixed)).map(
      ({ name }) => ({
        rule: "engine-version",
        level: "weak" as const,
        text: `${Name} ${Version} has ${name} unless its distribution mended it`,
      }),
    ),
  );
}

function isFixed(version: string, fixed: readonly string[]): boolean {
  const own = numbers(version);
  // A version that cannot be read is none that can be blamed.
  if (!own) return true;
  const later = ([a, b, c]: readonly number[], [x, y, z]: readonly number[]) =>
    (a ?? 0) - (x ?? 0) || (b ?? 0) - (y ?? 0) || (c ?? 0) - (z ?? 0);
  const lines = fixed.map((text) => numbers(text) ?? []);
  const same = lines.find(([major, minor]) => major === own[0] && minor === own[1]);
  if (same) return later(own, same) >= 0;
  return lines.every((line) => later(own, line) > 0);
}

function numbers(version: string): readonly number[] | null {
  const match = /^v?(\d+)\.(\d+)(?:\.(\d+))?/.exec(version);
  return match ? match.slice(1).map((part) => Number(part ?? 0)) : null;
}
