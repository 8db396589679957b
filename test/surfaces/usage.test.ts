import { describe, expect, it } from "vitest";
import { moor } from "./moor.ts";

describe("words of the command line", () => {
  it.each([
    [["exce"], 'Unknown command "exce"', "Did you mean exec?"],
    [["exec", "--tiemout", "3", "--", "ls"], 'Unknown option "--tiemout"', "Did you mean --timeout?"],
    [["call", "--enviroment", "local", "terminal", "{}"], 'Unknown option "--enviroment"', "--environment"],
    [["images", "biuld"], 'Unknown command "biuld"', "Did you mean build?"],
    [
      ["tools", "--format", "opnai"],
      'Unknown format "opnai"; did you mean "openai"?',
      "openai, anthropic, mcp",
    ],
    [["exec", "--timeout", "soon", "--", "ls"], "'soon' is invalid", "moor exec --help"],
    [["exec", "--timeout", "-1", "--", "ls"], "'-1' is invalid", "moor exec --help"],
    [["exec", "-e", "local"], "Which command is missing", "moor exec -e local -- ls -l"],
    [["exec", "-e", "local", "-c", "ls", "--", "ls"], "Both a shell line and a program", "--shell"],
    [["exec", "--", "ls"], "No environment is named", "-e local"],
    [["exec", "-e", "local", "-e", "x=local", "--", "ls"], "Several environments", "once"],
    [
      ["tools", "-e", "local", "-e", "local"],
      'Two environments are called "local"; write name=local',
      "moor --help",
    ],
    [["mcp", "--http", "80"], 'Unknown option "--http"', "moor mcp --help"],
    [["call", "terminal"], "Missing required argument 'arguments'", "moor call --help"],
    [["ps", "everything"], "Too many arguments", "moor ps --help"],
    [[], "Which command is missing", "exec, call, batch"],
    [["images"], "Which command is missing", "build, list"],
  ])("%j are refused with a way out", async (words, message, hint) => {
    const { exitCode, stdout, stderr } = await moor(words);
    const [first, ...rest] = stderr.trimEnd().split("\n");
    expect({ exitCode, stdout }).toEqual({ exitCode: 125, stdout: "" });
    expect(first).toMatch(/^moor: (INVALID_ARGUMENTS|INVALID_SPEC): /);
    expect(first).toContain(message);
    expect(rest).toHaveLength(1);
    expect(rest[0]).toContain(hint);
  });

  it("are answered in JSON too when JSON was asked for", async () => {
    const { exitCode, stdout, stderr } = await moor(["exec", "--json", "--", "ls"]);
    expect(exitCode).toBe(125);
    expect(JSON.parse(stdout)).toEqual({
      error: {
        code: "INVALID_SPEC",
        message: "No environment is named",
        suggestion: expect.stringContaining("-e local"),
        retryable: false,
      },
    });
    expect(stderr).toContain("moor: INVALID_SPEC: No environment is named");
  });

  it("that name a command's own --json behind -- do not ask us for JSON", async () => {
    expect(await moor(["exec", "--", "ls", "--json"])).toMatchObject({ exitCode: 125, stdout: "" });
  });
});
