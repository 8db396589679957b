/** What is left of a container whose orchestrator was killed in the middle of a command, and who cleans it up. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";
import {
  createDockerEnvironment,
  type DockerOptions,
  openEngine,
} from "../../../environments/docker/index.ts";
import { LABELS } from "../../../environments/docker/labels.ts";
import { listContainerProcesses } from "../../../environments/docker/top.ts";
import { BUSYBOX_IMAGE, describeWithEngine } from "../../host/images.ts";
import { until } from "./read-stream.ts";

const ORCHESTRATOR = fileURLToPath(new URL("../fixtures/orchestrator.ts", import.meta.url));
const root = await mkdtemp(join(tmpdir(), "moorage-orphans-"));
afterAll(() => rm(root, { recursive: true, force: true }));

/** Starts an orchestrator, and kills it once its command runs. */
async function killedOrchestrator(stateDir: string, id: string, options: DockerOptions) {
  const child = spawn(process.execPath, [ORCHESTRATOR, stateDir, "", id, JSON.stringify(options)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  let said = "";
  for await (const chunk of child.stdout) {
    said += String(chunk);
    if (said.includes("ready")) break;
  }
  child.kill("SIGKILL");
  await exited;
  expect(said, "the orchestrator says that it is ready").toBe("ready\n");
}

const { docker } = await openEngine();
const containersOf = (id: string) =>
  docker.listContainers({ all: true, filters: { label: [`${LABELS.environment}=${id}`] } });

describeWithEngine("an orchestrator that is killed in the middle of a command in a container", () => {
  it("leaves no container behind after the next start, nor its door (SH-42)", {
    timeout: 120_000,
  }, async () => {
    const stateDir = await mkdtemp(join(root, "state-"));
    const id = `killed-${process.pid}`;
    await killedOrchestrator(stateDir, id, { image: BUSYBOX_IMAGE, egress: { allow: ["example.com"] } });
    expect((await containersOf(id)).length).toBe(2);
    await using next = createDockerEnvironment({ image: BUSYBOX_IMAGE, stateDir });
    await next.start();
    await until(async () => (await containersOf(id)).length === 0, 30_000);
    expect((await next.exec("echo on")).output).toBe("on\n");
  });

  it("leaves a kept container without the command, and with its background processes", {
    tags: ["slow"],
    timeout: 120_000,
  }, async () => {
    const stateDir = await mkdtemp(join(root, "state-"));
    const id = `again-${process.pid}`;
    const options = { image: BUSYBOX_IMAGE, keep: true, id };
    await killedOrchestrator(stateDir, id, options);
    const [kept] = await containersOf(id);
    try {
      // Nobody but those who were left inside ends what had somebody to answer to.
      const commands = async () =>
        (await listContainerProcesses(kept?.Id ?? "")).map(({ command }) => command);
      await until(
        async () => (await commands()).filter((command) => command === "sleep 1000").length <= 2,
        30_000,
      );
      const environment = createDockerEnvironment({ ...options, stateDir });
      const running = (await environment.processes.list()).filter(({ status }) => status === "running");
      expect(running.map(({ command }) => command)).toEqual([expect.stringContaining("setsid sleep 1000")]);
      expect((await environment.exec("cat running over 2>/dev/null | wc -l")).output.trim()).toBe("1");
      expect((await environment.processes.get(running[0]?.id ?? "")).id).toBe(running[0]?.id);
      await environment.stop();
      expect((await commands()).filter((command) => command === "sleep 1000")).toHaveLength(2);
    } finally {
      await docker.getContainer(kept?.Id ?? "").remove({ force: true, v: true });
    }
  });
});
