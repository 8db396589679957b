import { createServer, type Server as NetServer, type Socket } from "node:net";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/client";
import { InMemoryTransport } from "@modelcontextprotocol/server";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Health } from "../../environments/base.ts";
import { createLocalEnvironment } from "../../environments/local/index.ts";
import { systemClock } from "../../src/clock.ts";
import { createMcpServer } from "../../src/mcp/server.ts";
import { createMoorage } from "../../src/moorage.ts";
import { connect } from "./mcp-client.ts";
import { temporaryFolder, until } from "./moor.ts";

const DOWN: Health = {
  healthy: false,
  code: "DOCKER_UNREACHABLE",
  reason: "engine unreachable at unix:///x.sock",
};

interface Stage {
  readonly client: Client;
  health: Health;
  /** Seconds that the clock is ahead. */
  aheadSeconds: number;
  /** list_changed notifications so far. */
  changes: number;
  names(): Promise<readonly string[]>;
}

/** A real environment of this machine whose health the test says, behind a real server and client. */
async function stage(): Promise<Stage> {
  const stateDir = temporaryFolder();
  const environment = createLocalEnvironment({ stateDir, workspace: temporaryFolder() });
  const self: Stage = {
    client: new Client({ name: "test", version: "1" }),
    health: { healthy: true },
    aheadSeconds: 0,
    changes: 0,
    names: async () =>
      (await self.client.listTools(undefined, { cacheMode: "bypass" })).tools.map(({ name }) => name),
  };
  environment.health = async () => self.health;
  const moorage = await createMoorage({
    environments: { main: environment },
    stateDir,
    clock: { ...systemClock, now: () => performance.now() + self.aheadSeconds * 1_000 },
  });
  onTestFinished(() => moorage.stop());
  onTestFinished(() => environment.stop());
  const [near, far] = InMemoryTransport.createLinkedPair();
  await createMcpServer(moorage, { version: "1" }).connect(far);
  self.client.setNotificationHandler("notifications/tools/list_changed", () => {
    self.changes += 1;
  });
  await self.client.connect(near);
  onTestFinished(() => self.client.close());
  return self;
}

describe("availability over MCP", () => {
  it("AV-05: an outage and its end are told once each, and calls between them give the reason", async () => {
    const self = await stage();
    const all = await self.names();
    expect(all.length).toBeGreaterThan(3);
    self.health = DOWN;
    self.aheadSeconds += 31;
    expect(await self.names()).toEqual(all);
    self.aheadSeconds += 31;
    expect(await self.names()).toEqual([]);
    for (let i = 0; i < 20; i += 1) {
      self.aheadSeconds += 3;
      expect(await self.names()).toEqual([]);
    }
    expect(self.changes).toBe(1);
    const call = await self.client.callTool({ name: "read_file", arguments: { path: "x" } });
    expect(call).toMatchObject({ isError: true, structuredContent: { error: { retryable: true } } });
    expect(JSON.stringify(call.content)).toContain("engine unreachable at unix:///x.sock");
    self.health = { healthy: true };
    self.aheadSeconds += 3;
    expect(await self.names()).toEqual(all);
    expect(self.changes).toBe(2);
  });

  it("AV-09, AV-07: a probe that fails every other second changes nothing", async () => {
    const self = await stage();
    const all = await self.names();
    for (let second = 0; second < 120; second += 1) {
      self.aheadSeconds += 1;
      self.health = second % 2 === 0 ? DOWN : { healthy: true };
      expect(await self.names()).toEqual(all);
    }
    expect(self.changes).toBe(0);
  });
});

/** An engine's socket that takes connections and never says a word. */
async function silentEngine(): Promise<string> {
  const path = join(temporaryFolder(), "engine.sock");
  const sockets = new Set<Socket>();
  const server: NetServer = createServer((socket) => void sockets.add(socket.on("error", () => {})));
  await new Promise<void>((resolve) => server.listen(path, resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return path;
}

describe("AV-04: moor mcp before an engine that never answers", () => {
  it("lists at once, tells the reason in a call, and ends at the end of its input", async () => {
    const socket = await silentEngine();
    const { client, transport } = await connect({
      words: ["-e", "docker:busybox"],
      env: { DOCKER_HOST: `unix://${socket}` },
    });
    const startedAt = performance.now();
    expect((await client.listTools()).tools).toEqual([]);
    expect(performance.now() - startedAt).toBeLessThan(3_500);
    const call = await client.callTool({ name: "terminal", arguments: { command: "true" } });
    expect(call).toMatchObject({ isError: true });
    expect(JSON.stringify(call.content)).toContain(socket);
    const { pid } = transport;
    await client.close();
    await until("the server is gone", () => {
      try {
        process.kill(pid ?? 0, 0);
        return false;
      } catch {
        return true;
      }
    });
  });
});
