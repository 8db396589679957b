import type { ChildProcessWithoutNullStreams } from "node:child_process";
import { existsSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { listDocker, reapDocker } from "../../environments/docker/index.ts";
import { listContainerProcesses } from "../../environments/docker/top.ts";
import { slowUnless } from "../slow.ts";
import { connect } from "./mcp-client.ts";
import { moor, outcome, privateHome, startMoor, temporaryFolder, until } from "./moor.ts";

const IMAGE = "moorage/busybox:latest";
let counter = 0;

/** An environment of this test alone. */
function unique(): { readonly id: string; readonly spec: string } {
  counter += 1;
  const id = `surfaces-${process.pid}-${counter}`;
  onTestFinished(async () => {
    // Only what a failed test's dead child left; a child that a test started is killed before.
    await reapDocker();
  });
  return { id, spec: `docker:${IMAGE}?id=${id}` };
}

async function containersOf(id: string): Promise<readonly string[]> {
  return (await listDocker()).filter(({ environment }) => environment === id).map(({ name }) => name);
}

describe("moor exec in a container", () => {
  it("keeps outputs and exit status apart, and leaves nothing", async () => {
    const { id, spec } = unique();
    const result = await moor(["exec", "-e", spec, "--", "sh", "-c", "echo out; echo err >&2; exit 7"], {
      env: privateHome(),
    });
    expect(result).toMatchObject({ exitCode: 7, stdout: "out\n" });
    expect(result.stderr).toContain("err\n");
    expect(await containersOf(id)).toEqual([]);
  });

  it("works on the folder that --workspace names", async () => {
    const { spec } = unique();
    const workspace = temporaryFolder();
    writeFileSync(join(workspace, "given.txt"), "from the host\n");
    const result = await moor(["exec", "-e", spec, "--workspace", workspace, "--", "cat", "given.txt"], {
      env: privateHome(),
    });
    expect(result).toMatchObject({ exitCode: 0, stdout: "from the host\n" });
  });

  for (const [signal, exitCode] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const) {
    it(`DK-17: ${signal} removes the container within 15 s`, slowUnless(signal === "SIGTERM"), async () => {
      const { id, spec } = unique();
      const child = startMoor(["exec", "-e", spec, "--shell", "echo up; sleep 4000"], { env: privateHome() });
      const ended = outcome(child);
      await new Promise((resolve) => child.stdout.once("data", resolve));
      expect(await containersOf(id)).toHaveLength(1);
      const startedAt = performance.now();
      child.kill(signal);
      expect(await ended).toMatchObject({ exitCode, stdout: "up\n" });
      expect(performance.now() - startedAt).toBeLessThan(15_000);
      expect(await containersOf(id)).toEqual([]);
    });
  }

  it("leaves no container when it is ended while the container starts", { tags: ["slow"] }, async () => {
    const { id, spec } = unique();
    const child = startMoor(["exec", "-e", spec, "--", "true"], { env: privateHome() });
    const ended = outcome(child);
    await until("a container is made", async () => (await containersOf(id)).length > 0);
    child.kill("SIGTERM");
    // It may just have been quicker than the signal.
    expect([0, 143]).toContain((await ended).exitCode);
    expect(await containersOf(id)).toEqual([]);
  });

  it("tells an image that cannot be had as its own failure", async () => {
    const { exitCode, stdout, stderr } = await moor(
      ["exec", "-e", "docker:moorage/no-such-image?pull=never", "--", "true"],
      { env: privateHome() },
    );
    expect({ exitCode, stdout }).toEqual({ exitCode: 125, stdout: "" });
    expect(stderr).toMatch(/^moor: IMAGE_MISSING: /m);
  });
});

describe("moor ps and moor reap", () => {
  it("show a live container with what runs in it, and remove it only when its owner is dead", async () => {
    const { id, spec } = unique();
    const env = privateHome();
    const child = startMoor(["exec", "-e", spec, "--shell", "echo up; sleep 4001"], { env });
    const ended = outcome(child);
    await new Promise((resolve) => child.stdout.once("data", resolve));

    const find = async (): Promise<unknown> => {
      const { exitCode, stdout } = await moor(["ps", "--json"], { env });
      expect(exitCode).toBe(0);
      return JSON.parse(stdout).environments.find((each: { id: string }) => each.id === id);
    };
    expect(await find()).toMatchObject({
      backend: "docker",
      owner: "live",
      processes: [expect.objectContaining({ command: "sleep 4001" })],
    });
    expect(await moor(["reap"], { env })).toMatchObject({ exitCode: 0 });
    expect(await containersOf(id)).toHaveLength(1);

    child.kill("SIGKILL");
    await ended;
    // Any start on this machine removes orphans too, so it may be gone already.
    expect(await moor(["reap"], { env })).toMatchObject({ exitCode: 0 });
    expect(await containersOf(id)).toEqual([]);
  });
});

describe("moor doctor", () => {
  it("finds a container environment and its tools well", async () => {
    const { spec } = unique();
    const { exitCode, stdout } = await moor(["doctor", "-e", spec, "--json"], { env: privateHome() });
    const findings = JSON.parse(stdout);
    expect(exitCode).toBe(0);
    expect(findings.environments).toEqual([
      { name: "docker", works: true, reason: expect.stringContaining(IMAGE), suggestion: null },
    ]);
    expect(findings.tools.every(({ works }: { works: boolean }) => works)).toBe(true);
  });

  it("and moor tools show no tool of an environment that cannot start, but why", {
    tags: ["slow"],
  }, async () => {
    const words = ["-e", "docker:moorage/no-such-image?pull=never", "--json"];
    const reason = expect.stringContaining('there is no image "moorage/no-such-image"');
    const { stdout } = await moor(["doctor", ...words], { env: privateHome() });
    const findings: readonly { readonly works: boolean }[] = JSON.parse(stdout).tools;
    expect(findings.map(({ works }) => works)).not.toContain(true);
    const listing = await moor(["tools", ...words], { env: privateHome() });
    const { tools, hidden } = JSON.parse(listing.stdout);
    expect({ tools, exitCode: listing.exitCode }).toEqual({ tools: [], exitCode: 0 });
    expect(hidden).toContainEqual({ name: "terminal", toolset: "terminal", why: "unavailable", reason });
  });

  it("says what to do about an image that is not there", async () => {
    const { exitCode, stdout } = await moor(["doctor", "-e", "docker:moorage/no-such-image?pull=never"], {
      env: privateHome(),
    });
    expect(exitCode).toBe(1);
    expect(stdout).toMatch(/no {2}docker .*IMAGE_MISSING: .*\n +\S+/);
  });
});

describe("moor mcp on a container", () => {
  it("runs tools inside, cancels inside, and removes it when the client leaves", async () => {
    const { id, spec } = unique();
    const { client, transport } = await connect({ words: ["-e", spec] });
    const { tools } = await client.listTools();
    expect(tools.length).toBeGreaterThan(3);
    expect(client.getInstructions()).toContain("in a container");
    const written = await client.callTool({
      name: "write_file",
      arguments: { path: "a.txt", content: "hi\n" },
    });
    expect(written.isError).toBeFalsy();
    const read = await client.callTool({ name: "terminal", arguments: { command: "cat a.txt; hostname" } });
    expect(read.structuredContent).toMatchObject({ exit_code: 0, output: expect.stringMatching(/^hi\n/) });

    const controller = new AbortController();
    const call = client.callTool(
      { name: "terminal", arguments: { command: "sleep 4002 & sleep 4002" } },
      { signal: controller.signal },
    );
    call.catch(() => {});
    const sleeps = async (): Promise<number> => {
      const [entry] = (await listDocker()).filter(({ environment }) => environment === id);
      const processes = await listContainerProcesses(entry?.containerId ?? "");
      return processes.filter(({ command }) => command === "sleep 4002").length;
    };
    await until("both sleeps run", async () => (await sleeps()) === 2);
    controller.abort();
    await expect(call).rejects.toThrow();
    await until("no sleep is left", async () => (await sleeps()) === 0);

    const { pid } = transport;
    await client.close();
    await until("the container is gone", async () => (await containersOf(id)).length === 0);
    expect(() => process.kill(pid ?? 0, 0)).toThrow();
  });

  for (const [what, end] of [
    ["stdin's end", (child: ChildProcessWithoutNullStreams) => child.stdin.end()],
    ["SIGTERM", (child: ChildProcessWithoutNullStreams) => child.kill("SIGTERM")],
  ] as const) {
    it(`DK-17: ${what} removes the container mid-call`, slowUnless(what !== "SIGTERM"), async () => {
      const { id, spec } = unique();
      const child = startMoor(["mcp", "-e", spec], { env: privateHome() });
      child.stdin.on("error", () => {});
      const ended = outcome(child);
      const messages = [
        {
          jsonrpc: "2.0",
          id: 0,
          method: "initialize",
          params: {
            protocolVersion: "2025-06-18",
            capabilities: {},
            clientInfo: { name: "plain", version: "1" },
          },
        },
        { jsonrpc: "2.0", method: "notifications/initialized" },
        // Starts the container even where a busy engine misses the probe limit and the call is refused.
        { jsonrpc: "2.0", id: 1, method: "tools/list" },
        {
          jsonrpc: "2.0",
          id: 2,
          method: "tools/call",
          params: { name: "terminal", arguments: { command: "sleep 4003" } },
        },
      ];
      child.stdin.write(messages.map((message) => `${JSON.stringify(message)}\n`).join(""));
      await until("the container is up", async () => (await containersOf(id)).length === 1, 30_000);
      const startedAt = performance.now();
      end(child);
      await ended;
      expect(performance.now() - startedAt).toBeLessThan(15_000);
      expect(await containersOf(id)).toEqual([]);
    });
  }
});

describe("moor checkpoints of a container that a folder is mirrored with", () => {
  it("are found by the folder, say by which words they are reached, and bring the folder back", async () => {
    const { spec } = unique();
    const env = privateHome();
    const folder = realpathSync(temporaryFolder());
    for (const name of ["kept", "gone"]) writeFileSync(join(folder, name), `${name}\n`);
    const args = JSON.stringify({ command: "rm gone" });
    const call = await moor(["call", "terminal", args, "-e", spec, "--sync", folder], { env });
    const { checkpoint: id } = JSON.parse(call.stdout);
    expect(existsSync(join(folder, "gone"))).toBe(false);
    const words = ["-e", spec, "--sync", folder];
    const run = (...rest: string[]) => moor(["checkpoints", ...rest], { env, cwd: folder });

    const listed = await run("list", "--workspace", ".");
    expect(listed.stdout).toContain(`${id}  `);
    expect(listed.stdout).toContain(`-e '${spec}', mirrored with ${folder})`);
    expect((await run("show", id)).stdout).toContain(`-e '${spec}', mirrored with ${folder})`);
    const alone = await run("restore", id);
    expect(alone).toMatchObject({ exitCode: 125, stdout: "" });
    expect(alone.stderr).toContain(`-e '${spec}' --sync ${folder}`);
    // The container is gone, and another one is another place.
    const refused = await run("restore", id, ...words);
    expect(refused.exitCode).toBe(125);
    expect(refused.stderr).toContain(`(-e '${spec}'), or say that another place is meant (--other-place)`);
    expect(await run("restore", id, ...words, "--other-place")).toMatchObject({
      exitCode: 0,
      stdout: "restored  gone\n",
    });
    expect(readFileSync(join(folder, "gone"), "utf8")).toBe("gone\n");
  });
});

describe("moor exec with a mirrored folder", () => {
  it("says that what the command left empty removed nothing here", async () => {
    const { spec } = unique();
    const folder = temporaryFolder();
    writeFileSync(join(folder, "p"), "1");
    const result = await moor(["exec", "-e", spec, "--sync", folder, "--", "rm", "p"], {
      env: privateHome(),
    });
    expect(result).toMatchObject({ exitCode: 0, stdout: "" });
    expect(result.stderr).toContain("moor: Not mirrored: the environment's folder was found empty");
    expect(existsSync(join(folder, "p"))).toBe(true);
  });
});
