import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import type { EnvironmentProgress } from "../../../environments/base.ts";
import { resolveEndpoint, thisHost } from "../../../environments/docker/endpoint.ts";
import { createDockerBackend, listDocker, reapDocker } from "../../../environments/docker/index.ts";
import { LABELS } from "../../../environments/docker/labels.ts";
import { ownerLabel, thisProcessTable } from "../../../environments/owner.ts";
import { CONTAINER_ID, FakeDaemon, type FakeRequest, frame } from "./fake-daemon.ts";
import { PRIVILEGED_HOST_CONFIG } from "./privileged.ts";
import { run } from "./read-stream.ts";

const image = "registry.test/team/app";

function backendOn(daemon: FakeDaemon, options: object = {}) {
  return createDockerBackend({ image, endpoint: daemon.endpoint, ...options });
}

function attachOn(daemon: FakeDaemon, unsafe: readonly string[] = []) {
  return createDockerBackend({ attach: CONTAINER_ID, endpoint: daemon.endpoint, unsafe });
}

/** Lets the image appear when it was pulled with these lines. */
function withPull(daemon: FakeDaemon, lines: readonly string[], afterMs = 0): { pulled: boolean } {
  const state = { pulled: false };
  const missing = { status: 404, json: { message: `No such image: ${image}:latest` } };
  daemon.on("POST", /^\/containers\/create$/, () =>
    state.pulled ? { status: 201, json: { Id: CONTAINER_ID } } : missing,
  );
  daemon.on("GET", /^\/images\/.*\/json$/, () =>
    state.pulled ? { json: { Id: "sha256:1", Config: { User: "" } } } : missing,
  );
  daemon.on("POST", /^\/images\/create$/, async (_request, response) => {
    response.writeHead(200);
    for (const line of lines) response.write(line);
    await new Promise((resolve) => setTimeout(resolve, afterMs));
    state.pulled = !lines.some((line) => line.includes("error"));
    response.end();
    return undefined;
  });
  return state;
}

const paths = (requests: readonly FakeRequest[]) => requests.map(({ method, path }) => `${method} ${path}`);

describe("start()", () => {
  it("creates only after the pull has ended, and tells its progress (DK-25)", async () => {
    await using daemon = await FakeDaemon.listen();
    withPull(
      daemon,
      [
        '{"status":"Pulling fs layer","id":"a"}\r\n{"status":"Pulling fs layer","id":"b"}\r\n{"status":"Downlo',
        'ading","id":"a","progressDetail":{"current":50,"total":100}}\r\n',
        '{"status":"Pull complete","id":"a"}\r\nnot json\r\n{"status":"Already exists","id":"b"}',
      ],
      100,
    );
    const backend = backendOn(daemon, { platform: "linux/amd64" });
    const told: EnvironmentProgress[] = [];
    await backend.start((progress) => told.push(progress));
    const order = paths(daemon.requests).filter((path) => /create/.test(path));
    expect(order).toEqual(["POST /containers/create", "POST /images/create", "POST /containers/create"]);
    const [pull] = daemon.asked("POST", /^\/images\/create$/);
    expect(Object.fromEntries(pull?.query ?? [])).toEqual({
      fromImage: image,
      tag: "latest",
      platform: "linux/amd64",
    });
    const fractions = told.map(({ fraction }) => fraction).filter((fraction) => fraction !== undefined);
    expect(fractions).toEqual([0, 0.125, 0.5, 0.99, 1]);
    await backend.stop({ keep: false });
  });

  it.each([
    ['{"error":"manifest unknown","errorDetail":{"message":"manifest unknown"}}\n', "IMAGE_MISSING"],
    ['{"errorDetail":{"message":"dial tcp: lookup registry.test: no such host"}}', "IMAGE_PULL_FAILED"],
    ['{"status":"Downloading"}\n{"error":"unauthorized"}\n', "IMAGE_PULL_FAILED"],
  ])("takes %j inside a 200 answer for the failure it is", async (line, code) => {
    await using daemon = await FakeDaemon.listen();
    withPull(daemon, [line]);
    await expect(backendOn(daemon).start(() => {})).rejects.toMatchObject({ code });
    expect(daemon.asked("POST", /^\/containers\/create$/).length).toBe(1);
  });

  it("takes a pull that breaks off for a failure", async () => {
    await using daemon = await FakeDaemon.listen();
    withPull(daemon, []);
    daemon.on("POST", /^\/images\/create$/, (_request, response) => {
      response.writeHead(200);
      response.write('{"status":"Downloading","id":"a"}\n', () => response.destroy());
      return undefined;
    });
    await expect(backendOn(daemon).start(() => {})).rejects.toMatchObject({ code: "IMAGE_PULL_FAILED" });
  });

  it("joins no container that its record calls privileged, and runs nothing in it, unless the rule is named", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.hostConfig = PRIVILEGED_HOST_CONFIG;
    daemon.on("GET", /^\/info$/, () => ({ json: { CgroupVersion: "1" } }));
    await expect(attachOn(daemon).start(() => {})).rejects.toMatchObject({
      code: "UNSAFE_ENVIRONMENT",
      message: expect.stringContaining("privileged"),
      suggestion: expect.stringContaining("privileged"),
    });
    await expect(attachOn(daemon, ["host-pid"]).start(() => {})).rejects.toMatchObject({
      code: "UNSAFE_ENVIRONMENT",
    });
    expect(daemon.asked("POST", /./)).toEqual([]);
    // It goes on to look for a shell, which the fake does not have.
    await attachOn(daemon, ["privileged"])
      .start(() => {})
      .catch(() => {});
    expect(daemon.asked("POST", /\/exec$/)).not.toEqual([]);
  });

  it("pulls nothing when it may not", async () => {
    await using daemon = await FakeDaemon.listen();
    withPull(daemon, []);
    const backend = backendOn(daemon, { pull: "never" });
    await expect(backend.start(() => {})).rejects.toMatchObject({ code: "IMAGE_MISSING" });
    expect(await backend.health()).toMatchObject({ healthy: false, code: "IMAGE_MISSING" });
    expect(daemon.asked("POST", /^\/images/)).toEqual([]);
  });

  it("removes the container that could not be started, and tells the engine's words (DK-15)", async () => {
    await using daemon = await FakeDaemon.listen();
    const message = "driver failed programming external connectivity: port is already allocated";
    daemon.on("POST", /\/start$/, () => ({ status: 500, json: { message } }));
    await expect(backendOn(daemon).start(() => {})).rejects.toMatchObject({
      code: "CONTAINER_START_FAILED",
      message: expect.stringContaining(message),
    });
    expect(paths(daemon.asked("DELETE", /./))).toEqual([`DELETE /containers/${CONTAINER_ID}`]);
  });

  it("tells an image without a shell", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.on("HEAD", /archive$/, () => ({ status: 404 }));
    await expect(backendOn(daemon).start(() => {})).rejects.toMatchObject({ code: "SHELL_MISSING" });
    expect(daemon.asked("DELETE", /./).length).toBe(1);
  });

  it("creates with limits, labels and no more powers than it needs (DK-18)", async () => {
    await using daemon = await FakeDaemon.listen();
    const backend = backendOn(daemon, { id: "my-env", memory: "64m", cpus: 1.5, env: { TOKEN: "secret" } });
    await backend.start(() => {});
    const [create] = daemon.asked("POST", /^\/containers\/create$/);
    expect(create?.body).toMatchObject({
      Image: image,
      Labels: {
        [LABELS.owner]: expect.stringMatching(/^1:/),
        [LABELS.session]: expect.stringMatching(/^[0-9a-f]{16}$/),
        [LABELS.environment]: "my-env",
        [LABELS.container]: expect.stringMatching(/^moorage-my-env-/),
        [LABELS.createdAt]: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      },
      HostConfig: {
        Init: true,
        Privileged: false,
        CapDrop: ["ALL"],
        CapAdd: ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL"],
        SecurityOpt: ["no-new-privileges"],
        PidsLimit: 512,
        Memory: 67_108_864,
        MemorySwap: 67_108_864,
        NanoCpus: 1_500_000_000,
        Mounts: [],
      },
    });
    const record = daemon.requests.map(({ path, query, body }) => path + query + JSON.stringify(body)).join();
    expect(record).not.toContain("secret");
    await run(backend, ["true"]);
    expect(daemon.asked("POST", /\/exec$/)[0]?.body).toMatchObject({ Env: ["TOKEN=secret"] });
    await backend.stop({ keep: false });
  });
});

describe("a missing engine", () => {
  it("is told with its address and where that came from (DK-27)", async () => {
    const socketPath = join(tmpdir(), "no-such-engine.sock");
    await using daemon = await FakeDaemon.listen();
    const endpoint = { ...daemon.endpoint, socketPath, url: `unix://${socketPath}`, source: "DOCKER_HOST" };
    const backend = createDockerBackend({ image, endpoint });
    const expected = {
      code: "DOCKER_UNREACHABLE",
      message: expect.stringMatching(`unix://${socketPath} \\(from DOCKER_HOST\\)`),
    };
    await expect(backend.start(() => {})).rejects.toMatchObject(expected);
    await expect(listDocker({ endpoint })).rejects.toMatchObject(expected);
    expect(await backend.health()).toMatchObject({ healthy: false, code: "DOCKER_UNREACHABLE" });
    await backend.stop({ keep: false });
  });

  it("is not made up for by a command line client (AV-11)", async () => {
    const dir = mkdtempSync(join(tmpdir(), "moorage-client-"));
    const ran = join(dir, "ran");
    writeFileSync(join(dir, "docker"), `#!/bin/sh\necho "$@" >>${ran}\necho Docker version 28.0.0\n`, {
      mode: 0o755,
    });
    vi.stubEnv("PATH", `${dir}:${process.env.PATH}`);
    try {
      const endpoint = resolveEndpoint(thisHost({ DOCKER_HOST: `unix://${dir}/stopped.sock` }));
      const backend = createDockerBackend({ image, endpoint });
      expect(await backend.health()).toMatchObject({ healthy: false, code: "DOCKER_UNREACHABLE" });
      expect(existsSync(ran)).toBe(false);
    } finally {
      vi.unstubAllEnvs();
      rmSync(dir, { recursive: true });
    }
  });

  it("is told apart from one that this user may not use", async () => {
    const dir = mkdtempSync(join(tmpdir(), "moorage-socket-"));
    const path = join(dir, "engine.sock");
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(path, resolve));
    chmodSync(dir, 0o755);
    chmodSync(path, 0o600);
    try {
      const module = join(import.meta.dirname, "../../../environments/docker/index.ts");
      const script = `
        import { createDockerBackend } from ${JSON.stringify(module)};
        const health = await createDockerBackend({ image: "x" }).health();
        console.log(JSON.stringify(health));`;
      const isRoot = process.getuid?.() === 0;
      if (!isRoot) chmodSync(path, 0);
      const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
        env: { PATH: process.env.PATH, DOCKER_HOST: `unix://${path}` },
        ...(isRoot && { uid: 65534, gid: 65534 }),
      });
      let text = "";
      for await (const chunk of child.stdout) text += chunk;
      expect(JSON.parse(text)).toMatchObject({ healthy: false, code: "DOCKER_PERMISSION" });
    } finally {
      await new Promise((resolve) => server.close(resolve));
      rmSync(dir, { recursive: true });
    }
  });
});

describe("health()", () => {
  it("does not take a ping for an engine that works (AV-03)", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.on("GET", /^\/containers\/json$/, () => new Promise(() => {}));
    const startedAt = performance.now();
    expect(await backendOn(daemon).health()).toMatchObject({
      healthy: false,
      code: "DOCKER_UNREACHABLE",
      reason: expect.stringContaining("answers pings but no requests"),
    });
    expect(performance.now() - startedAt).toBeLessThan(3_500);
  });

  it("is bounded when the engine accepts and stays silent, and blocks nobody (AV-04)", async () => {
    const dir = mkdtempSync(join(tmpdir(), "moorage-socket-"));
    const socketPath = join(dir, "engine.sock");
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(socketPath, resolve));
    await using daemon = await FakeDaemon.listen();
    let longestPause = 0;
    let last = performance.now();
    const ticks = setInterval(() => {
      longestPause = Math.max(longestPause, performance.now() - last);
      last = performance.now();
    }, 5);
    try {
      const endpoint = { ...daemon.endpoint, socketPath };
      const startedAt = performance.now();
      const health = await createDockerBackend({ image, endpoint }).health();
      expect(health).toMatchObject({ healthy: false, code: "DOCKER_UNREACHABLE" });
      expect(performance.now() - startedAt).toBeLessThan(3_500);
      expect(longestPause).toBeLessThan(200);
    } finally {
      clearInterval(ticks);
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.unref();
        resolve();
      });
      rmSync(dir, { recursive: true });
    }
  });

  it("uses the engine that DOCKER_HOST names (AV-08)", async () => {
    await using daemon = await FakeDaemon.listen();
    const before = process.env.DOCKER_HOST;
    process.env.DOCKER_HOST = `unix://${daemon.socketPath}`;
    try {
      expect(await createDockerBackend({ image }).health()).toEqual({
        healthy: true,
        detail: `engine at unix://${daemon.socketPath}`,
      });
    } finally {
      if (before === undefined) delete process.env.DOCKER_HOST;
      else process.env.DOCKER_HOST = before;
    }
  });

  it("tells a paused container, and one of ours that will be made anew", async () => {
    await using daemon = await FakeDaemon.listen();
    const backend = backendOn(daemon);
    await backend.start(() => {});
    daemon.state = { Running: true, Paused: true, Status: "paused" };
    expect(await backend.health()).toMatchObject({ healthy: false, code: "CONTAINER_PAUSED" });
    daemon.state = { Running: false, Paused: false, Status: "exited" };
    expect(await backend.health()).toMatchObject({ healthy: true });
    daemon.on("GET", /^\/containers\/[^/]+\/json$/, () => ({
      status: 404,
      json: { message: "No such container: x" },
    }));
    expect(await backend.health()).toMatchObject({ healthy: true });
    await backend.stop({ keep: false });
  });
});

describe("recover()", () => {
  /** Programs say something and exit 0, until `broken` says so. */
  function speaking(daemon: FakeDaemon): { broken: boolean } {
    const state = { broken: false };
    daemon.onExec = ({ socket, report }) => {
      if (state.broken) {
        report({ Running: false, ExitCode: 126, Pid: 0 });
        socket.end(frame(1, "OCI runtime exec failed: exec failed: transport endpoint is not connected\r\n"));
      } else {
        report({ Running: false, ExitCode: 0 });
        socket.end(frame(1, "ok"));
      }
    };
    return state;
  }

  it("replaces a container that runs but in which nothing can be started, and does so once (DK-38)", async () => {
    await using daemon = await FakeDaemon.listen();
    const state = speaking(daemon);
    const backend = backendOn(daemon);
    await backend.start(() => {});
    await run(backend, ["true"]);
    state.broken = true;
    const { lost } = await run(backend, ["true"]);
    if (!lost) throw new Error("the program was not lost");
    const notes = await Promise.all([backend.recover(lost), backend.recover(lost), backend.recover(lost)]);
    expect(new Set(notes).size).toBe(1);
    expect(notes[0]?.note).toMatch(/a new one was made/);
    expect(daemon.asked("POST", /^\/containers\/create$/).length).toBe(2);
    // The new one is as broken as the old: no third is made.
    const again = await run(backend, ["true"]);
    expect(again.lost && (await backend.recover(again.lost))).toBeNull();
    expect(daemon.asked("POST", /^\/containers\/create$/).length).toBe(2);
    await backend.stop({ keep: false });
  });

  it("leaves a container alone that is fine, paused, or out of reach", async () => {
    await using daemon = await FakeDaemon.listen();
    speaking(daemon);
    const backend = backendOn(daemon);
    await backend.start(() => {});
    daemon.on("POST", /\/exec$/, () => ({ status: 409, json: { message: "Container x is paused" } }));
    daemon.state = { Running: true, Paused: true, Status: "paused" };
    const error = await backend.openStream({ argv: ["true"], env: {} }).catch((failure) => failure);
    expect(error).toMatchObject({ code: "CONTAINER_PAUSED" });
    expect(await backend.recover(error)).toBeNull();
    expect(daemon.asked("POST", /^\/containers\/create$/).length).toBe(1);
    await backend.stop({ keep: false });
    expect(daemon.asked("DELETE", /./).length).toBe(1);
  });
});

describe("stop()", () => {
  it("removes a container that the engine will not kill while it is paused (DK-22)", async () => {
    await using daemon = await FakeDaemon.listen();
    let paused = true;
    daemon.on("POST", /\/unpause$/, () => {
      paused = false;
      return { status: 204 };
    });
    daemon.on("DELETE", /./, () =>
      paused
        ? { status: 500, json: { message: "Container x is paused. Unpause it first" } }
        : { status: 204 },
    );
    const backend = backendOn(daemon);
    await backend.start(() => {});
    await backend.stop({ keep: false });
    expect(paused).toBe(false);
    expect(daemon.asked("DELETE", /./).length).toBe(2);
  });

  it("says what may be left when the engine is gone", async () => {
    const daemon = await FakeDaemon.listen();
    const backend = backendOn(daemon);
    await backend.start(() => {});
    await daemon[Symbol.asyncDispose]();
    await expect(backend.stop({ keep: false })).rejects.toMatchObject({
      code: "CLEANUP_FAILED",
      details: { container: CONTAINER_ID },
    });
  });
});

describe("reapDocker()", () => {
  const dead = "1:m:b:n:1:1";
  const entry = (id: string, labels: Record<string, string>, state = "running") => ({
    Id: id,
    Names: [`/${id}`],
    Image: image,
    State: state,
    Labels: { [LABELS.container]: id, ...labels },
  });

  it("never touches what has no label of ours or cannot be judged, and goes on after a failure", async () => {
    await using daemon = await FakeDaemon.listen();
    const gone = ownerLabel({ ...thisProcessTable(), pid: 2 ** 22 + 1, startTime: () => "1" });
    daemon.on("GET", /^\/containers\/json$/, () => ({
      json: [
        entry("unlabelled", {}),
        entry("foreign", { [LABELS.owner]: dead }),
        entry("stuck", { [LABELS.owner]: gone }),
        entry("orphan", {
          [LABELS.owner]: gone,
          [LABELS.environment]: "e",
          [LABELS.createdAt]: "2026-01-01",
        }),
        entry("made-from-a-committed-image", { [LABELS.owner]: gone, [LABELS.container]: "orphan" }),
        entry("kept", { [LABELS.owner]: gone, [LABELS.keep]: "true", [LABELS.environment]: "e" }),
        entry("mine", { [LABELS.owner]: ownerLabel() }),
      ],
    }));
    daemon.on("DELETE", /stuck/, (_request, response) => {
      response.destroy();
      return undefined;
    });
    const { endpoint } = daemon;
    const report = await reapDocker({ endpoint });
    expect(report.removed).toEqual([
      {
        containerId: "orphan",
        name: "orphan",
        image,
        environment: "e",
        state: "running",
        createdAt: "2026-01-01",
        owner: "dead",
        kept: false,
        isDoor: false,
      },
    ]);
    expect(report.failed.map(({ entry: { name } }) => name)).toEqual(["stuck"]);
    const all = await reapDocker({ endpoint, kept: ["e"], unknownOlderThanMs: 0, dryRun: true });
    expect(all.removed.map(({ name }) => name)).toEqual(["stuck", "orphan", "kept"]);
    expect((await listDocker({ endpoint })).map(({ name, owner }) => [name, owner])).toEqual([
      ["foreign", "unknown"],
      ["stuck", "dead"],
      ["orphan", "dead"],
      ["kept", "dead"],
      ["mine", "self"],
    ]);
  });
});
