import { execFile } from "node:child_process";
import { mkdtemp, readFile, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, it } from "vitest";
import { createMoorage, type Moorage } from "../../src/moorage.ts";
import { BUSYBOX_IMAGE, describeWithEngine } from "../host/images.ts";

let folder: string;
beforeEach(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), "moorage-docker-root-")));
});
afterEach(() => rm(folder, { recursive: true }));

async function run(moorage: Moorage, command: string, environment?: string): Promise<string> {
  const result = await moorage.call({
    name: "terminal",
    arguments: { command },
    ...(environment !== undefined && { environment }),
  });
  return result.ok ? String(result.content.output) : result.text;
}

describeWithEngine("createMoorage() with containers", () => {
  it("gives a container what its specification says, and mounts the workspace", async () => {
    await using moorage = await createMoorage({
      environments: `docker:${BUSYBOX_IMAGE}?memory=96m&cpus=0.5&pids=77&id=root-${process.pid}&workspace=/srv/w`,
      workspace: folder,
      stateDir: join(folder, ".state"),
      env: { COLOUR: "green" },
    });
    expect(moorage.environments).toEqual(["docker"]);
    expect(await run(moorage, "pwd; echo $COLOUR; echo from inside > made")).toBe("/srv/w\ngreen\n");
    expect(await readFile(join(folder, "made"), "utf8")).toBe("from inside\n");
    const health = (await moorage.health()).docker;
    const name = health?.healthy ? health.detail?.match(/moorage-\S+/)?.[0] : undefined;
    const { stdout } = await promisify(execFile)("docker", [
      "inspect",
      name ?? "",
      "--format",
      "{{json .HostConfig}}",
    ]);
    expect(JSON.parse(stdout)).toMatchObject({ Memory: 96 * 1024 ** 2, NanoCpus: 0.5e9, PidsLimit: 77 });
  });

  it("serves a container and this machine side by side", async () => {
    await using moorage = await createMoorage({
      environments: { box: `docker:${BUSYBOX_IMAGE}`, here: "local" },
      workspace: folder,
      stateDir: join(folder, ".state"),
    });
    const pids = await Promise.all(["box", "here"].map((name) => run(moorage, "cat /proc/1/comm", name)));
    expect(pids[0]).toBe("docker-init\n");
    expect(pids[1]).not.toBe(pids[0]);
    const [tool] = (await moorage.tools()).visible;
    expect(tool?.parameters.properties).toMatchObject({ environment: { enum: ["box", "here"] } });
  });

  it("has no network but its own with egress=none", async () => {
    await using moorage = await createMoorage({
      environments: `docker:${BUSYBOX_IMAGE}?egress=none`,
      stateDir: join(folder, ".state"),
    });
    expect((await moorage.environment().exec("ls /sys/class/net")).output).toBe("lo\n");
  });
});
