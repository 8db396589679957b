/**
 * The official MCP conformance suite against this server. It speaks HTTP only, so the server is bridged; scenarios
 * ask for tools of fixed names, which are registered here as tools of ours.
 */
import { execFile } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { createMcpServer } from "../../src/mcp/server.ts";
import { createMoorage, type Moorage } from "../../src/moorage.ts";
import { defineTool, ToolRegistry } from "../../src/registry.ts";
import { type HttpBridge, serveHttp } from "./mcp-http.ts";
import { temporaryFolder } from "./moor.ts";

const run = promisify(execFile);
const SUITE = join(
  dirname(fileURLToPath(import.meta.resolve("@modelcontextprotocol/conformance/package.json"))),
  "dist/index.js",
);

const APPLICABLE = [
  "server-initialize",
  "ping",
  "tools-list",
  "tools-call-simple-text",
  "tools-call-error",
  "tools-call-with-progress",
];

const NO_RESOURCES = "the server offers tools and no resources";
const NO_PROMPTS = "the server offers tools and no prompts";
const NO_CLIENT_REQUESTS = "no tool asks the client for anything";
const JSON_ONLY = "results of tools are JSON objects";
const BRIDGED =
  "the bridge to the suite carries no more than it needs; mcp-over-http.test.ts asks `moor mcp --http`";

const NOT_APPLICABLE: Readonly<Record<string, string>> = {
  "logging-set-level": "logs go to stderr; the logging capability is deprecated and not declared",
  "tools-call-with-logging": "logs go to stderr; the logging capability is deprecated and not declared",
  "completion-complete": "there are no prompts or resources whose arguments could be completed",
  "tools-call-image": JSON_ONLY,
  "tools-call-audio": JSON_ONLY,
  "tools-call-embedded-resource": JSON_ONLY,
  "tools-call-mixed-content": JSON_ONLY,
  "tools-call-sampling": NO_CLIENT_REQUESTS,
  "tools-call-elicitation": NO_CLIENT_REQUESTS,
  "elicitation-sep1034-defaults": NO_CLIENT_REQUESTS,
  "elicitation-sep1330-enums": NO_CLIENT_REQUESTS,
  "json-schema-2020-12": "schemas are JSON Schema draft 7, which every provider's API takes",
  "server-sse-polling": BRIDGED,
  "server-sse-multiple-streams": BRIDGED,
  "dns-rebinding-protection": BRIDGED,
  "resources-list": NO_RESOURCES,
  "resources-read-text": NO_RESOURCES,
  "resources-read-binary": NO_RESOURCES,
  "resources-templates-read": NO_RESOURCES,
  "resources-subscribe": NO_RESOURCES,
  "resources-unsubscribe": NO_RESOURCES,
  "prompts-list": NO_PROMPTS,
  "prompts-get-simple": NO_PROMPTS,
  "prompts-get-with-args": NO_PROMPTS,
  "prompts-get-embedded-resource": NO_PROMPTS,
  "prompts-get-with-image": NO_PROMPTS,
};

const COMMON = {
  toolset: "conformance",
  parameters: z.object({}),
  access: "read",
  mutates: false,
  idempotent: true,
  parallel: "safe",
  needsEnvironment: false,
} as const;

function conformanceTools(): ToolRegistry {
  const registry = new ToolRegistry();
  registry.register(
    defineTool({
      ...COMMON,
      name: "test_simple_text",
      description: "Returns a text.",
      handler: async () => ({ text: "This is a simple text response for testing." }),
    }),
  );
  registry.register(
    defineTool({
      ...COMMON,
      name: "test_error_handling",
      description: "Always fails.",
      handler: async () => {
        throw new Error("This tool intentionally returns an error for testing");
      },
    }),
  );
  registry.register(
    defineTool({
      ...COMMON,
      name: "test_tool_with_progress",
      description: "Reports progress for about a second.",
      handler: async (_args, context) => {
        for (let percent = 0; percent <= 100; percent += 10) {
          context.progress({ message: `${percent} of 100`, progress: percent, total: 100 });
          await new Promise((resolve) => setTimeout(resolve, 100));
        }
        return { done: true };
      },
    }),
  );
  return registry;
}

describe("the MCP conformance suite", () => {
  let moorage: Moorage;
  let bridge: HttpBridge;

  beforeAll(async () => {
    moorage = await createMoorage({
      environments: "local",
      registry: conformanceTools(),
      stateDir: temporaryFolder(afterAll),
    });
    bridge = await serveHttp(() => createMcpServer(moorage, { version: "1.0.0" }));
  });

  afterAll(async () => {
    await bridge?.[Symbol.asyncDispose]();
    await moorage?.stop();
  });

  it("has no scenario that is neither run nor left out for a reason", async () => {
    const { stdout } = await run(process.execPath, [SUITE, "list", "--server"]);
    const known = [...stdout.matchAll(/^ {2}- ([\w-]+) \[/gm)].map(([, name]) => name);
    expect(known.sort()).toEqual([...APPLICABLE, ...Object.keys(NOT_APPLICABLE)].sort());
  });

  it.each(APPLICABLE)("passes %s", async (scenario) => {
    const { stdout } = await run(
      process.execPath,
      [SUITE, "server", "--url", bridge.url, "--scenario", scenario],
      { cwd: temporaryFolder() },
    );
    expect(stdout).toMatch(/Passed: ([1-9]\d*)\/\1, 0 failed/);
  });
});
