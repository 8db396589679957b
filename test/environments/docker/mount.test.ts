import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { DockerEndpoint } from "../../../environments/docker/endpoint.ts";
import { checkMount, mountUser } from "../../../environments/docker/mount.ts";

let dir: string;
beforeEach(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), "moorage-mount-")));
});
afterEach(() => rmSync(dir, { recursive: true }));

const endpoint = (over: Partial<DockerEndpoint> = {}): DockerEndpoint => ({
  url: "unix:///var/run/docker.sock",
  source: "the test",
  socketPath: "/var/run/docker.sock",
  host: null,
  port: null,
  tls: null,
  apiVersion: null,
  local: true,
  ...over,
});

describe("checkMount()", () => {
  it.each([
    "/",
    "/proc",
    "/proc/self",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/var",
    "/var/lib",
    "/etc",
    "/usr",
    "/tmp",
    "/var/tmp",
  ])("refuses %s", async (path) => {
    await expect(checkMount(path, endpoint())).rejects.toMatchObject({ code: "UNSAFE_MOUNT" });
  });

  it.each(["/", "/proc/self/cwd/../../../../..", "/run", "/proc"])("refuses a link to %s", async (target) => {
    const link = join(dir, "link");
    symlinkSync(target, link);
    await expect(checkMount(link, endpoint())).rejects.toMatchObject({ code: "UNSAFE_MOUNT" });
  });

  it("refuses the folder of the engine's own socket, wherever it is", async () => {
    const socketPath = join(dir, "deep", "engine.sock");
    mkdirSync(join(dir, "deep"));
    await expect(checkMount(dir, endpoint({ socketPath }))).rejects.toMatchObject({
      code: "UNSAFE_MOUNT",
      message: expect.stringContaining(socketPath),
    });
  });

  it("refuses a folder with another engine's socket in it", async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(join(dir, "podman.sock"), resolve));
    try {
      await expect(checkMount(dir, endpoint())).rejects.toMatchObject({ code: "UNSAFE_MOUNT" });
      await expect(checkMount(join(dir, "podman.sock"), endpoint())).rejects.toMatchObject({
        code: "UNSAFE_MOUNT",
      });
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
  });

  it("refuses a folder with the socket of another environment's proxy, or of the user's agent", async () => {
    const gate = join(dir, "moorage-egress-x");
    mkdirSync(gate);
    const servers = ["door", "agent.1"].map((name) => [createServer(), join(gate, name)] as const);
    const agent = process.env.SSH_AUTH_SOCK;
    try {
      for (const [server, path] of servers)
        await new Promise<void>((resolve) => server.listen(path, resolve));
      await expect(checkMount(dir, endpoint())).rejects.toMatchObject({ code: "UNSAFE_MOUNT" });
      servers[0]?.[0].close();
      process.env.SSH_AUTH_SOCK = servers[1]?.[1];
      await expect(checkMount(dir, endpoint())).rejects.toMatchObject({
        code: "UNSAFE_MOUNT",
        message: expect.stringContaining("agent.1"),
      });
    } finally {
      if (agent === undefined) delete process.env.SSH_AUTH_SOCK;
      else process.env.SSH_AUTH_SOCK = agent;
      for (const [server] of servers) server.close();
    }
  });

  it("takes a plain folder by its real path", async () => {
    const link = join(dir, "link");
    const real = join(dir, "real");
    mkdirSync(real);
    symlinkSync(real, link);
    expect(await checkMount(link, endpoint())).toEqual({
      hostPath: real,
      uid: process.getuid?.(),
      gid: process.getgid?.(),
    });
  });

  it("refuses what is missing, is no folder, or is not on the engine's machine", async () => {
    writeFileSync(join(dir, "file"), "");
    await expect(checkMount(join(dir, "no"), endpoint())).rejects.toMatchObject({ code: "WORKDIR_MISSING" });
    await expect(checkMount(join(dir, "file"), endpoint())).rejects.toMatchObject({
      code: "NOT_A_DIRECTORY",
    });
    await expect(checkMount(dir, endpoint({ local: false }))).rejects.toMatchObject({ code: "UNSUPPORTED" });
  });
});

describe("mountUser()", () => {
  it("is the caller, or the folder's owner when the caller is root", () => {
    const caller = process.getuid?.() ?? 0;
    const expected = caller === 0 ? "1000:1001" : `${caller}:${process.getgid?.()}`;
    expect(mountUser({ hostPath: "/w", uid: 1000, gid: 1001 }, false)).toBe(expected);
  });

  it("is root on a rootless engine, which is the caller outside", () => {
    expect(mountUser({ hostPath: "/w", uid: 1000, gid: 1000 }, true)).toBe("0:0");
  });
});
