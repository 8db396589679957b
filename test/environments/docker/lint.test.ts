import type Dockerode from "dockerode";
import { describe, expect, it } from "vitest";
import { lintContainer, lintEngine } from "../../../environments/docker/lint.ts";
import { PRIVILEGED_HOST_CONFIG } from "./privileged.ts";

interface Record {
  readonly HostConfig?: object;
  readonly Mounts?: readonly object[];
  readonly Config?: object;
}

/** A container as the backend makes it, changed. */
function record({ HostConfig = {}, Mounts = [], Config = {} }: Record = {}): Dockerode.ContainerInspectInfo {
  const made = {
    Config: { User: "1000:1000", Env: ["PATH=/bin"], ...Config },
    HostConfig: {
      Privileged: false,
      PidMode: "",
      NetworkMode: "none",
      CapAdd: ["CHOWN", "DAC_OVERRIDE"],
      CapDrop: ["ALL"],
      SecurityOpt: ["no-new-privileges"],
      PidsLimit: 512,
      Memory: 1024 ** 3,
      MaskedPaths: ["/proc/kcore"],
      ...HostConfig,
    },
    Mounts,
  };
  // The parts of the record that are looked at.
  return made as unknown as Dockerode.ContainerInspectInfo;
}

const bind = (Source: string, RW = true, Destination = "/x") => ({ Type: "bind", Source, Destination, RW });

describe("lintContainer()", () => {
  it("finds nothing in a container as this backend makes it", () => {
    expect(
      lintContainer(
        record({
          Mounts: [
            bind("/home/me/project"),
            { Type: "volume", Source: "/var/lib/docker/volumes/v", Destination: "/y", RW: true },
          ],
        }),
      ),
    ).toEqual([]);
  });

  it.each<readonly [string, string, Record]>([
    ["privileged", "privileged", { HostConfig: { Privileged: true } }],
    ["the engine's socket", "engine-socket", { Mounts: [bind("/var/run/docker.sock")] }],
    [
      "the engine's socket read-only under another name",
      "engine-socket",
      { Mounts: [bind("/opt/x/podman.sock", false)] },
    ],
    ["a containerd socket", "engine-socket", { Mounts: [bind("/srv/containerd/containerd.sock")] }],
    ["the folder of the sockets", "kernel-mount", { Mounts: [bind("/run", false)] }],
    ["the host's root", "host-root", { Mounts: [bind("/", false)] }],
    ["/etc writable", "system-mount", { Mounts: [bind("/etc")] }],
    ["/etc/cron.d writable", "system-mount", { Mounts: [bind("/etc/cron.d")] }],
    ["/var, in which /var/run is", "kernel-mount", { Mounts: [bind("/var")] }],
    ["every home writable", "system-mount", { Mounts: [bind("/home")] }],
    ["/proc", "kernel-mount", { Mounts: [bind("/proc", false)] }],
    ["/sys/fs/cgroup", "kernel-mount", { Mounts: [bind("/sys/fs/cgroup")] }],
    ["/dev", "kernel-mount", { Mounts: [bind("/dev")] }],
    ["SSH keys", "credentials-mount", { Mounts: [bind("/home/me/.ssh", false)] }],
    ["host processes", "host-pid", { HostConfig: { PidMode: "host" } }],
    ["host network", "host-network", { HostConfig: { NetworkMode: "host" } }],
    ["host shared memory", "host-ipc", { HostConfig: { IpcMode: "host" } }],
    ["host name", "host-uts", { HostConfig: { UTSMode: "host" } }],
    ["host users", "host-userns", { HostConfig: { UsernsMode: "host" } }],
    ["SYS_ADMIN", "capabilities", { HostConfig: { CapAdd: ["CAP_SYS_ADMIN"] } }],
    ["every capability", "capabilities", { HostConfig: { CapAdd: ["all"] } }],
    ["SYS_PTRACE", "capabilities", { HostConfig: { CapAdd: ["SYS_PTRACE"] } }],
    ["DAC_READ_SEARCH", "capabilities", { HostConfig: { CapAdd: ["DAC_READ_SEARCH"] } }],
    [
      "no seccomp",
      "unconfined-seccomp",
      { HostConfig: { SecurityOpt: ["no-new-privileges", "seccomp=unconfined"] } },
    ],
    [
      "no AppArmor",
      "unconfined-apparmor",
      { HostConfig: { SecurityOpt: ["no-new-privileges", "apparmor:unconfined"] } },
    ],
    [
      "no SELinux",
      "unconfined-label",
      { HostConfig: { SecurityOpt: ["no-new-privileges", "label=disable"] } },
    ],
    ["an open /proc", "unconfined-systempaths", { HostConfig: { MaskedPaths: [] } }],
    ["a disk", "devices", { HostConfig: { Devices: [{ PathOnHost: "/dev/sda" }] } }],
    ["device rules", "device-rules", { HostConfig: { DeviceCgroupRules: ["b *:* rmw"] } }],
    [
      "a filter that lets everything through",
      "unconfined-seccomp",
      {
        HostConfig: {
          SecurityOpt: ["no-new-privileges", 'seccomp={\n"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}'],
        },
      },
    ],
    ["a home's startup file", "system-mount", { Mounts: [bind("/home/me/.bashrc")] }],
    ["a home's services", "system-mount", { Mounts: [bind("/root/.config/systemd/user")] }],
    ["other containers' files", "credentials-mount", { Mounts: [bind("/var/lib/docker/overlay2", false)] }],
    ["other pods' tokens", "credentials-mount", { Mounts: [bind("/var/lib/kubelet/pods", false)] }],
    ["what holds other containers' files", "credentials-mount", { Mounts: [bind("/var/lib", false)] }],
    ["a path with more slashes", "system-mount", { Mounts: [bind("//etc/./cron.d/")] }],
    ["another engine's address", "engine-address", { Config: { Env: ["CONTAINER_HOST=tcp://10.0.0.1"] } }],
    ["an engine's address", "engine-address", { Config: { Env: ["DOCKER_HOST=tcp://10.0.0.1:2375"] } }],
  ])("calls %s unsafe", (_, rule, change) => {
    const findings = lintContainer(record(change)).filter(({ level }) => level === "unsafe");
    expect(findings.map((finding) => finding.rule)).toEqual([rule]);
  });

  it.each<readonly [string, Record]>([
    ["a cache of a home", { Mounts: [bind("/home/me/.cache/pip")] }],
    [
      "a filter that names what it allows",
      { HostConfig: { SecurityOpt: ["no-new-privileges", 'seccomp={"defaultAction":"SCMP_ACT_ERRNO"}'] } },
    ],
  ])("finds nothing in %s", (_, change) => {
    expect(lintContainer(record(change))).toEqual([]);
  });

  it.each<readonly [string, string, Record]>([
    ["default capabilities", "default-capabilities", { HostConfig: { CapDrop: null } }],
    ["new privileges", "new-privileges", { HostConfig: { SecurityOpt: null } }],
    ["no limit of processes", "no-pids-limit", { HostConfig: { PidsLimit: 0 } }],
    ["no limit of memory", "no-memory-limit", { HostConfig: { Memory: 0 } }],
    ["root", "root", { Config: { User: "" } }],
    [
      "host control groups, where others have their own",
      "host-cgroup",
      { HostConfig: { CgroupnsMode: "host" } },
    ],
    ["another container's network", "shared-network", { HostConfig: { NetworkMode: "container:abc" } }],
  ])("calls %s weak", (_, rule, change) => {
    expect(lintContainer(record(change)).map(({ rule: found, level }) => [found, level])).toEqual([
      [rule, "weak"],
    ]);
  });

  it("finds a privileged container in the engine's record of one, with all that it lacks", () => {
    const found = lintContainer(record({ HostConfig: PRIVILEGED_HOST_CONFIG, Config: { User: "" } }), "1");
    expect(found.filter(({ level }) => level === "unsafe").map(({ rule }) => rule)).toEqual(["privileged"]);
    expect(found.filter(({ level }) => level === "weak").map(({ rule }) => rule)).toEqual([
      "new-privileges",
      "no-pids-limit",
      "no-memory-limit",
      "root",
    ]);
  });

  it("takes the host's control groups for what they are with version 1, the engine's default", () => {
    expect(lintContainer(record({ HostConfig: { CgroupnsMode: "host" } }), "1")).toEqual([]);
  });

  it("names a secret variable and never its value", () => {
    const findings = lintContainer(record({ Config: { Env: ["API_TOKEN=canary-1"] } }));
    expect(findings.map(({ rule }) => rule)).toEqual(["secret-variables"]);
    expect(JSON.stringify(findings)).toContain("API_TOKEN");
    expect(JSON.stringify(findings)).not.toContain("canary-1");
  });
});

describe("lintEngine()", () => {
  it.each([
    ["runc", "1.0.0-rc5", 2],
    ["runc", "1.1.5+ds1", 2],
    ["runc", "1.1.12", 1],
    ["runc", "1.2.7", 1],
    ["runc", "1.2.8", 0],
    ["runc", "1.3.2", 1],
    ["runc", "1.3.3", 0],
    ["runc", "1.4.0", 0],
    ["runc", "unknown", 0],
    ["containerd", "1.5.9", 1],
    ["containerd", "1.6.20~ds1", 0],
    ["containerd", "2.0.0", 0],
    ["Engine", "1.0", 0],
  ])("security 18: %s %s has %d known ways out", (Name, Version, count) => {
    expect(lintEngine([{ Name, Version }]).length).toBe(count);
  });
});
