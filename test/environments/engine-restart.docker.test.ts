/** Losses that come from outside: a container killed, an engine restarted. On an engine of this test's own. */
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import Docker from "dockerode";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { BaseEnvironment } from "../../environments/base.ts";
import { createDockerEnvironment, type DockerEndpoint, listDocker } from "../../environments/docker/index.ts";
import { isMoorageError } from "../../src/errors.ts";
import { type EngineOptions, findEngine } from "../host/engine.ts";
import { BUSYBOX_IMAGE } from "../host/images.ts";
import { slowUnless } from "../slow.ts";

const folder = await mkdtemp(join(tmpdir(), "moorage-engine-"));
const socketPath = join(folder, "docker.sock");
const endpoint: DockerEndpoint = {
  url: `unix://${socketPath}`,
  source: "a test",
  socketPath,
  host: null,
  port: null,
  tls: null,
  apiVersion: null,
  local: true,
};
const options: EngineOptions = {
  socketPath,
  logDir: folder,
  log: (line) => console.log(`engine: ${line}`),
  // Namespaces of its own: an engine takes the machine's bridge, firewall and mounts for its own.
  daemon: [
    "unshare",
    "--net",
    "--mount",
    "dockerd",
    `--host=${endpoint.url}`,
    `--data-root=${folder}/data`,
    `--exec-root=${folder}/exec`,
    `--pidfile=${folder}/docker.pid`,
    "--bridge=none",
    "--iptables=false",
    "--storage-driver=vfs",
  ],
};

let daemonPid: number | null = null;

async function startEngine(): Promise<void> {
  const state = await findEngine(options);
  if (!state.available) throw new Error(state.reason);
  daemonPid = state.startedPid;
}

/** Ends the daemon, and waits until it is gone; killed, it takes the containerd that it started with it. */
async function endEngine(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
  const pid = daemonPid;
  if (pid === null) return;
  daemonPid = null;
  const pids = [pid];
  if (signal === "SIGKILL") {
    pids.push(Number(await readFile(join(folder, "exec/containerd/containerd.pid"), "utf8")));
  }
  for (const one of pids) process.kill(one, signal);
  const deadline = performance.now() + 40_000;
  while (pids.some(runs)) {
    if (performance.now() > deadline) throw new Error(`The engine ${pid} does not end on ${signal}`);
    await delay(50);
  }
}

/** Kills what an engine that was itself killed has left: the keepers of its containers, and what they keep. */
async function sweep(): Promise<void> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  for (const pid of pids) {
    const commandLine = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "it has ended");
    if (!commandLine.includes(`${folder}/exec`)) continue;
    const children = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8").catch(() => "");
    for (const one of [...children.split(" ").filter((child) => child !== ""), pid]) {
      if (runs(Number(one))) process.kill(Number(one), "SIGKILL");
    }
  }
}

function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ESRCH") return false;
    throw error;
  }
}

/** Why there can be no engine of one's own here, or null. It is left running for the tests when there can. */
async function obstacle(): Promise<string | null> {
  const shared = inject("engine");
  if (!shared.available) return shared.reason;
  const state = await findEngine(options);
  if (!state.available) return state.reason;
  daemonPid = state.startedPid;
  try {
    // A container must start too: an engine in namespaces may answer and still have no control groups.
    const archive = join(folder, "image.tar");
    await promisify(execFile)("docker", ["save", "-o", archive, BUSYBOX_IMAGE]);
    const own = new Docker({ socketPath });
    const loaded = await own.loadImage(archive);
    await new Promise((resolve, reject) => {
      own.modem.followProgress(loaded, (error, output) => (error ? reject(error) : resolve(output)));
    });
    await using probe = makeEnvironment();
    await probe.exec("true");
    return null;
  } catch (error) {
    await endEngine("SIGTERM");
    return `no container starts on it: ${error instanceof Error ? error.message : String(error)}`;
  }
}

function makeEnvironment(): BaseEnvironment {
  return createDockerEnvironment({ image: BUSYBOX_IMAGE, endpoint, stateDir: join(folder, "state") });
}

async function containerOf(environment: BaseEnvironment) {
  const entry = (await listDocker({ endpoint })).find((one) => one.environment === environment.id);
  if (!entry) throw new Error(`Environment ${environment.id} has no container`);
  return new Docker({ socketPath }).getContainer(entry.containerId);
}

/** Waits until the environment answers again, and gives that answer. */
async function answerAgain(environment: BaseEnvironment, run: () => ReturnType<BaseEnvironment["exec"]>) {
  const deadline = performance.now() + 60_000;
  for (;;) {
    try {
      return await run();
    } catch (error) {
      // What the first calls after a loss may say; anything else is a fault.
      if (!isMoorageError(error) || performance.now() > deadline) throw error;
      expect(
        ["DOCKER_UNREACHABLE", "ENVIRONMENT_LOST", "EXECUTION_UNKNOWN", "ENVIRONMENT_UNAVAILABLE"],
        `${environment.id}: ${error.message}`,
      ).toContain(error.code);
      await delay(200);
    }
  }
}

const reason = await obstacle();

afterAll(async () => {
  await endEngine("SIGTERM");
  await sweep();
  await rm(folder, { recursive: true, force: true });
});

describe.skipIf(reason !== null)(`a loss from outside${reason ? ` (not tested: ${reason})` : ""}`, () => {
  beforeAll(async () => {
    if (daemonPid === null) await startEngine();
  });

  it("of the container during a command is no success, and the session comes back without it", async () => {
    await using environment = makeEnvironment();
    await using session = await environment.openSession();
    await session.exec("export KEPT=1; cd /tmp");
    const running = session.exec("echo begun; sleep 600", {
      onOutput: async () => (await containerOf(environment)).kill(),
    });
    await expect(running).rejects.toMatchObject({
      code: expect.toBeOneOf(["EXECUTION_UNKNOWN", "ENVIRONMENT_LOST"]),
    });
    const back = await answerAgain(environment, () => session.exec('pwd; echo "$KEPT"'));
    expect(back).toMatchObject({ exitCode: 0, output: "/tmp\n1\n", notes: [expect.stringMatching(/./)] });
    expect(await session.exec("echo on")).toMatchObject({ output: "on\n", notes: [] });
  });

  it("of the container between commands costs one note, and no command runs twice (DK-19)", async () => {
    await using environment = makeEnvironment();
    await using session = await environment.openSession();
    await session.exec("export KEPT=1; echo old > /tmp/old");
    await (await containerOf(environment)).remove({ force: true });
    const back = await session.exec(
      'echo x >> /tmp/count; cat /tmp/count /tmp/old 2>/dev/null; echo "back $KEPT"',
    );
    expect(back).toMatchObject({ exitCode: 0, output: "x\nback 1\n", notes: [expect.stringMatching(/./)] });
    expect((await listDocker({ endpoint })).length).toBe(1);
  });

  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    it(
      `of the engine by ${signal} during a command is no success, and it comes back with the engine`,
      slowUnless(signal === "SIGKILL"),
      async () => {
        await using environment = makeEnvironment();
        await using session = await environment.openSession();
        await session.exec("export KEPT=1; cd /tmp");
        const running = session.exec("echo begun; sleep 600", { onOutput: () => endEngine(signal) });
        await expect(running).rejects.toMatchObject({
          code: expect.toBeOneOf(["EXECUTION_UNKNOWN", "ENVIRONMENT_LOST", "DOCKER_UNREACHABLE"]),
        });
        await expect(environment.exec("echo no")).rejects.toMatchObject({ name: "MoorageError" });
        expect(await environment.health()).toMatchObject({ healthy: false });
        await startEngine();
        const back = await answerAgain(environment, () => session.exec('pwd; echo "$KEPT"'));
        expect(back).toMatchObject({ exitCode: 0, output: "/tmp\n1\n" });
        expect(await environment.health()).toMatchObject({ healthy: true });
      },
    );
  }

  it("leaves no container behind", async () => {
    expect(await listDocker({ endpoint })).toEqual([]);
  });
});
