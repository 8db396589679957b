import { mkdir, mkdtemp, readFile, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { discoverTools, loadTools } from "../../src/discovery.ts";

let folder: string;
let cacheFile: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "moorage-discovery-"));
  cacheFile = join(folder, "cache.json");
  await mkdir(join(folder, "tools"));
});
afterEach(() => rm(folder, { recursive: true }));

const IMPORT = 'import { registerTool } from "moorage";\n';
const write = (name: string, source: string) => writeFile(join(folder, "tools", name), source);
const discover = () => discoverTools({ folders: [join(folder, "tools")], cacheFile });
const found = async () =>
  (await discover()).modules.map((path) => path.slice(join(folder, "tools").length + 1));

describe("discoverTools()", () => {
  it.each([
    ["a statement", `${IMPORT}registerTool({ name: "x" });`],
    ["an exported constant", `${IMPORT}export const tool = registerTool({ name: "x" });`],
    ["a default export", `${IMPORT}export default registerTool({ name: "x" });`],
    ["an awaited call", `${IMPORT}await registerTool(await make());`],
    [
      "a call within types",
      `${IMPORT}export const tool = registerTool({ name: "x" } as never) satisfies object;`,
    ],
    ["calls in a list", `${IMPORT}export const tools = [registerTool({}), registerTool({})];`],
    ["another local name", 'import { registerTool as add } from "moorage";\nadd({ name: "x" });'],
    ["a namespace", 'import * as moorage from "moorage";\nmoorage.registerTool({ name: "x" });'],
    ["a block", `${IMPORT}{ registerTool({}); }`],
  ])("takes %s for a registration", async (_, source) => {
    await write("tool.ts", source);
    expect(await found()).toEqual(["tool.ts"]);
  });

  it.each([
    ["in a function", `${IMPORT}export function add() { registerTool({}); }`],
    ["in an arrow function", `${IMPORT}export const add = () => registerTool({});`],
    ["in a method", `${IMPORT}export class A { static b() { registerTool({}); } }`],
    ["under a condition", `${IMPORT}if (process.env.X) registerTool({});`],
    ["in an expression that may stop before", `${IMPORT}process.env.X && registerTool({});`],
    ["in a comment", `${IMPORT}// registerTool({});`],
    ["in a string", `${IMPORT}export const text = "registerTool({})";`],
    ["of another function of that name", "function registerTool() {}\nregisterTool();"],
    ["of a type", 'import type { registerTool } from "moorage";\nexport type A = typeof registerTool;'],
    ["nowhere", IMPORT],
  ])("does not count a call %s", async (_, source) => {
    await write("tool.ts", source);
    expect(await found()).toEqual([]);
  });

  it("looks at TypeScript and JavaScript files of the folder itself, in order of name, without running them", async () => {
    const source = `${IMPORT}registerTool({});\nthrow new Error("was run");`;
    for (const name of ["b.ts", "a.js", "c.test.ts", "d.d.ts", "e.json", "f.txt"]) await write(name, source);
    await mkdir(join(folder, "tools", "inner"));
    await write("inner/g.ts", source);
    await symlink(join(folder, "tools", "b.ts"), join(folder, "tools", "link.ts"));
    expect(await found()).toEqual(["a.js", "b.ts", "link.ts"]);
  });

  it("reads again only what changed", async () => {
    await write("a.ts", `${IMPORT}registerTool({});`);
    await write("b.ts", IMPORT);
    expect((await discover()).scanned).toBe(2);
    expect((await discover()).scanned).toBe(0);
    await write("b.ts", `${IMPORT}registerTool({});`);
    expect(await discover()).toMatchObject({
      scanned: 1,
      modules: [expect.stringMatching(/a\.ts$/), expect.stringMatching(/b\.ts$/)],
    });
    // The same size and another time.
    await write("b.ts", `${IMPORT}registerTool({})\n`);
    await utimes(join(folder, "tools", "b.ts"), 1, 1);
    expect((await discover()).scanned).toBe(1);
    await rm(join(folder, "tools", "a.ts"));
    expect(await found()).toEqual(["b.ts"]);
    expect(await readFile(cacheFile, "utf8")).not.toContain("a.ts");
  });

  it.each(["", "{", "[]", '{"version":2,"files":{}}', '{"version":1,"files":{"x":[1]}}', "\0\0"])(
    "reads everything again when the cache is %j, and mends it",
    async (content) => {
      await write("a.ts", `${IMPORT}registerTool({});`);
      await writeFile(cacheFile, content);
      expect(await discover()).toMatchObject({ scanned: 1, problems: [] });
      expect((await discover()).scanned).toBe(0);
    },
  );

  it("keeps what the cache knows of other folders", async () => {
    const other = join(folder, "other");
    await mkdir(other);
    await writeFile(join(other, "o.ts"), `${IMPORT}registerTool({});`);
    await write("a.ts", `${IMPORT}registerTool({});`);
    await discoverTools({ folders: [other], cacheFile });
    await discover();
    expect((await discoverTools({ folders: [other], cacheFile })).scanned).toBe(0);
  });

  it("tells a module that cannot be parsed and a folder that is missing, and finds the rest", async () => {
    await write("a.ts", `${IMPORT}registerTool({`);
    await write("b.ts", `${IMPORT}registerTool({});`);
    const missing = join(folder, "missing");
    const { modules, problems } = await discoverTools({
      folders: [missing, join(folder, "tools")],
      cacheFile,
    });
    expect(modules).toEqual([join(folder, "tools", "b.ts")]);
    expect(problems.map(({ path, error }) => [path, error.code])).toEqual([
      [missing, "INVALID_CONFIG"],
      [join(folder, "tools", "a.ts"), "REGISTRATION_INVALID"],
    ]);
  });

  it("finds the tools all the same when the cache cannot be written", async () => {
    await write("a.ts", `${IMPORT}registerTool({});`);
    const { modules, problems } = await discoverTools({
      folders: [join(folder, "tools")],
      cacheFile: join(folder, "no", "such", "folder.json"),
    });
    expect([modules.length, problems.map(({ error }) => error.code)]).toEqual([1, ["INVALID_CONFIG"]]);
  });

  it("does not lose its cache to discoveries side by side", async () => {
    for (let n = 0; n < 20; n += 1) await write(`t${n}.ts`, `${IMPORT}registerTool({});`);
    const discoveries = await Promise.all(Array.from({ length: 10 }, discover));
    expect(discoveries.map(({ modules, problems }) => [modules.length, problems.length])).toEqual(
      Array.from({ length: 10 }, () => [20, 0]),
    );
    expect((await discover()).scanned).toBe(0);
  });
});

describe("loadTools()", () => {
  it("tells a module that fails to load, and loads the rest", async () => {
    const registry = JSON.stringify(new URL("../../src/registry.ts", import.meta.url).pathname);
    await write(
      "a.js",
      `import { registerTool } from ${registry};\nregisterTool({ name: "no tool at all" });`,
    );
    await write(
      "b.js",
      `import { registerTool } from ${registry};\nexport const loaded = registerTool;\nif (false) 0;\nvoid [() => registerTool];\n`,
    );
    await write(
      "c.js",
      `import { registerTool } from ${registry};\nthrow new Error("on purpose");\nregisterTool({});`,
    );
    const { modules, problems } = await loadTools({ folders: [join(folder, "tools")] });
    expect(modules).toEqual([]);
    expect(problems.map(({ path, error }) => [path.slice(-4), error.code])).toEqual([
      ["a.js", "REGISTRATION_INVALID"],
      ["c.js", "REGISTRATION_INVALID"],
    ]);
  });
});
