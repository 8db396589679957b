/**
 * Misconfigurations by which commands get out of a container, each from both sides: nobody can ask for it in a container
 * of our own, and a container that somebody else made with it is refused (or, where the engine makes every container so,
 * told) when it is joined. What is unsafe is accepted by its name and no other.
 */
import type Dockerode from "dockerode";
import { describe, expect, it } from "vitest";
import { createDockerBackend } from "../../../environments/docker/index.ts";
import { lintContainer, lintEngine } from "../../../environments/docker/lint.ts";
import { checkMount } from "../../../environments/docker/mount.ts";
import { isMoorageError } from "../../../src/errors.ts";
import { parseSpec } from "../../../src/spec.ts";

interface Misconfiguration {
  /** As `docker run` would be told. */
  readonly asked: string;
  /** What an operator could try in a specification, or a folder to mount. */
  readonly ours: { readonly option: string } | { readonly mount: string };
  readonly rule: string;
  readonly level?: "weak";
  readonly host?: object;
  readonly mount?: string;
  /** @default false */
  readonly readOnly?: boolean;
}

const LIST: readonly Misconfiguration[] = [
  { asked: "--privileged", ours: { option: "privileged" }, rule: "privileged", host: { Privileged: true } },
  ...["SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "DAC_READ_SEARCH", "NET_ADMIN", "BPF", "ALL"].map((name) => ({
    asked: `--cap-add ${name}`,
    ours: { option: `cap_add=${name}` },
    rule: "capabilities",
    host: { CapAdd: [`CAP_${name}`] },
  })),
  { asked: "--pid host", ours: { option: "pid=host" }, rule: "host-pid", host: { PidMode: "host" } },
  {
    asked: "--network host",
    ours: { option: "network=host" },
    rule: "host-network",
    host: { NetworkMode: "host" },
  },
  { asked: "--ipc host", ours: { option: "ipc=host" }, rule: "host-ipc", host: { IpcMode: "host" } },
  { asked: "--uts host", ours: { option: "uts=host" }, rule: "host-uts", host: { UTSMode: "host" } },
  {
    asked: "--userns host",
    ours: { option: "userns=host" },
    rule: "host-userns",
    host: { UsernsMode: "host" },
  },
  {
    asked: "--cgroupns host",
    ours: { option: "cgroupns=host" },
    rule: "host-cgroup",
    level: "weak",
    host: { CgroupnsMode: "host" },
  },
  ...["/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"].map((path) => ({
    asked: `-v ${path}:${path}`,
    ours: { mount: path },
    rule: "engine-socket",
    mount: path,
  })),
  { asked: "-v /run:/run", ours: { mount: "/run" }, rule: "kernel-mount", mount: "/run" },
  { asked: "-v /:/host", ours: { mount: "/" }, rule: "host-root", mount: "/" },
  { asked: "-v /etc:/host", ours: { mount: "/etc" }, rule: "system-mount", mount: "/etc" },
  { asked: "-v /etc/cron.d:/x", ours: { mount: "/etc/cron.d" }, rule: "system-mount", mount: "/etc/cron.d" },
  { asked: "-v /proc:/host", ours: { mount: "/proc" }, rule: "kernel-mount", mount: "/proc" },
  {
    asked: "-v /proc/sys/kernel:/x",
    ours: { mount: "/proc/sys/kernel" },
    rule: "kernel-mount",
    mount: "/proc/sys/kernel",
  },
  { asked: "-v /sys:/host", ours: { mount: "/sys" }, rule: "kernel-mount", mount: "/sys" },
  {
    asked: "-v /sys/fs/cgroup:/sys/fs/cgroup:rw",
    ours: { mount: "/sys/fs/cgroup" },
    rule: "kernel-mount",
    mount: "/sys/fs/cgroup",
  },
  { asked: "-v /dev:/dev", ours: { mount: "/dev" }, rule: "kernel-mount", mount: "/dev" },
  { asked: "-v /root:/root", ours: { mount: "/root" }, rule: "system-mount", mount: "/root" },
  { asked: "-v /home:/home", ours: { mount: "/home" }, rule: "system-mount", mount: "/home" },
  ...["/usr/local/bin", "/var/spool/cron", "/var/lib/docker/volumes", "/home/someone"].map((path) => ({
    asked: `-v ${path}:/x`,
    ours: { mount: path },
    rule: "system-mount",
    mount: path,
  })),
  ...["/root", "/home/someone", "/etc", "/etc/shadow", "/srv/me/.netrc"].map((path) => ({
    asked: `-v ${path}:/x:ro`,
    ours: { mount: path },
    rule: "credentials-mount",
    mount: path,
    readOnly: true,
  })),
  { asked: "-v ~/.ssh:/x", ours: { mount: "~/.ssh" }, rule: "credentials-mount", mount: "/srv/me/.ssh" },
  {
    asked: "--device /dev/sda",
    ours: { option: "device=/dev/sda" },
    rule: "devices",
    host: { Devices: [{ PathOnHost: "/dev/sda" }] },
  },
  {
    asked: "--device-cgroup-rule 'b *:* rwm'",
    ours: { option: "device_cgroup_rule=b" },
    rule: "device-rules",
    host: { DeviceCgroupRules: ["b *:* rwm"] },
  },
  ...["seccomp", "apparmor", "systempaths"].map((name) => ({
    asked: `--security-opt ${name}=unconfined`,
    ours: { option: `security_opt=${name}=unconfined` },
    rule: `unconfined-${name}`,
    host:
      name === "systempaths"
        ? { MaskedPaths: [] }
        : { SecurityOpt: ["no-new-privileges", `${name}=unconfined`] },
  })),
  {
    asked: "without read-only parts of /proc",
    ours: { option: "security_opt=systempaths=unconfined" },
    rule: "unconfined-systempaths",
    host: { ReadonlyPaths: [] },
  },
  {
    asked: "--security-opt label=type:spc_t",
    ours: { option: "security_opt=label=type:spc_t" },
    rule: "unconfined-label",
    host: { SecurityOpt: ["no-new-privileges", "label=type:spc_t"] },
  },
  {
    asked: "--security-opt no-new-privileges=false",
    ours: { option: "security_opt=no-new-privileges=false" },
    rule: "new-privileges",
    level: "weak",
    host: { SecurityOpt: [] },
  },
  {
    asked: "without --cap-drop ALL",
    ours: { option: "cap_drop=none" },
    rule: "default-capabilities",
    level: "weak",
    host: { CapDrop: [] },
  },
  {
    asked: "--pids-limit -1",
    ours: { option: "pids=-1" },
    rule: "no-pids-limit",
    level: "weak",
    host: { PidsLimit: -1 },
  },
];

/** A record as the engine has it of a container of ours, but for the change. */
function recordOf({ host = {}, mount, readOnly = false }: Misconfiguration): Dockerode.ContainerInspectInfo {
  const record = {
    Config: { User: "1000:1000", Env: [] },
    HostConfig: {
      CapDrop: ["ALL"],
      SecurityOpt: ["no-new-privileges"],
      PidsLimit: 512,
      Memory: 1024 ** 3,
      MaskedPaths: ["/proc/kcore"],
      ...host,
    },
    Mounts: mount === undefined ? [] : [{ Type: "bind", Source: mount, Destination: "/x", RW: !readOnly }],
  };
  // The parts of the record that are looked at.
  return record as unknown as Dockerode.ContainerInspectInfo;
}

const ENDPOINT = {
  url: "unix:///var/run/docker.sock",
  source: "the test",
  socketPath: "/var/run/docker.sock",
  host: null,
  port: null,
  tls: null,
  apiVersion: null,
  local: true,
};

describe("security 16, 17: misconfigurations of a container", () => {
  it("are at least eighteen kinds", () => {
    expect(new Set(LIST.map(({ rule }) => rule)).size).toBeGreaterThanOrEqual(18);
  });

  it.each(LIST.map((entry) => [entry.asked, entry] as const))("%s", async (_, entry) => {
    const { ours, rule, level = "unsafe" } = entry;
    if ("option" in ours) {
      expect(() => parseSpec(`docker:node:24?${ours.option}`)).toThrow(/unknown option|begins with "-"/);
      const [name = "", value = true] = ours.option.split("=");
      // As a caller without types would.
      const options = { image: "node:24", [name === "pids" ? "pidsLimit" : name]: value } as {
        image: string;
      };
      expect(() => createDockerBackend(options)).toThrow(/is no option|is a whole number/);
    } else {
      const refusal = await checkMount(ours.mount.replace("~", process.env.HOME ?? "/root"), ENDPOINT).catch(
        (error: unknown) => error,
      );
      // What this machine does not have cannot be mounted either.
      const code = isMoorageError(refusal) ? refusal.code : "";
      expect(code).toMatch(/^(UNSAFE_MOUNT|WORKDIR_MISSING|NOT_A_DIRECTORY)$/);
    }
    expect(lintContainer(recordOf(entry)).map((finding) => [finding.rule, finding.level])).toEqual([
      [rule, level],
    ]);
  });

  it("security 18: are told of an engine too, by its version", () => {
    const old = { runc: "1.1.11", containerd: "1.5.9" };
    const found = Object.entries(old).flatMap(([Name, Version]) => lintEngine([{ Name, Version }]));
    expect(new Set(found.map(({ rule }) => rule))).toEqual(new Set(["engine-version"]));
    expect(found.map(({ text }) => text).join()).toMatch(
      /CVE-2024-21626[\s\S]*CVE-2025-31133[\s\S]*CVE-2022-23648/,
    );
  });
});
