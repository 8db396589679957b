import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parseCalls } from "../../src/cli/tool-calls.ts";
import { moor, privateHome, temporaryFolder } from "./moor.ts";

const local = ["-e", "local"];

describe("moor call", () => {
  it("prints a tool's result as JSON, pretty or on one line", async () => {
    const words = ["call", "terminal", '{"command": "echo hi; exit 3"}', ...local];
    const pretty = await moor(words, { env: privateHome() });
    const line = await moor([...words, "--json"], { env: privateHome() });
    expect(pretty).toMatchObject({ exitCode: 0, stderr: "" });
    expect(line).toMatchObject({ exitCode: 0, stderr: "" });
    expect(JSON.parse(pretty.stdout)).toMatchObject({ output: "hi\n", exit_code: 3 });
    expect(JSON.parse(line.stdout)).toMatchObject({ output: "hi\n", exit_code: 3 });
    expect(line.stdout.trimEnd()).not.toContain("\n");
  });

  it("reads arguments from stdin with -", async () => {
    const result = await moor(["call", "terminal", "-", ...local], {
      env: privateHome(),
      stdin: '{"command": "echo from stdin"}',
    });
    expect(JSON.parse(result.stdout)).toMatchObject({ output: "from stdin\n" });
  });

  it.each([
    ["read_file", '{"path": "nowhere"}', "FILE_MISSING"],
    ["read_fil", "{}", "UNKNOWN_TOOL"],
    ["terminal", "{", "INVALID_ARGUMENTS"],
    ["terminal", '{"command": 3, "comand": ""}', "INVALID_ARGUMENTS"],
  ])("tells a failure of %s %s by code and exit status 1", async (tool, args, code) => {
    const { exitCode, stdout, stderr } = await moor(["call", tool, args, ...local], { env: privateHome() });
    const { error } = JSON.parse(stdout);
    expect(exitCode).toBe(1);
    expect(error).toEqual({
      code,
      message: expect.any(String),
      suggestion: expect.any(String),
      retryable: expect.any(Boolean),
    });
    expect(stderr).toContain(`moor: ${code}: `);
  });

  it("works on the folder that --workspace names", async () => {
    const workspace = temporaryFolder();
    const args = JSON.stringify({ path: "new.txt", content: "text\n" });
    const result = await moor(["call", "write_file", args, ...local, "--workspace", workspace], {
      env: privateHome(),
    });
    expect(result.exitCode).toBe(0);
    expect(readFileSync(join(workspace, "new.txt"), "utf8")).toBe("text\n");
  });
});

describe("moor batch", () => {
  const call = (id: string, name: string, args: object): object => ({
    id,
    type: "function",
    function: { name, arguments: JSON.stringify(args) },
  });

  it("answers a model's message in call order, failures among them", async () => {
    const message = {
      role: "assistant",
      content: null,
      tool_calls: [
        call("a", "terminal", { command: "sleep 0.5; echo one" }),
        call("b", "read_file", { path: "nowhere" }),
        call("c", "terminal", { command: "echo three" }),
      ],
    };
    const { exitCode, stdout } = await moor(["batch", "-", ...local], {
      env: privateHome(),
      stdin: JSON.stringify(message),
    });
    const messages = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(exitCode).toBe(1);
    expect(messages).toEqual([
      { role: "tool", tool_call_id: "a", content: expect.stringContaining('"one\\n"') },
      { role: "tool", tool_call_id: "b", content: expect.stringContaining('"FILE_MISSING"') },
      { role: "tool", tool_call_id: "c", content: expect.stringContaining('"three\\n"') },
    ]);
  });

  it("answers an entry that is no call with an error of its own", async () => {
    const entries = [
      call("a", "terminal", { command: "echo one" }),
      { id: "b", type: "function" },
      { id: "c", function: { name: "terminal", arguments: 7 } },
      call("d", "terminal", { command: "echo four" }),
    ];
    const { exitCode, stdout } = await moor(["batch", "-", ...local, "--json"], {
      env: privateHome(),
      stdin: JSON.stringify(entries),
    });
    expect(exitCode).toBe(1);
    expect(JSON.parse(stdout)).toEqual([
      { role: "tool", tool_call_id: "a", content: expect.stringContaining('"one\\n"') },
      {
        role: "tool",
        tool_call_id: "b",
        content: expect.stringMatching(/INVALID_ARGUMENTS.*\[1\] function/),
      },
      {
        role: "tool",
        tool_call_id: "c",
        content: expect.stringMatching(/INVALID_ARGUMENTS.*\[2\] function/),
      },
      { role: "tool", tool_call_id: "d", content: expect.stringContaining('"four\\n"') },
    ]);
  });

  it("reads a file, and prints one array with --json", async () => {
    const file = join(temporaryFolder(), "calls.json");
    writeFileSync(file, JSON.stringify([call("x", "terminal", { command: "echo hi" })]));
    const { exitCode, stdout } = await moor(["batch", file, ...local, "--json"], { env: privateHome() });
    expect(exitCode).toBe(0);
    expect(JSON.parse(stdout)).toEqual([
      { role: "tool", tool_call_id: "x", content: expect.stringContaining('"hi\\n"') },
    ]);
  });

  it.each([
    ["a file that is not there", ["batch", "/nowhere/calls.json"], "", 'Cannot read "/nowhere/calls.json"'],
    ["text that is no JSON", ["batch", "-"], "hello\n", "line 1 is no JSON"],
    [
      "a call without an id",
      ["batch", "-"],
      '[{"type":"function","function":{"name":"x","arguments":""}}]',
      "[0] id",
    ],
    ["a line in the middle", ["batch", "-"], '{"role":"user"}\n{"id":1}\n', "line 2: id"],
  ])("refuses %s with the place", async (_title, words, stdin, message) => {
    const { exitCode, stdout, stderr } = await moor([...words, ...local], { env: privateHome(), stdin });
    expect({ exitCode, stdout }).toEqual({ exitCode: 125, stdout: "" });
    expect(stderr).toContain("moor: INVALID_ARGUMENTS: ");
    expect(stderr).toContain(message);
  });
});

describe("parseCalls()", () => {
  const one = { id: "1", type: "function", function: { name: "terminal", arguments: "{}" } };
  const two = { id: "2", type: "function", function: { name: "process", arguments: '{"action":"list"}' } };

  it.each([
    ["one call", JSON.stringify(one), [one]],
    ["an array of calls", JSON.stringify([one, two]), [one, two]],
    ["a message", JSON.stringify({ role: "assistant", tool_calls: [one, two] }), [one, two]],
    [
      "a conversation",
      JSON.stringify([
        { role: "user", content: "x" },
        { role: "assistant", tool_calls: [two] },
      ]),
      [two],
    ],
    ["calls per line", `${JSON.stringify(one)}\n\n${JSON.stringify(two)}\r\n`, [one, two]],
    [
      "messages per line",
      `{"role":"system"}\n${JSON.stringify({ role: "assistant", tool_calls: [one] })}`,
      [one],
    ],
    ["a message without calls", '{"role":"assistant","content":"hi","tool_calls":null}', []],
    [
      "arguments that are an object",
      JSON.stringify({ ...one, function: { name: "terminal", arguments: {} } }),
      [one],
    ],
    ["a call without a type", JSON.stringify({ id: "1", function: one.function }), [one]],
    ["nothing", "", []],
  ])("reads %s", (_title, text, calls) => {
    expect(parseCalls(text)).toEqual(calls);
  });
});
