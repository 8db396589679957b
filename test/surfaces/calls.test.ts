import { spawnSync } from "node:child_process";
import { readFileSync, realpathSync, writeFileSync } from "node:fs";
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

  it("reads arguments from stdin with -", { tags: ["slow"] }, async () => {
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

  it("says that what it started ends with it, and ends it", { tags: ["slow"] }, async () => {
    const args = '{"command": "sleep 4711", "background": true}';
    const { exitCode, stderr } = await moor(["call", "terminal", args, ...local], { env: privateHome() });
    expect({ exitCode, stderr }).toEqual({
      exitCode: 0,
      stderr: "moor: What this call started ends with this command, unless its environment is kept (?keep)\n",
    });
    expect(spawnSync("pgrep", ["-fx", "sleep 4711"]).status).toBe(1);
  });

  it("works on the folder that --workspace names", { tags: ["slow"] }, async () => {
    const workspace = temporaryFolder();
    const args = JSON.stringify({ path: "new.txt", content: "text\n" });
    const result = await moor(["call", "write_file", args, ...local, "--workspace", workspace], {
      env: privateHome(),
    });
    expect(result.exitCode).toBe(0);
    expect(readFileSync(join(workspace, "new.txt"), "utf8")).toBe("text\n");
  });
});

describe("several environments", () => {
  it("of one call are chosen by the argument environment, the first one without it", async () => {
    const [a, b] = [temporaryFolder(), temporaryFolder()];
    const named = ["-e", `a=local?workspace=${a}`, "-e", `b=local?workspace=${b}`];
    const pwd = async (args: object) => {
      const words = ["call", "terminal", JSON.stringify({ command: "pwd -P", ...args }), ...named];
      return moor(words, { env: privateHome() });
    };
    expect(JSON.parse((await pwd({})).stdout).output).toBe(`${realpathSync(a)}\n`);
    expect(JSON.parse((await pwd({ environment: "b" })).stdout).output).toBe(`${realpathSync(b)}\n`);
    const { exitCode, stdout } = await pwd({ environment: "bb" });
    expect(exitCode).toBe(1);
    expect(JSON.parse(stdout).error).toMatchObject({
      code: "INVALID_ARGUMENTS",
      message: '"environment": there is no environment "bb"; did you mean "b"? (there are: a, b)',
    });
  });

  it("of a batch keep a directory and variables each", { tags: ["slow"] }, async () => {
    const [a, b] = [temporaryFolder(), temporaryFolder()].map((folder) => realpathSync(folder));
    const call = (id: string, environment: string, command: string) => ({
      id,
      type: "function",
      function: { name: "terminal", arguments: JSON.stringify({ command, environment }) },
    });
    const calls = [
      call("1", "a", "mkdir sub; cd sub; export WHO=a"),
      call("2", "b", "export WHO=b"),
      call("3", "a", "pwd -P; echo $WHO"),
      call("4", "b", "pwd -P; echo $WHO"),
    ];
    const words = ["batch", "-", "-e", `a=local?workspace=${a}`, "-e", `b=local?workspace=${b}`];
    const { exitCode, stdout } = await moor(words, { env: privateHome(), stdin: JSON.stringify(calls) });
    const outputs = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(JSON.parse(line).content).output);
    expect({ exitCode, outputs }).toEqual({ exitCode: 0, outputs: ["", "", `${a}/sub\na\n`, `${b}\nb\n`] });
  });
});

describe("moor batch", () => {
  it("says so when there is nothing to do", async () => {
    const empty = await moor(["batch", "-", ...local], { env: privateHome(), stdin: "[]" });
    expect(empty).toMatchObject({
      exitCode: 0,
      stdout: "",
      stderr: expect.stringContaining("no tool calls"),
    });
  });

  it("does not take a message with calls in another form for one without calls", () => {
    const message = {
      role: "assistant",
      content: [
        { type: "text", text: "I" },
        { type: "tool_use", id: "a" },
      ],
    };
    expect(() => parseCalls(JSON.stringify([message]))).toThrow("at [0]: tool_use is another API's form");
    const spoken = { role: "assistant", content: [{ type: "text", text: "I" }] };
    expect(parseCalls(JSON.stringify([spoken, { role: "user", content: "hi" }]))).toEqual([]);
  });

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
        { id: "d", type: "function", function: { name: "process", arguments: null } },
      ],
    };
    const { exitCode, stdout } = await moor(["batch", "-", ...local], {
      env: privateHome(),
      // As editors of Windows write it.
      stdin: `\ufeff${JSON.stringify(message)}`,
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
      { role: "tool", tool_call_id: "d", content: expect.stringContaining('\\"action\\" is required') },
    ]);
  });

  it("answers an entry that is no call with an error of its own", { tags: ["slow"] }, async () => {
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

  it("reads a file, and prints one array with --json", { tags: ["slow"] }, async () => {
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
