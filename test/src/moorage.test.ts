import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, realpath, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { fromOpenAi, toOpenAi } from "../../src/call.ts";
import type { MoorageEvent } from "../../src/events.ts";
import { createMoorage, type MoorageOptions } from "../../src/moorage.ts";
import { ToolRegistry } from "../../src/registry.ts";
import { EmptyEnvironment, FailingEnvironment } from "./fake-environment.ts";
import { noop } from "./tools.ts";

let folder: string;
beforeEach(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), "moorage-root-")));
});
afterEach(() => rm(folder, { recursive: true }));

const make = (options: MoorageOptions) =>
  createMoorage({ stateDir: join(folder, "state"), workspace: folder, ...options });

function registryOf(...tools: Parameters<typeof noop>[0][]): ToolRegistry {
  const registry = new ToolRegistry();
  for (const tool of tools) registry.register(noop(tool));
  return registry;
}

describe("createMoorage()", () => {
  it("runs a command on this machine, with the built-in tools", async () => {
    await using moorage = await make({ environments: "local" });
    expect(moorage.environments).toEqual(["local"]);
    expect((await moorage.tools("openai")).map((tool) => tool.function.name)).toContain("terminal");
    const result = await moorage.call({ name: "terminal", arguments: { command: "pwd; exit 3" } });
    expect(result).toMatchObject({
      ok: true,
      environment: "local",
      content: { output: `${folder}\n`, exit_code: 3 },
    });
    expect((await stat(join(folder, "state"))).mode & 0o777).toBe(0o700);
  });

  it("hides the tools of an environment whose start failed, at once, but lets calls try again", async () => {
    const environment = new FailingEnvironment();
    const events: MoorageEvent[] = [];
    await using moorage = await make({
      environments: environment,
      registry: registryOf({ name: "look", needsEnvironment: true }),
      onEvent: (event) => events.push(event),
    });
    expect((await moorage.tools()).visible).toHaveLength(1);
    await expect(moorage.start()).rejects.toMatchObject({ code: "IMAGE_MISSING" });
    expect(await moorage.tools()).toMatchObject({
      visible: [],
      hidden: [{ name: "look", why: "unavailable", reason: FailingEnvironment.reason }],
    });
    expect(events.map(({ type }) => type)).toEqual(["availability-lost", "tools-changed"]);
    expect(await moorage.call({ name: "look", arguments: {} })).toMatchObject({ ok: true });
  });

  it("gives each caller a cwd of its own in each environment", async () => {
    await using moorage = await make({ environments: { a: "local", b: "local" } });
    const pwd = async (caller: string, environment: string, command = "pwd") => {
      const result = await moorage.call({ name: "terminal", caller, environment, arguments: { command } });
      return result.ok ? String(result.content.output).trim() : result.text;
    };
    await mkdir(join(folder, "sub"));
    await pwd("me", "a", "cd sub");
    expect(await Promise.all([pwd("me", "a"), pwd("you", "a"), pwd("me", "b")])).toEqual([
      join(folder, "sub"),
      folder,
      folder,
    ]);
    await moorage.forget("me");
    expect(await pwd("me", "a")).toBe(folder);
  });

  it("answers a batch in call order, in the form in which it came", async () => {
    await using moorage = await make({ environments: "local" });
    const asked = ["echo 1", "false", ""].map((command, at) => ({
      id: `call_${at}`,
      type: "function" as const,
      function: { name: "terminal", arguments: JSON.stringify({ command }) },
    }));
    const messages = (await moorage.batch(asked.map(fromOpenAi))).map(toOpenAi);
    expect(messages.map((message) => [message.role, message.tool_call_id])).toEqual([
      ["tool", "call_0"],
      ["tool", "call_1"],
      ["tool", "call_2"],
    ]);
    expect(JSON.parse(messages[0]?.content ?? "")).toMatchObject({ output: "1\n", exit_code: 0 });
    expect(JSON.parse(messages[1]?.content ?? "")).toMatchObject({ exit_code: 1 });
    expect(JSON.parse(messages[2]?.content ?? "")).toMatchObject({ error: { code: "INVALID_ARGUMENTS" } });
  });

  it("answers the rest of an aborted batch without running it", async () => {
    await using moorage = await make({ environments: "local" });
    const controller = new AbortController();
    const calls = ["sleep 30", "touch ran"].map((command) => ({ name: "terminal", arguments: { command } }));
    const pending = moorage.batch(calls, { abortSignal: controller.signal, onProgress: () => {} });
    await new Promise<void>((resolve) => {
      const leave = moorage.onEvent(() => {
        leave();
        resolve();
      });
      void moorage.call({ name: "terminal", arguments: {} });
    });
    controller.abort();
    const results = await pending;
    expect(results[1]).toMatchObject({ ok: false, error: { code: "ABORTED" } });
    expect(await readdir(folder)).not.toContain("ran");
  });

  it.each([
    ["lcoal", "INVALID_SPEC", 'did you mean "local"?'],
    ["vercel:mine", "UNSUPPORTED", "Cannot work in this machine's folder"],
    ["local?isolation=bubblewrap&egress=a%20b", "INVALID_SPEC", '"a b" is no host'],
    ["local?egress=none", "UNSUPPORTED", "Cannot restrict egress"],
    ["local?egress=a.example", "UNSUPPORTED", "Cannot restrict egress"],
  ])("refuses %s", async (environments, code, message) => {
    await expect(make({ environments })).rejects.toMatchObject({
      code,
      message: expect.stringContaining(message),
    });
  });

  it("refuses no environment, a bad name and an unknown toolset", async () => {
    await expect(make({})).rejects.toMatchObject({ code: "INVALID_SPEC" });
    await expect(make({ environments: { "a b": "local" } })).rejects.toMatchObject({ code: "INVALID_SPEC" });
    await expect(make({ environments: "local", toolsets: ["terminl"] })).rejects.toMatchObject({
      code: "INVALID_CONFIG",
      message: expect.stringContaining('did you mean "terminal"?'),
    });
  });

  it("refuses an option that there is none of", async () => {
    const misspelt: object = { environments: "local", checkpoint: false };
    await expect(make(misspelt)).rejects.toMatchObject({
      code: "INVALID_ARGUMENTS",
      message: expect.stringContaining('Unknown option "checkpoint"; did you mean "checkpoints"?'),
    });
  });

  it("takes environments and toolsets from a configuration that is named", async () => {
    const config = join(folder, "moorage.yaml");
    await writeFile(
      config,
      "environments: { first: local, second: { spec: local, env: { COLOUR: green } } }\ndefault: second\ntoolsets: [terminal]\n",
    );
    await using moorage = await make({ config });
    expect(moorage.environments).toEqual(["second", "first"]);
    const listing = await moorage.tools();
    expect(new Set(listing.visible.map(({ toolset }) => toolset))).toEqual(new Set(["terminal"]));
    const result = await moorage.call({ name: "terminal", arguments: { command: "echo $COLOUR" } });
    expect(result).toMatchObject({ environment: "second", content: { output: "green\n" } });
    await using named = await make({ config, environments: "first" });
    expect(named.environments).toEqual(["first"]);
  });

  it("reads no configuration and no tools that lie in the workspace", async () => {
    await writeFile(join(folder, "moorage.yaml"), "toolsets: []\n");
    await mkdir(join(folder, "tools"));
    await writeFile(
      join(folder, "tools", "evil.js"),
      'import { registerTool } from "moorage"; registerTool({}); throw 1;',
    );
    const events: MoorageEvent[] = [];
    await using moorage = await make({ environments: "local", onEvent: (event) => events.push(event) });
    expect((await moorage.tools()).visible.map(({ name }) => name)).toContain("terminal");
    expect(events).toEqual([]);
  });

  it("stops what it made and leaves what it was given", async () => {
    const given = new EmptyEnvironment();
    const moorage = await make({
      environments: { given, made: "local" },
      registry: registryOf({
        needsEnvironment: true,
        handler: async (_, { session }) => ({ id: (await session()).id }),
      }),
    });
    await moorage.call({ name: "noop" });
    const made = moorage.environment("made");
    await Promise.all([moorage.stop(), moorage.stop()]);
    expect([given.opened, given.closed, given.stopped]).toEqual([1, 1, 0]);
    await expect(made.exec("true")).rejects.toMatchObject({ code: "ENVIRONMENT_STOPPED" });
    expect(await moorage.call({ name: "noop" })).toMatchObject({ ok: false, error: { code: "ABORTED" } });
  });

  it("tells health by name, also of an environment that does not answer", { tags: ["slow"] }, async () => {
    const sick = new EmptyEnvironment("sick");
    sick.state = { healthy: false, code: "DOCKER_UNREACHABLE", reason: "No engine" };
    await using moorage = await make({
      environments: { well: new EmptyEnvironment(), sick },
      registry: registryOf({}),
    });
    expect(await moorage.health()).toEqual({ well: { healthy: true }, sick: sick.state });
    sick.state = () => new Promise(() => {});
    const startedAt = performance.now();
    expect(await moorage.health()).toMatchObject({
      sick: { healthy: false, code: "ENVIRONMENT_UNAVAILABLE" },
    });
    expect(performance.now() - startedAt).toBeLessThan(4_000);
  });

  it("AV-04 lists tools while an environment does not answer, without blocking anyone", async () => {
    const hung = new EmptyEnvironment("hung");
    hung.state = () => new Promise(() => {});
    await using moorage = await make({
      environments: { hung },
      registry: registryOf({ needsEnvironment: true }, { name: "free" }),
    });
    let longest = 0;
    let last = performance.now();
    const pulse = setInterval(() => {
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
    }, 10);
    const startedAt = performance.now();
    const { visible, hidden } = await moorage.tools();
    clearInterval(pulse);
    expect(performance.now() - startedAt).toBeLessThan(3_500);
    // 200 ms is asked for; a machine under load adds its own.
    expect(longest).toBeLessThan(500);
    expect(visible.map(({ name }) => name)).toEqual(["free"]);
    expect(hidden).toEqual([
      { name: "noop", toolset: "test", why: "unavailable", reason: "No answer within 3000 ms" },
    ]);
  });

  it("tells that the tools changed when the registry does", async () => {
    const registry = registryOf({});
    const events: MoorageEvent[] = [];
    await using moorage = await make({
      environments: new EmptyEnvironment(),
      registry,
      onEvent: (event) => events.push(event),
    });
    registry.register(noop({ name: "late", requiredEnv: ["SURELY_NOT_SET_ANYWHERE"] }));
    expect(events).toEqual([{ type: "tools-changed" }]);
    expect((await moorage.tools()).hidden).toMatchObject([{ name: "late", why: "unavailable" }]);
  });
});

describe("a tool folder", () => {
  it("needs nothing but the file: a tool dropped into it is there, and a bad one beside it is told", async () => {
    const tools = join(folder, "mine");
    await mkdir(tools);
    await writeFile(
      join(tools, "greet.ts"),
      `import { registerTool, MoorageError } from "moorage";
       import { z } from "zod";
       interface Greeting { readonly text: string }
       export const greet = registerTool({
         name: "greet", toolset: "mine", description: "Greets.", parameters: z.object({ who: z.string() }),
         handler: async ({ who }) => ({ text: "Hello " + who, same: MoorageError.name }) satisfies Greeting & object,
         access: "read", mutates: false, idempotent: true, parallel: "safe", needsEnvironment: false,
       });`,
    );
    await writeFile(
      join(tools, "bad.ts"),
      `import { registerTool } from "moorage";\nregisterTool({ name: "bad" });`,
    );
    const script = `
      import { createMoorage } from ${JSON.stringify(new URL("../../src/index.ts", import.meta.url).href)};
      const problems = [];
      await using moorage = await createMoorage({
        environments: "local",
        stateDir: ${JSON.stringify(join(folder, "state"))},
        toolFolders: [${JSON.stringify(tools)}],
        onEvent: (event) => { if (event.type === "tool-module-failed") problems.push(event.path + ": " + event.error.code); },
      });
      const { visible } = await moorage.tools();
      const result = await moorage.call({ name: "greet", arguments: { who: "you" } });
      console.log(JSON.stringify({ names: visible.map((tool) => tool.name), result: result.text, problems }));`;
    await writeFile(join(folder, "run.mts"), script);
    const { stdout } = await promisify(execFile)(process.execPath, [join(folder, "run.mts")]);
    const { names, result, problems } = JSON.parse(stdout);
    expect(names).toEqual(expect.arrayContaining(["greet", "terminal"]));
    expect(result).toBe('{"text":"Hello you","same":"MoorageError"}');
    expect(problems).toEqual([`${join(tools, "bad.ts")}: REGISTRATION_INVALID`]);
  });
});
