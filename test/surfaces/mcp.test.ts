import { readFileSync, realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { slowUnless } from "../slow.ts";
import { connect, connectOnce } from "./mcp-client.ts";
import { temporaryFolder, until } from "./moor.ts";
import { pidsOf, uniqueSleep } from "./processes.ts";

const TOOLS = ["patch", "process", "read_file", "search_files", "terminal", "write_file"];

describe("moor mcp on several environments", () => {
  it("offers each to every tool, and keeps a directory and variables in each", async () => {
    const [build = "", host = ""] = [temporaryFolder(), temporaryFolder()].map((each) => realpathSync(each));
    const words = ["-e", `build=local?workspace=${build}`, "-e", `host=local?workspace=${host}`];
    const { client } = await connect({ line: ["mcp", ...words] });
    const { tools } = await client.listTools();
    for (const { inputSchema } of tools) {
      expect(inputSchema.properties?.environment).toMatchObject({ enum: ["build", "host"] });
    }
    const instructions = client.getInstructions() ?? "";
    expect(instructions).toMatch(/^- build .*\n- host .*\nTools take "environment"; .* "build"/m);
    const call = async (name: string, args: Record<string, unknown>): Promise<unknown> =>
      (await client.callTool({ name, arguments: args })).structuredContent;
    const run = async (command: string, environment?: string): Promise<unknown> =>
      call("terminal", { command, ...(environment && { environment }) });
    await run("mkdir sub && cd sub && export WHO=build");
    await run("export WHO=host", "host");
    expect(await run("pwd; echo $WHO")).toMatchObject({ output: `${build}/sub\nbuild\n` });
    expect(await run("pwd; echo $WHO", "host")).toMatchObject({ output: `${host}\nhost\n` });
    // Relative paths of files follow the same directory.
    await call("write_file", { path: "note.txt", content: "b\n" });
    await call("write_file", { path: "note.txt", content: "h\n", environment: "host" });
    expect(readFileSync(join(build, "sub/note.txt"), "utf8")).toBe("b\n");
    expect(readFileSync(join(host, "note.txt"), "utf8")).toBe("h\n");
    expect(await call("process", { action: "list", environment: "hots" })).toMatchObject({
      error: { code: "INVALID_ARGUMENTS", message: expect.stringContaining('did you mean "host"?') },
    });
  });
});

for (const [title, client] of [
  ["a client with the older handshake", undefined],
  ["a client of the 2026-07-28 protocol", { versionNegotiation: { mode: { pin: "2026-07-28" } } }],
  ["a client that negotiates", { versionNegotiation: { mode: "auto" as const } }],
] as const) {
  describe(`moor mcp with ${title}`, slowUnless(title.endsWith("negotiates")), () => {
    const connection = connectOnce({ ...(client && { client }) });

    it("lists the six tools with schemas and annotations, and says where commands run", async () => {
      const { client: mcp, workspace } = connection();
      const { tools } = await mcp.listTools();
      expect(tools.map(({ name }) => name).sort()).toEqual(TOOLS);
      for (const tool of tools) {
        expect(tool.description).toBeTruthy();
        expect(tool.inputSchema.type).toBe("object");
      }
      const hints = Object.fromEntries(
        tools.map(({ name, annotations }) => [name, annotations?.readOnlyHint]),
      );
      expect(hints).toMatchObject({
        read_file: true,
        search_files: true,
        terminal: false,
        write_file: false,
      });
      const instructions = mcp.getInstructions() ?? "";
      expect(instructions).toContain(workspace);
      expect(instructions).toContain("no isolation");
    });

    it("runs each of the six tools", async () => {
      const { client: mcp, workspace } = connection();
      const call = async (name: string, args: Record<string, unknown>): Promise<unknown> => {
        const result = await mcp.callTool({ name, arguments: args });
        const [text] = result.content;
        expect({ isError: result.isError, name }).toEqual({ isError: undefined, name });
        expect(JSON.parse(text?.type === "text" ? text.text : "")).toEqual(result.structuredContent);
        return result.structuredContent;
      };
      await call("write_file", { path: "notes/one.txt", content: "alpha\nbeta\n" });
      expect(readFileSync(join(workspace, "notes/one.txt"), "utf8")).toBe("alpha\nbeta\n");
      expect(await call("read_file", { path: "notes/one.txt" })).toMatchObject({ total_lines: 2 });
      await call("patch", {
        mode: "replace",
        path: "notes/one.txt",
        old_string: "beta",
        new_string: "gamma",
      });
      expect(await call("search_files", { pattern: "gamma", target: "content" })).toMatchObject({ total: 1 });
      expect(await call("terminal", { command: "cd notes && cat one.txt" })).toMatchObject({
        output: "alpha\ngamma\n",
        exit_code: 0,
        cwd: join(workspace, "notes"),
      });
      expect(await call("terminal", { command: "pwd; exit 3" })).toMatchObject({
        output: `${join(workspace, "notes")}\n`,
        exit_code: 3,
      });
      const started = await call("terminal", { command: "cat", background: true });
      expect(started).toMatchObject({ session_id: expect.any(String) });
      const { session_id } = started as { session_id: string };
      await call("process", { action: "submit", session_id, data: "hello" });
      await call("process", { action: "close", session_id });
      expect(await call("process", { action: "wait", session_id, timeout: 10 })).toMatchObject({
        exit_code: 0,
      });
    });

    it("ends the whole tree of a cancelled call and goes on", async () => {
      const { client: mcp } = connection();
      const sleep = uniqueSleep();
      const controller = new AbortController();
      const call = mcp.callTool(
        { name: "terminal", arguments: { command: `setsid ${sleep} & (${sleep}) ; wait` } },
        { signal: controller.signal },
      );
      call.catch(() => {});
      await until("both sleeps run", () => pidsOf(sleep).length === 2);
      controller.abort();
      await expect(call).rejects.toThrow();
      await until("none is left", () => pidsOf(sleep).length === 0);
      const after = await mcp.callTool({ name: "terminal", arguments: { command: "echo on" } });
      expect(after.structuredContent).toMatchObject({ output: "on\n", exit_code: 0 });
    });

    it("shows progress that only grows, with the latest output", async () => {
      const { client: mcp } = connection();
      const seen: { progress: number; message?: string | undefined }[] = [];
      const result = await mcp.callTool(
        {
          name: "terminal",
          arguments: { command: "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.3; done" },
        },
        { onprogress: ({ progress, message }) => seen.push({ progress, message }) },
      );
      expect(result.structuredContent).toMatchObject({ exit_code: 0 });
      expect(seen.length).toBeGreaterThanOrEqual(3);
      expect(seen.length).toBeLessThanOrEqual(12);
      const values = seen.map(({ progress }) => progress);
      expect(values).toEqual([...new Set(values)].sort((a, b) => a - b));
      expect(seen.some(({ message }) => message?.includes("line 3"))).toBe(true);
    });
  });
}

describe("moor mcp", () => {
  const connection = connectOnce();

  it("marks failures and keeps them apart from commands that fail", async () => {
    const { client } = connection();
    const missing = await client.callTool({ name: "read_file", arguments: { path: "nowhere.txt" } });
    expect(missing).toMatchObject({
      isError: true,
      structuredContent: {
        error: { code: "FILE_MISSING", retryable: false, suggestion: expect.any(String) },
      },
    });
    const invalid = await client.callTool({ name: "terminal", arguments: { comand: "ls" } });
    expect(invalid).toMatchObject({
      isError: true,
      structuredContent: { error: { code: "INVALID_ARGUMENTS" } },
    });
    const unknown = await client.callTool({ name: "terminl", arguments: {} });
    expect(unknown).toMatchObject({ isError: true, structuredContent: { error: { code: "UNKNOWN_TOOL" } } });
    const failed = await client.callTool({ name: "terminal", arguments: { command: "false" } });
    expect(failed).toMatchObject({ structuredContent: { exit_code: 1 } });
    expect(failed.isError).toBeFalsy();
  });

  it("runs calls side by side", async () => {
    const { client } = connection();
    const order: string[] = [];
    const slow = client.callTool({ name: "terminal", arguments: { command: "sleep 2; echo slow" } });
    const fast = client.callTool({ name: "read_file", arguments: { path: "/etc/hostname" } });
    await Promise.all([slow.then(() => order.push("slow")), fast.then(() => order.push("fast"))]);
    expect(order).toEqual(["fast", "slow"]);
  });

  it("keeps huge results bounded, and says where the rest is", async () => {
    const { client } = connection();
    const result = await client.callTool({ name: "terminal", arguments: { command: "seq 1 400000" } });
    expect(JSON.stringify(result).length).toBeLessThan(250_000);
    expect(result.structuredContent).toMatchObject({ exit_code: 0, truncated: expect.anything() });
  });

  it("keeps the protocol's stdout clean, whatever commands print", async () => {
    const { client, stderr } = connection();
    const junk = String.raw`printf '{"jsonrpc":"2.0","id":1,"result":{}}\n'; printf '\000\377\n'; echo err >&2`;
    const result = await client.callTool({ name: "terminal", arguments: { command: junk } });
    expect(result.structuredContent).toMatchObject({ exit_code: 0 });
    expect(stderr()).not.toContain("jsonrpc");
  });

  it("takes arguments of several megabytes", async () => {
    const { client, workspace } = connection();
    const content = "0123456789abcdef\n".repeat(300_000);
    const result = await client.callTool({ name: "write_file", arguments: { path: "big.txt", content } });
    expect(result.isError).toBeFalsy();
    expect(readFileSync(join(workspace, "big.txt"), "utf8") === content).toBe(true);
  });

  it("offers two environments by name, and the first is the default", async () => {
    const { client } = await connect({ words: ["-e", "one=local", "-e", "two=local"] });
    expect(client.getInstructions()).toMatch(/- one \(local[\s\S]*- two \(local/);
    const call = (environment?: string): Promise<unknown> =>
      client
        .callTool({
          name: "terminal",
          arguments: { command: "echo $X; export X=set", ...(environment && { environment }) },
        })
        .then(({ structuredContent }) => structuredContent);
    expect(await call("one")).toMatchObject({ output: "\n" });
    expect(await call()).toMatchObject({ output: "set\n" });
    expect(await call("two")).toMatchObject({ output: "\n" });
  });

  it("reads a file that changed between two calls anew", async () => {
    const { client, workspace } = connection();
    const read = (): Promise<unknown> =>
      client
        .callTool({ name: "read_file", arguments: { path: "a" } })
        .then((result) => result.structuredContent);
    writeFileSync(join(workspace, "a"), "1\n");
    expect(await read()).toMatchObject({ content: expect.stringContaining("1") });
    writeFileSync(join(workspace, "a"), "2\n");
    expect(await read()).toMatchObject({ content: expect.stringContaining("2") });
  });
});
