/** What a client without progress gets from calls that take longer than it waits. */
import { Client } from "@modelcontextprotocol/client";
import { InMemoryTransport } from "@modelcontextprotocol/server";
import { describe, expect, it, onTestFinished } from "vitest";
import { createLocalEnvironment } from "../../environments/local/index.ts";
import { limits } from "../../src/limits.ts";
import { createMcpServer } from "../../src/mcp/server.ts";
import { createMoorage } from "../../src/moorage.ts";
import { connect } from "./mcp-client.ts";
import { temporaryFolder, until } from "./moor.ts";
import { pidsOf, uniqueSleep } from "./processes.ts";

describe("a call that outlasts the client's patience", () => {
  it("becomes a background process before 60 s, and the client can end it", async () => {
    const { client } = await connect();
    const sleep = uniqueSleep();
    const startedAt = performance.now();
    const result = await client.callTool({
      name: "terminal",
      arguments: { command: `echo begun; ${sleep}`, timeout: 300 },
    });
    expect(performance.now() - startedAt).toBeLessThan(55_000);
    expect(result.structuredContent).toMatchObject({ output: "begun\n", exit_code: null });
    const { session_id } = result.structuredContent as { session_id: string };
    const next = await client.callTool({ name: "terminal", arguments: { command: "echo usable" } });
    expect(next.structuredContent).toMatchObject({ output: "usable\n" });
    await client.callTool({ name: "process", arguments: { action: "kill", session_id } });
    await until("it is gone", () => pidsOf(sleep).length === 0);
  });

  it("stays in the foreground for a client that shows progress", async () => {
    const { client } = await connect();
    const result = await client.callTool(
      { name: "terminal", arguments: { command: "sleep 62; echo done", timeout: 300 } },
      { onprogress: () => {}, resetTimeoutOnProgress: true },
    );
    expect(result.structuredContent).toMatchObject({ output: "done\n", exit_code: 0 });
  });

  it("is answered while its environment is still starting", async () => {
    const stateDir = temporaryFolder();
    const environment = createLocalEnvironment({ stateDir, workspace: temporaryFolder() });
    const pull = Promise.withResolvers<void>();
    environment.start = () => pull.promise;
    const moorage = await createMoorage({ environments: { main: environment }, stateDir });
    onTestFinished(async () => {
      pull.resolve();
      await moorage.stop();
    });
    const [near, far] = InMemoryTransport.createLinkedPair();
    await createMcpServer(moorage, { version: "1" }).connect(far);
    const client = new Client({ name: "test", version: "1" });
    await client.connect(near);
    const result = await client.callTool({ name: "terminal", arguments: { command: "true" } });
    expect(result).toMatchObject({
      isError: true,
      structuredContent: {
        error: { code: "TOOL_UNAVAILABLE", message: 'Environment "main" is still starting', retryable: true },
      },
    });
    expect(limits.mcpYieldMs).toBeLessThan(60_000);
  });
});
