/** The MCP inspector's command line, as a person would use it against this server. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { MOOR, privateHome, temporaryFolder } from "./moor.ts";

const run = promisify(execFile);
const INSPECTOR = fileURLToPath(import.meta.resolve("@modelcontextprotocol/inspector/package.json"));

async function inspect(...words: readonly string[]): Promise<unknown> {
  const launcher = fileURLToPath(new URL("clients/launcher/build/index.js", `file://${INSPECTOR}`));
  const workspace = temporaryFolder();
  const { stdout } = await run(
    process.execPath,
    [launcher, "--cli", MOOR, "mcp", "--environment", "local", "--workspace", workspace, ...words],
    { env: { ...process.env, ...privateHome() }, maxBuffer: 16 * 1024 * 1024 },
  );
  return JSON.parse(stdout);
}

describe("the MCP inspector", () => {
  it("lists the tools, and finds no schema that a client could not take", async () => {
    const { tools } = (await inspect("--method", "tools/list", "--strict")) as { tools: { name: string }[] };
    expect(tools.map(({ name }) => name).sort()).toEqual([
      "patch",
      "process",
      "read_file",
      "search_files",
      "terminal",
      "write_file",
    ]);
  });

  it("calls a tool", async () => {
    const result = await inspect(
      "--method",
      "tools/call",
      "--tool-name",
      "terminal",
      "--tool-arg",
      "command=echo hi",
    );
    expect(result).toMatchObject({ structuredContent: { output: "hi\n", exit_code: 0 } });
  });
});
