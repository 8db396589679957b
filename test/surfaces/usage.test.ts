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
    [["exec", "--timeout", "soon", "--", "ls"], 'Cannot use "soon" for --timeout: give seconds', "moor exec"],
    [["exec", "--timeout", "-1", "--", "ls"], 'Cannot use "-1" for --timeout: give seconds', "moor exec"],
    [["exec", "--timeout"], "Option --timeout needs a value", "moor exec --help"],
    [["tools", "--toolsets", ","], 'Cannot use "," for --toolsets: give names', "moor tools --help"],
    [["tools", "-e", "local", "--toolsets", "nope"], "there are: files, terminal", "Name toolsets"],
    [["tools", "-e", "local", "--toolsets", "file"], 'did you mean "files"?', "Name toolsets"],
    [["help", "nope"], 'Unknown command "nope"', "exec, call, batch"],
    [["help", "exce"], 'Unknown command "exce"', "Did you mean exec?"],
    [
      ["exec", "-e", "docker+attach:web", "--workspace", ".", "--", "ls"],
      'Cannot mount a folder into container "web": it runs already',
      "--sync",
    ],
    [
      ["exec", "-e", "docker:nowhere/none", "--sync", "/nowhere", "--", "ls"],
      'Cannot mirror "/nowhere": ENOENT',
      "a folder of this host",
    ],
    [
      ["exec", "-e", "local", "--config", "/nowhere.yaml", "--", "ls"],
      'Cannot read configuration "/nowhere.yaml": there is no such file',
      "leave the option out",
    ],
    [["exec", "-e", "local"], "No command to run is given", "moor exec -e local -- ls -l"],
    [["exec", "-e", "local", "-c", "ls", "--", "ls"], "Both a shell line and a program", "--shell"],
    [["exec", "--", "ls"], "No environment is named", "-e local"],
    [["exec", "-e", "local", "-e", "x=local", "--", "ls"], "Several environments", "once"],
    [
      ["tools", "-e", "local", "-e", "local"],
      'Two environments are called "local"; write name=local',
      "moor --help",
    ],
    [
      ["exec", "-e", "local", "--workspace", "", "--", "ls"],
      'Cannot use "" for --workspace: give a',
      "exec --help",
    ],
    [["mcp", "--http", "x"], 'Cannot use "x" for --http: give a port', "moor mcp --help"],
    [["call", "terminal"], "Argument <arguments> is missing", "moor call --help"],
    [["ps", "everything"], "more arguments than the command takes", "moor ps --help"],
    [[], "No command is named", "exec, call, batch"],
    [["images"], "No command is named", "build, list"],
  ])("%j are refused with a way out", async (words, message, hint) => {
    const { exitCode, stdout, stderr } = await moor(words);
    const [first, ...rest] = stderr.trimEnd().split("\n");
    expect({ exitCode, stdout }).toEqual({ exitCode: 125, stdout: "" });
    expect(first).toMatch(/^moor: (INVALID_ARGUMENTS|INVALID_SPEC|INVALID_CONFIG|UNSUPPORTED): /);
    expect(first).toContain(message);
    expect(rest).toHaveLength(1);
    expect(rest[0]).toContain(hint);
  });

  it("of a group's command have its own help", async () => {
    const [asked, own] = [await moor(["help", "sync", "push"]), await moor(["sync", "push", "--help"])];
    expect(asked).toEqual(own);
    expect(asked).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("moor sync push") });
    expect(asked.stdout).not.toContain("--sync");
    const refused = await moor(["sync", "push", "--sync", ".", "-e", "local"]);
    expect(refused.stderr).toContain("Name the folder as an argument.");
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
