import { describe, expect, it } from "vitest";
import { createDockerBackend, type DockerOptions } from "../../../environments/docker/index.ts";
import { checkOptions } from "../../../environments/docker/settings.ts";

const image = "debian:12";

describe("createDockerBackend()", () => {
  it.each<[string, object]>([
    ["neither image nor container", {}],
    ["both", { image, attach: "box" }],
    ["an image that looks like an option", { image: "--privileged" }],
    ["an image with a space", { image: "debian 12" }],
    ["an empty image", { image: "" }],
    ["a container that looks like an option", { attach: "-x" }],
    ["a container path", { attach: "../x" }],
    ["a user that looks like an option", { image, user: "-1" }],
    ["a relative workspace", { image, workspace: "w" }],
    ["a workspace in /proc", { image, workspace: "/x/../proc/self" }],
    ["a workspace in /dev", { image, workspace: "/dev/fd" }],
    ["memory without a number", { image, memory: "lots" }],
    ["less memory than the engine takes", { image, memory: "1m" }],
    ["negative processors", { image, cpus: -1 }],
    ["half a process", { image, pidsLimit: 0.5 }],
    ["no such pull policy", { image, pull: "always" }],
    ["a kept container from a pool", { image, keep: true, pool: 1 }],
    ["a NUL in a variable", { image, env: { A: "\0" } }],
    ["an unknown option", { image, memorry: "1g" }],
    ["privileged", { image, privileged: true }],
    ["added capabilities", { image, capAdd: ["SYS_ADMIN"] }],
    ["devices", { image, devices: ["/dev/kvm"] }],
    ["host namespaces", { image, pidMode: "host" }],
  ])("refuses %s", (_what, options) => {
    // The point is what the type would not let through.
    expect(() => createDockerBackend(options as DockerOptions)).toThrow(
      expect.objectContaining({ code: "INVALID_SPEC" }),
    );
  });

  it("refuses a mount into an attached container", () => {
    expect(() => createDockerBackend({ attach: "box", mount: "/tmp" })).toThrow(
      expect.objectContaining({ code: "UNSUPPORTED" }),
    );
  });

  it.each(["none", { allow: ["example.com"] }, { allow: [] }] as const)(
    "refuses egress %j of a container that it attaches to, whose network is its owner's",
    (egress) => {
      expect(() => createDockerBackend({ attach: "other", egress })).toThrow(
        expect.objectContaining({ code: "UNSUPPORTED" }),
      );
    },
  );

  it("refuses an egress policy that is malformed", () => {
    expect(() => createDockerBackend({ image, egress: { allow: ["a b"] } })).toThrow(
      expect.objectContaining({ code: "INVALID_SPEC" }),
    );
  });

  it.each([
    "debian",
    "debian:12",
    "localhost:5000/a/b-c:tag_1",
    "ghcr.io/Owner/name@sha256:".concat("a".repeat(64)),
    "a__b/c.d",
  ])("takes the image name %s", (name) => {
    expect(checkOptions({ image: name }).image).toBe(name);
  });

  it.each([
    [1024 * 1024 * 64, 67_108_864],
    ["64m", 67_108_864],
    ["1.5GiB", 1_610_612_736],
    ["8000000b", 8_000_000],
    ["0", 0],
  ])("reads memory %j as %i bytes", (memory, expected) => {
    expect(checkOptions({ image, memory }).memoryBytes).toBe(expected);
  });

  it("touches nothing", () => {
    const backend = createDockerBackend({
      image: "no.such.registry/no/such:image",
      mount: "/no/such/folder",
    });
    expect({
      workspace: backend.workspace,
      isolation: backend.isolation,
      exposedHostPaths: backend.exposedHostPaths,
      description: backend.description,
      containerId: backend.containerId,
    }).toEqual({
      workspace: "/workspace",
      isolation: "container",
      exposedHostPaths: ["/no/such/folder"],
      description: "no.such.registry/no/such:image",
      containerId: null,
    });
  });
});
