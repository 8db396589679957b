import type { ChildProcessWithoutNullStreams } from "node:child_process";
import { describe, expect, it } from "vitest";
import { slowUnless } from "../slow.ts";
import { moor, outcome, privateHome, startMoor, until } from "./moor.ts";
import { pidsOf, uniqueSleep } from "./processes.ts";

const INITIALIZE = {
  jsonrpc: "2.0",
  id: 0,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "plain", version: "1" } },
};
const INITIALIZED = { jsonrpc: "2.0", method: "notifications/initialized" };

function lines(...messages: readonly object[]): string {
  return messages.map((message) => `${JSON.stringify(message)}\n`).join("");
}

function callTerminal(id: number, args: object): object {
  return { jsonrpc: "2.0", id, method: "tools/call", params: { name: "terminal", arguments: args } };
}

interface Server {
  readonly child: ChildProcessWithoutNullStreams;
  readonly sleep: string;
}

/** A server with one background process and one foreground command, both of the same `sleep`. */
async function busyServer(env: Readonly<Record<string, string>>): Promise<Server> {
  const child = startMoor(["mcp", "-e", "local"], { env });
  const sleep = uniqueSleep();
  child.stdin.on("error", () => {});
  child.stdout.on("data", () => {});
  child.stdin.write(
    lines(
      INITIALIZE,
      INITIALIZED,
      callTerminal(1, { command: sleep, background: true }),
      callTerminal(2, { command: `setsid ${sleep}` }),
    ),
  );
  await until("both run", () => pidsOf(sleep).length === 2);
  return { child, sleep };
}

describe("SH-42: what moor mcp started is gone", () => {
  for (const [what, exitCode, end] of [
    ["stdin's end", 0, (child: ChildProcessWithoutNullStreams) => child.stdin.end()],
    ["SIGINT", 130, (child: ChildProcessWithoutNullStreams) => child.kill("SIGINT")],
    ["SIGTERM", 143, (child: ChildProcessWithoutNullStreams) => child.kill("SIGTERM")],
    ["SIGHUP", 129, (child: ChildProcessWithoutNullStreams) => child.kill("SIGHUP")],
  ] as const) {
    it(`after ${what}, within 15 s`, slowUnless(what === "stdin's end" || what === "SIGTERM"), async () => {
      const { child, sleep } = await busyServer(privateHome());
      const ended = outcome(child);
      const startedAt = performance.now();
      end(child);
      expect(await ended).toMatchObject({ exitCode, signal: null });
      expect(performance.now() - startedAt).toBeLessThan(15_000);
      expect(pidsOf(sleep)).toEqual([]);
    });
  }

  it.each([
    ["moor reap", (env: Readonly<Record<string, string>>) => moor(["reap"], { env })],
    [
      "the next start",
      (env: Readonly<Record<string, string>>) => moor(["exec", "-e", "local", "--", "true"], { env }),
    ],
  ])("after SIGKILL and %s", { tags: ["slow"] }, async (_what, next) => {
    const env = privateHome();
    const { child, sleep } = await busyServer(env);
    const ended = outcome(child);
    child.kill("SIGKILL");
    expect(await ended).toMatchObject({ signal: "SIGKILL" });
    expect(await next(env)).toMatchObject({ exitCode: 0 });
    await until("both are gone", () => pidsOf(sleep).length === 0);
  });
});

describe("moor mcp at the end of its input", () => {
  it("answers what was asked before it, then ends", async () => {
    const stdin = lines(
      INITIALIZE,
      INITIALIZED,
      { jsonrpc: "2.0", id: 1, method: "tools/list" },
      callTerminal(2, { command: "echo hi" }),
    );
    const { exitCode, stdout } = await moor(["mcp", "-e", "local"], { env: privateHome(), stdin });
    const answers = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(exitCode).toBe(0);
    expect(answers.map(({ id }) => id)).toEqual([0, 1, 2]);
    expect(answers[2].result.structuredContent).toMatchObject({ output: "hi\n", exit_code: 0 });
  });

  it("ends at once when nothing was asked", async () => {
    expect(await moor(["mcp", "-e", "local"], { env: privateHome() })).toEqual({
      exitCode: 0,
      signal: null,
      stdout: "",
      stderr: "",
    });
  });

  it("answers lines that are no message as JSON-RPC asks, and goes on", async () => {
    const stdin = [
      "not json",
      '{"jsonrpc":"2.0"}',
      `[${JSON.stringify(INITIALIZE)}]`,
      "\0",
      " \r",
      '{"jsonrpc":"1.0","id":5,"method":"ping"}',
      '{"jsonrpc":"2.0","id":null,"method":"ping"}',
      '{"jsonrpc":"2.0","id":6,"result":7}',
      // A client may write a mark first, and no newline last.
      `\ufeff${JSON.stringify(INITIALIZE)}`,
      '{"jsonrpc":"2.0","id":"last","method":"ping"}',
    ].join("\n");
    const { exitCode, stdout, stderr } = await moor(["mcp", "-e", "local"], { env: privateHome(), stdin });
    const answers = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(exitCode).toBe(0);
    expect(answers.map(({ id, error }) => [id, error?.code])).toEqual([
      [null, -32700],
      [null, -32600],
      [null, -32600],
      [null, -32700],
      [5, -32600],
      [null, -32600],
      [0, undefined],
      ["last", undefined],
    ]);
    expect(stderr.trimEnd().split("\n")).toHaveLength(7);
  });

  it("ends when nobody reads its answers", async () => {
    const child = startMoor(["mcp", "-e", "local"], { env: privateHome() });
    child.stdin.on("error", () => {});
    child.stdout.destroy();
    child.stdin.write(lines(INITIALIZE, INITIALIZED, { jsonrpc: "2.0", id: 1, method: "tools/list" }));
    const { exitCode, stderr } = await outcome(child);
    expect(exitCode).toBe(141);
    expect(stderr).not.toContain("at ");
  });
});
