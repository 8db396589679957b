import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import type { BaseEnvironment } from "../../../environments/base.ts";
import { resolveEndpoint, thisHost } from "../../../environments/docker/endpoint.ts";
import {
  createDockerBackend,
  type DockerBackend,
  type DockerOptions,
  DockerPool,
  listDocker,
  openEngine,
  reapDocker,
} from "../../../environments/docker/index.ts";
import { LABELS } from "../../../environments/docker/labels.ts";
import { createShellEnvironment } from "../../../environments/shell/environment.ts";
import { Checkpoints } from "../../../src/checkpoints/checkpoints.ts";
import { BUSYBOX_IMAGE, describeWithEngine, WORKBENCH_IMAGE } from "../../host/images.ts";
import { run, until } from "./read-stream.ts";

const { docker } = await openEngine();
let stateDir: string;
beforeAll(() => {
  stateDir = mkdtempSync(join(tmpdir(), "moorage-state-"));
});
afterAll(() => rmSync(stateDir, { recursive: true }));

function make(options: DockerOptions = {}): { backend: DockerBackend; environment: BaseEnvironment } {
  const source = options.attach === undefined ? { image: BUSYBOX_IMAGE } : {};
  const backend = createDockerBackend({ ...source, ...options });
  const { id, keep = false } = options;
  const environment = createShellEnvironment(backend, { stateDir, keep, ...(id !== undefined && { id }) });
  return { backend, environment };
}

const exists = (id: string) =>
  docker
    .getContainer(id)
    .inspect()
    .then(
      () => true,
      () => false,
    );

const idOf = (backend: DockerBackend) => {
  if (backend.containerId === null) throw new Error("there is no container");
  return backend.containerId;
};

/** The engine behind a TCP port; a middlebox may cut connections of which one side was closed a while ago. */
async function tcpProxy({ dropsHalfClosed = false } = {}) {
  const target = resolveEndpoint().socketPath;
  if (target === null) throw new Error("these tests expect an engine on a socket");
  const proxy = createServer({ allowHalfOpen: true }, (client) => {
    const engine = connect({ path: target, allowHalfOpen: true });
    client.pipe(engine).pipe(client);
    client.on("error", () => engine.destroy());
    engine.on("error", () => client.destroy());
    if (!dropsHalfClosed) return;
    client.on("end", () => {
      const cut = setTimeout(() => {
        engine.destroy();
        client.destroy();
      }, 200);
      client.on("close", () => clearTimeout(cut));
    });
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const { port } = proxy.address() as AddressInfo; // it listens on TCP
  return {
    endpoint: resolveEndpoint(thisHost({ DOCKER_HOST: `tcp://127.0.0.1:${port}` })),
    [Symbol.asyncDispose]: async () => void (await new Promise((resolve) => proxy.close(resolve))),
  };
}

/** A container of someone else's. */
async function foreign(image = BUSYBOX_IMAGE, binds: string[] = []) {
  const container = await docker.createContainer({
    Image: image,
    Entrypoint: ["sleep", "600"],
    HostConfig: { Binds: binds },
  });
  await container.start();
  return { id: container.id, [Symbol.asyncDispose]: () => container.remove({ force: true }).catch(() => {}) };
}

describeWithEngine("a docker environment", () => {
  it("runs commands in a hardened container and leaves none (DK-14, DK-17, DK-18)", async () => {
    const { backend, environment } = make({ memory: "64m" });
    expect(
      await environment.exec("echo hi; pwd; id -u; cat /proc/self/status | grep -E 'CapEff|NoNewPrivs'"),
    ).toMatchObject({
      exitCode: 0,
      output: "hi\n/workspace\n0\nCapEff:\t00000000000000eb\nNoNewPrivs:\t1\n",
    });
    const id = idOf(backend);
    const { Config, HostConfig, Mounts } = await docker.getContainer(id).inspect();
    expect(HostConfig).toMatchObject({
      Init: true,
      Privileged: false,
      CapDrop: ["ALL"],
      SecurityOpt: ["no-new-privileges"],
      PidsLimit: 512,
      Memory: 67_108_864,
    });
    expect(Mounts).toEqual([]);
    expect(Object.keys(Config.Labels)).toEqual(
      expect.arrayContaining([LABELS.createdAt, LABELS.environment, LABELS.owner, LABELS.session]),
    );
    await environment.exec("sleep 1000 & setsid sleep 1000 & exit 0");
    const startedAt = performance.now();
    await environment.stop();
    expect(performance.now() - startedAt).toBeLessThan(15_000);
    expect(await exists(id)).toBe(false);
  });

  it("ends the whole tree of a command that times out, and nothing else (DK-11, DK-12, DK-13)", async () => {
    const { environment } = make();
    await using _ = environment;
    const session = await environment.openSession();
    const other = session.exec("sleep 500; echo other", { timeoutMs: 60_000 });
    const result = await environment.exec("setsid sleep 987654 & sleep 987655", { timeoutMs: 1_000 });
    expect(result).toMatchObject({ timedOut: true, exitCode: null, survivors: [] });
    const { output } = await environment.exec(
      "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f 2>/dev/null; echo; done",
    );
    expect(output.match(/^sleep \d{3,}/gm)).toEqual(["sleep 500"]);
    await session.close();
    expect((await other).aborted).toBe(true);
  });

  it("recreates a removed container once and says so (DK-19)", async () => {
    const { backend, environment } = make();
    await using _ = environment;
    const session = await environment.openSession();
    await session.exec("cd /tmp && export KEPT=1 && touch gone");
    const before = idOf(backend);
    await docker.getContainer(before).remove({ force: true });
    const results = await Promise.all([
      session.exec("echo back $KEPT; ls"),
      environment.exec("echo back"),
      environment.exec("echo back"),
    ]);
    expect(results.map(({ output, exitCode }) => [output, exitCode])).toEqual([
      ["back 1\n", 0],
      ["back\n", 0],
      ["back\n", 0],
    ]);
    const notes = results.flatMap((result) => result.notes);
    expect(notes.length).toBeGreaterThan(0);
    for (const note of notes) expect(note).toMatch(/removed from outside and a new one was made/);
    const ours = (await listDocker()).filter(({ owner, state }) => owner === "self" && state === "running");
    expect(ours.map(({ containerId }) => containerId)).toEqual([idOf(backend)]);
    expect(await exists(before)).toBe(false);
  });

  it("recreates a container that was stopped, and tells a restarted one", { tags: ["slow"] }, async () => {
    const { backend, environment } = make();
    await using _ = environment;
    await environment.exec("true");
    const first = idOf(backend);
    await docker.getContainer(first).stop({ t: 0 });
    const stopped = await environment.exec("echo back");
    expect({ output: stopped.output, notes: stopped.notes.length }).toEqual({ output: "back\n", notes: 1 });
    expect(await exists(first)).toBe(false);
    await environment.exec("touch /workspace/file");
    const second = idOf(backend);
    await docker.getContainer(second).restart({ t: 0 });
    const restarted = await environment.exec("ls");
    expect({ output: restarted.output, id: idOf(backend), notes: restarted.notes }).toEqual({
      output: "file\n",
      id: second,
      notes: [expect.stringMatching(/restarted from outside/)],
    });
  });

  it("answers a fork bomb with a timeout, and goes on with the same files (SH-46)", {
    tags: ["slow"],
  }, async () => {
    // Half of the small machines that this runs on, lest the tests beside it starve.
    const backend = createDockerBackend({ image: WORKBENCH_IMAGE, pidsLimit: 80, cpus: 1 });
    const environment = createShellEnvironment(backend, { stateDir });
    await using _ = environment;
    await using session = await environment.openSession();
    await session.exec("echo kept >file; export KEPT=1");
    const bomb = await session.exec("echo before; :() { :|:; }; :", { timeoutMs: 2_000 });
    expect(bomb).toMatchObject({
      exitCode: null,
      timedOut: true,
      output: expect.stringMatching(/^before\n/),
      survivors: [],
    });
    const next = await session.exec('echo "$KEPT"; cat file');
    expect(next.output).toBe("1\nkept\n");
    // Where room for the search was left, all was ended without a new start.
    for (const note of [...bomb.notes, ...next.notes]) expect(note).toMatch(/was started anew/);
  });

  it("starts what is full of processes anew where a plain sh runs the commands too", {
    tags: ["slow"],
  }, async () => {
    const backend = createDockerBackend({ image: BUSYBOX_IMAGE, pidsLimit: 40, cpus: 1 });
    const environment = createShellEnvironment(backend, { stateDir });
    await using _ = environment;
    await using session = await environment.openSession();
    await session.exec("export KEPT=1");
    const full = await session.exec("i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i + 1)); done");
    const next = await session.exec('echo "$KEPT"');
    expect({ output: next.output, notes: [...full.notes, ...next.notes] }).toEqual({
      output: "1\n",
      notes: [expect.stringMatching(/was started anew/)],
    });
  });

  it("never says that a command ran which was cut off by the container's end", async () => {
    const { backend, environment } = make();
    await using _ = environment;
    const begun = Promise.withResolvers<void>();
    const running = environment.exec("echo begun; sleep 60", {
      timeoutMs: 30_000,
      onOutput: () => begun.resolve(),
    });
    running.catch(() => {}); // looked at below
    await begun.promise;
    await docker.getContainer(idOf(backend)).kill();
    await expect(running).rejects.toMatchObject({ code: "EXECUTION_UNKNOWN" });
    expect((await environment.exec("echo back")).output).toBe("back\n");
  });

  it("tells a paused container in time, runs nothing later, and removes it all the same (DK-21, DK-22)", {
    tags: ["slow"],
  }, async () => {
    const { backend, environment } = make();
    const session = await environment.openSession();
    await session.exec("true");
    const container = docker.getContainer(idOf(backend));
    await container.pause();
    const startedAt = performance.now();
    await expect(session.exec("touch /workspace/ghost")).rejects.toMatchObject({ code: "CONTAINER_PAUSED" });
    expect(performance.now() - startedAt).toBeLessThan(5_000);
    await container.unpause();
    expect((await session.exec("echo hi; ls /workspace")).output).toBe("hi\n");
    await container.pause();
    await environment.stop();
    expect(await exists(container.id)).toBe(false);
  });

  it("tells a kill for want of memory from any other (DK-23, DK-24)", async () => {
    const { backend, environment } = make({ memory: "64m" });
    await using _ = environment;
    const session = await environment.openSession();
    // The engine's answer is an IncomingMessage, which the library types as the bare interface.
    const events = (await docker.getEvents({
      filters: { container: [idOf(backend)], event: ["oom"] },
    })) as Readable;
    let told = "";
    events.on("data", (chunk) => {
      told += chunk;
    });
    expect(await session.exec("tail /dev/zero")).toMatchObject({
      exitCode: 137,
      notes: ["killed (137), probably out of memory (limit 64 MB)"],
    });
    // A kill that follows an unnoticed one is not taken for it, once the engine has told that one.
    expect(await session.exec("tail /dev/zero; exit 1")).toMatchObject({ exitCode: 1, notes: [] });
    await until(() => told.split("\n").length > 2);
    expect(await session.exec("sh -c 'kill -9 $$'")).toMatchObject({ exitCode: 137, notes: [] });
    events.destroy();
    expect(await session.exec("echo next")).toMatchObject({ exitCode: 0, output: "next\n" });
  });

  it("goes on with the same files after files in memory reached the limit", { tags: ["slow"] }, async () => {
    const backend = createDockerBackend({ image: WORKBENCH_IMAGE, memory: "64m", shmSize: "1g" });
    await using environment = createShellEnvironment(backend, { stateDir });
    const session = await environment.openSession();
    await session.exec("echo kept >file; export KEPT=1");
    const id = idOf(backend);
    for (const path of ["/dev/shm/first", "/dev/shm/second"]) {
      // The memory stays taken after the kill, so that whatever is started next is killed too.
      const filled = await session.exec(`dd if=/dev/zero of=${path} bs=1M count=200 2>&1`);
      expect(filled.exitCode).toBe(137);
      expect(filled.notes).toContain("killed (137), probably out of memory (limit 64 MB)");
      for (const note of filled.notes.slice(1)) expect(note).toMatch(/memory limit and was started anew/);
      expect((await session.exec('echo "$KEPT"; cat file')).output).toBe("1\nkept\n");
    }
    expect(idOf(backend)).toBe(id);
  });

  it("gives a user other than root a workspace and a home of its own (DK-28, DK-29)", async () => {
    const { environment } = make({ user: "1234:1235" });
    await using _ = environment;
    const { output } = await environment.exec(
      'id -u; id -g; touch file "$HOME/file" && stat -c %u:%g file "$HOME" /workspace; echo $HOME',
    );
    expect(output).toBe("1234\n1235\n1234:1235\n1234:1235\n1234:1235\n/home/moorage\n");
    expect((await environment.exec("kill -9 1; touch /etc/x; echo $?")).output).toMatch(/1\n$/);
  });

  it("works with a read-only root", async () => {
    const { environment } = make({ readOnly: true });
    await using _ = environment;
    const { output } = await environment.exec(
      'touch /etc/x 2>/dev/null || echo refused; touch file "$HOME/x" /tmp/x && echo fine',
    );
    expect(output).toBe("refused\nfine\n");
  });

  it("keeps the caller's ownership on a mounted folder (DK-30)", async () => {
    const folder = realpathSync(mkdtempSync(join(tmpdir(), "moorage-mount-")));
    const isRoot = process.getuid?.() === 0;
    const uid = isRoot ? 1000 : (process.getuid?.() ?? 0);
    const gid = isRoot ? 1000 : (process.getgid?.() ?? 0);
    writeFileSync(join(folder, "secret"), "s3cret\n", { mode: 0o600 });
    if (isRoot) for (const path of [folder, join(folder, "secret")]) chownSync(path, uid, gid);
    try {
      const { environment } = make({ mount: folder });
      await using _ = environment;
      expect(environment.info().exposedHostPaths).toEqual([folder]);
      const { output, exitCode } = await environment.exec(
        'cat secret && touch made && mkdir d && touch d/x && touch "$HOME/x" && echo fine',
      );
      expect({ output, exitCode }).toEqual({ output: "s3cret\nfine\n", exitCode: 0 });
      for (const name of ["made", "d", "d/x"]) {
        const facts = statSync(join(folder, name));
        expect([name, facts.uid, facts.gid]).toEqual([name, uid, gid]);
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it.runIf(process.getuid?.() === 0)("mounts a folder of root's as root", async () => {
    const folder = realpathSync(mkdtempSync(join(tmpdir(), "moorage-mount-")));
    try {
      const { environment } = make({ mount: folder });
      await using _ = environment;
      chmodSync(folder, 0o700);
      expect((await environment.exec("id -u; touch x && echo fine")).output).toBe("0\nfine\n");
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it("forwards variables to commands and to no record of the container (DK-39)", async () => {
    const { backend, environment } = make({ env: { GITHUB_TOKEN: "t0ken value" } });
    await using _ = environment;
    expect((await environment.exec('echo "$GITHUB_TOKEN"')).output).toBe("t0ken value\n");
    const inspection = JSON.stringify(await docker.getContainer(idOf(backend)).inspect());
    expect(inspection).not.toContain("t0ken");
  });

  it("uses bash and the image's own PATH where they are", async () => {
    const { environment } = make({ image: WORKBENCH_IMAGE });
    await using _ = environment;
    const { Config } = await docker.getImage(WORKBENCH_IMAGE).inspect();
    const path = Config.Env?.find((entry) => entry.startsWith("PATH="))?.slice(5);
    const { output } = await environment.exec('echo "$BASH_VERSION"; echo "$PATH"');
    expect(environment.info().shell).toBe("bash");
    expect(output.split("\n")[1]).toBe(
      path ?? "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    );
  });
});

describeWithEngine("streams of a container", () => {
  it("carry bytes both ways, exact, and codes (DK-07, DK-08)", async () => {
    const { backend } = make();
    await backend.start(() => {});
    try {
      expect(await run(backend, ["wc", "-c"], "test\n")).toMatchObject({ stdout: "5\n", exitCode: 0 });
      const late = await run(
        backend,
        ["sh", "-c", "cat >/dev/null; sleep 1; echo late; echo e >&2; exit 4"],
        "x",
      );
      expect(late).toEqual({ stdout: "late\n", stderr: "e\n", exitCode: 4, signal: null, lost: null });
      expect(await run(backend, ["/no/such"])).toMatchObject({ exitCode: expect.any(Number), stdout: "" });
      expect((await run(backend, ["/bin/bash"])).lost?.code).toBe("SHELL_MISSING");
    } finally {
      await backend.stop({ keep: false });
    }
  });

  it("work over TCP as they do over the socket (DK-08)", async () => {
    await using proxy = await tcpProxy();
    const backend = createDockerBackend({ image: BUSYBOX_IMAGE, endpoint: proxy.endpoint });
    try {
      await backend.start(() => {});
      const late = await run(backend, ["sh", "-c", "cat >/dev/null; sleep 1; echo late; exit 4"], "x");
      expect(late).toEqual({ stdout: "late\n", stderr: "", exitCode: 4, signal: null, lost: null });
    } finally {
      await backend.stop({ keep: false });
    }
  });

  it("outlive a silent command also where half-closed connections are dropped (DK-10)", {
    tags: ["slow"],
  }, async () => {
    await using proxy = await tcpProxy({ dropsHalfClosed: true });
    const { environment, backend } = make({ endpoint: proxy.endpoint });
    try {
      expect(await environment.exec("sleep 2; echo hi")).toMatchObject({ output: "hi\n", exitCode: 0 });
      const fed = await environment.exec("cat; sleep 2; echo hi", { stdin: "in\n" });
      expect(fed).toMatchObject({ output: "in\nhi\n", exitCode: 0, notes: [] });
      // A stream whose stdin was ended shows that the proxy does what is said of it.
      const ended = await run(backend, ["sh", "-c", "cat; sleep 2; echo hi"], "in\n");
      expect(ended.stdout).not.toContain("hi");
    } finally {
      await environment.stop();
    }
  });

  it("leave no socket behind, also after many", { tags: ["slow"] }, async () => {
    const { backend } = make({ pidsLimit: 2_000 });
    await backend.start(() => {});
    const sockets = () => process.getActiveResourcesInfo().filter((name) => name === "PipeWrap").length;
    try {
      const before = sockets();
      const one = async () => {
        const stream = await backend.openStream({ argv: ["sh"], env: {} });
        await stream.close();
      };
      for (let round = 0; round < 5; round += 1) await Promise.all(Array.from({ length: 8 }, one));
      await until(() => sockets() <= before);
      // Their shells have ended too.
      await until(
        async () => Number((await run(backend, ["sh", "-c", "ls -d /proc/[0-9]* | wc -l"])).stdout) < 10,
        20_000,
      );
    } finally {
      await backend.stop({ keep: false });
    }
  });
});

describeWithEngine("orphans", () => {
  it("of a killed owner are removed at the next start, those of a living one are not (DK-16)", async () => {
    const module = join(import.meta.dirname, "../../../environments/docker/index.ts");
    const script = `
      import { createDockerBackend } from ${JSON.stringify(module)};
      const backend = createDockerBackend({ image: ${JSON.stringify(BUSYBOX_IMAGE)} });
      await backend.start(() => {});
      const stream = await backend.openStream({ argv: ["sh"], env: {} });
      console.log(backend.containerId);
      await stream.ended;`;
    const begin = async () => {
      const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
        stdio: ["pipe", "pipe", "inherit"],
      });
      // One that outlived a failure would keep the test runner from ending.
      onTestFinished(() => void child.kill("SIGKILL"));
      const [line] = await once(child.stdout, "data");
      return { child, id: String(line).trim() };
    };
    const [victim, survivor] = await Promise.all([begin(), begin()]);
    victim.child.kill("SIGKILL");
    await once(victim.child, "exit");
    await using bystander = await foreign();
    const states = Object.fromEntries(
      (await listDocker()).map(({ containerId, owner }) => [containerId, owner]),
    );
    // A start beside this one, of another test, may have removed it already.
    expect(["dead", undefined]).toContain(states[victim.id]);
    expect(states[survivor.id]).toBe("live");
    const { environment } = make();
    await environment.start();
    await until(async () => !(await exists(victim.id)), 15_000);
    expect(await Promise.all([exists(survivor.id), exists(bystander.id)])).toEqual([true, true]);
    await environment.stop();
    survivor.child.kill("SIGKILL");
    await once(survivor.child, "exit");
    expect((await reapDocker()).failed).toEqual([]);
    expect(await exists(survivor.id)).toBe(false);
  });

  it("that were to be kept wait for the next environment of their id", { tags: ["slow"] }, async () => {
    const id = `kept-${process.pid}`;
    const first = make({ id, keep: true });
    await first.environment.exec("echo here > /workspace/file");
    const containerId = idOf(first.backend);
    await first.environment.stop();
    const second = make({ id, keep: true });
    expect((await second.environment.exec("cat file")).output).toBe("here\n");
    expect(idOf(second.backend)).toBe(containerId);
    await second.environment.stop();
    await docker.getContainer(containerId).stop({ t: 0 });
    const third = make({ id, keep: true });
    expect((await third.environment.exec("cat file")).output).toBe("here\n");
    await third.environment.stop();
    // Its owner lives still.
    expect((await reapDocker({ kept: [id] })).removed.map(({ containerId }) => containerId)).not.toContain(
      containerId,
    );
    await docker.getContainer(containerId).remove({ force: true });
  });
});

describeWithEngine("an attached container", () => {
  it("is used, never stopped, and left without a process of ours", async () => {
    await using box = await foreign();
    const { environment } = make({ attach: box.id.slice(0, 12) });
    expect((await environment.exec("echo hi; pwd")).output).toBe("hi\n/workspace\n");
    await environment.exec("sleep 4321 & setsid sleep 4322 & exit 0");
    await environment.stop();
    const { State } = await docker.getContainer(box.id).inspect();
    expect(State.Running).toBe(true);
    const { Processes } = await docker.getContainer(box.id).top();
    expect(Processes.map((process: string[]) => process.at(-1))).toEqual(["sleep 600"]);
  });

  it("is no place to work in where its workspace is missing, and gets none made", async () => {
    await using box = await foreign();
    const { environment } = make({ attach: box.id, workspace: "/srv/app" });
    await expect(environment.exec("touch marker")).rejects.toMatchObject({ code: "WORKDIR_MISSING" });
    await using elsewhere = make({ attach: box.id }).environment;
    expect((await elsewhere.exec("ls -d /srv/app /marker 2>/dev/null")).output).toBe("");
  });

  it("has checkpoints of a host's folder only where its workspace is that folder", {
    tags: ["slow"],
  }, async () => {
    const folder = realpathSync(mkdtempSync(join(tmpdir(), "moorage-bind-")));
    await using box = await foreign(BUSYBOX_IMAGE, [`${folder}:/data`]);
    await using checkpoints = new Checkpoints(mkdtempSync(join(stateDir, "checkpoints-")));
    const placeOf = async (workspace: string) => {
      await using environment = make({ attach: box.id, workspace }).environment;
      expect(
        (await environment.exec(["mkdir", "-p", "/workspace", "/data/sub"], { cwd: "/" })).exitCode,
      ).toBe(0);
      expect(environment.info().exposedHostPaths).toEqual([folder]);
      return (await checkpoints.create(environment)).place;
    };
    try {
      expect(await placeOf("/workspace")).toMatch(/^docker:.*:\/workspace$/);
      expect(await placeOf("/data")).toBe(`host:${folder}`);
      expect(await placeOf("/data/sub")).toBe(`host:${folder}/sub`);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it("is not joined when it has the host's folders by another name: a volume's options, or a link", async () => {
    const folder = realpathSync(mkdtempSync(join(tmpdir(), "moorage-bind-")));
    const volume = `moorage-test-${crypto.randomUUID().slice(0, 8)}`;
    symlinkSync("/etc", join(folder, "link"));
    const DriverOpts = { type: "none", o: "bind", device: "/etc" };
    await docker.createVolume({ Name: volume, Driver: "local", DriverOpts });
    try {
      for (const source of [volume, join(folder, "link")]) {
        await using box = await foreign(BUSYBOX_IMAGE, [`${source}:/data`]);
        await expect(make({ attach: box.id }).environment.start()).rejects.toMatchObject({
          code: "UNSAFE_ENVIRONMENT",
          message: expect.stringContaining("the host's /etc is mounted writable at /data"),
        });
      }
    } finally {
      await docker.getVolume(volume).remove({ force: true });
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it("is told when it is paused, gone or not there", { tags: ["slow"] }, async () => {
    await using box = await foreign();
    await docker.getContainer(box.id).pause();
    const startedAt = performance.now();
    await expect(make({ attach: box.id }).environment.start()).rejects.toMatchObject({
      code: "CONTAINER_PAUSED",
    });
    expect(performance.now() - startedAt).toBeLessThan(5_000);
    await docker.getContainer(box.id).unpause();
    const { environment } = make({ attach: box.id });
    await environment.exec("true");
    await docker.getContainer(box.id).remove({ force: true });
    await expect(environment.exec("echo hi")).rejects.toMatchObject({ code: "CONTAINER_MISSING" });
    await environment.stop();
    await expect(make({ attach: "no-such-container" }).environment.start()).rejects.toMatchObject({
      code: "CONTAINER_MISSING",
    });
  });
});

describeWithEngine("a pool", () => {
  it("hands out started containers faster than a cold start, and leaves none", {
    tags: ["slow"],
  }, async () => {
    const options = { image: BUSYBOX_IMAGE };
    await using pool = new DockerPool(options, 2);
    const first = async (more: DockerOptions) => {
      const { environment } = make({ ...options, ...more });
      const startedAt = performance.now();
      expect((await environment.exec("echo hi")).output).toBe("hi\n");
      const elapsed = performance.now() - startedAt;
      await environment.stop();
      return elapsed;
    };
    const median = (values: number[]) => values.sort((a, b) => a - b)[values.length >> 1] ?? 0;
    const cold: number[] = [];
    const warm: number[] = [];
    for (let round = 0; round < 3; round += 1) {
      cold.push(await first({}));
      await pool.fill();
      warm.push(await first({ pool }));
    }
    // How much faster is a figure of the benchmarks; here other tests run beside it.
    expect(median(cold) / median(warm)).toBeGreaterThan(2);
    await pool.stop();
    expect((await listDocker()).filter(({ owner }) => owner === "self")).toEqual([]);
  });

  it("passes over a container that died while it waited", async () => {
    await using pool = new DockerPool({ image: BUSYBOX_IMAGE }, 1);
    await pool.fill();
    const [waiting] = (await listDocker()).filter(({ owner }) => owner === "self");
    await docker.getContainer(waiting?.containerId ?? "").remove({ force: true });
    const { environment } = make({ pool });
    await using _ = environment;
    expect((await environment.exec("echo hi")).output).toBe("hi\n");
  });

  it("refuses an environment with other options", async () => {
    await using pool = new DockerPool({ image: BUSYBOX_IMAGE }, 1);
    expect(() => make({ image: WORKBENCH_IMAGE, pool })).toThrow(
      expect.objectContaining({ code: "INVALID_SPEC" }),
    );
  });
});
