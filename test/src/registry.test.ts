import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ToolRegistry } from "../../src/registry.ts";
import { noop } from "./tools.ts";

describe("ToolRegistry", () => {
  it("lists tools in order of name and bumps its generation with every change", () => {
    const registry = new ToolRegistry();
    let changes = 0;
    const leave = registry.listen(() => {
      changes += 1;
    });
    registry.register(noop({ name: "b" }));
    registry.register(noop({ name: "a" }));
    expect(registry.list().map(({ name }) => name)).toEqual(["a", "b"]);
    expect(registry.generation).toBe(2);
    expect([registry.unregister("a"), registry.unregister("a")]).toEqual([true, false]);
    expect(registry.generation).toBe(3);
    leave();
    registry.unregister("b");
    expect(changes).toBe(3);
  });

  it("refuses a name that is taken, and changes nothing by it", () => {
    const registry = new ToolRegistry();
    const first = registry.register(noop({ toolset: "one" }));
    expect(() => registry.register(noop({ toolset: "two" }))).toThrow(
      expect.objectContaining({
        code: "NAME_TAKEN",
        message: 'Cannot register "noop": toolset "one" has a tool of that name',
      }),
    );
    expect(() => registry.register(noop({ toolset: "two" }), { override: true })).toThrow(
      expect.objectContaining({ code: "NAME_TAKEN" }),
    );
    expect([registry.get("noop"), registry.generation]).toEqual([first, 1]);
  });

  it("lets a tool be replaced where the operator allows it", () => {
    const registry = new ToolRegistry({ allowOverride: (next) => next.toolset === "two" });
    registry.register(noop({ toolset: "one", aliases: ["nothing"] }));
    const second = registry.register(noop({ toolset: "two" }), { override: true });
    expect(registry.get("noop")).toBe(second);
    expect(registry.resolve("nothing")).toBeUndefined();
    expect(() => registry.register(noop({ toolset: "three" }), { override: true })).toThrow(
      /NAME_TAKEN|has a tool/,
    );
  });

  it("resolves aliases, which are one tool's alone, and give way to names", () => {
    const registry = new ToolRegistry();
    const tool = registry.register(noop({ aliases: ["nothing", "void"] }));
    expect(registry.resolve("nothing")?.tool).toBe(tool);
    expect(() => registry.register(noop({ name: "x", aliases: ["nothing"] }))).toThrow(
      expect.objectContaining({ code: "NAME_TAKEN" }),
    );
    const named = registry.register(noop({ name: "void" }));
    expect(registry.resolve("void")?.tool).toBe(named);
    registry.unregister("void");
    expect(registry.resolve("void")?.tool).toBe(tool);
    expect(registry.list()).toEqual([tool]);
  });

  it.each([
    ["a name with a space", { name: "a b" }],
    ["an empty name", { name: "" }],
    ["a name of 65 characters", { name: "a".repeat(65) }],
    ["no toolset", { toolset: "" }],
    ["an empty description", { description: " " }],
    ["a description of 2001 characters", { description: "d".repeat(2_001) }],
    ["parameters that are no object", { parameters: z.string() as never }],
    ["parameters without a JSON Schema", { parameters: z.object({ at: z.date() }) }],
    ["a default of the wrong type", { parameters: z.object({ n: z.int().default("1" as never) }) }],
    ["a default out of bounds", { parameters: z.object({ n: z.int().min(1).default(0) }) }],
    [
      "a wrong default in depth",
      { parameters: z.object({ a: z.array(z.object({ n: z.int().default(0.5) })).optional() }) },
    ],
    ["no handler", { handler: undefined as never }],
    ["an unknown access level", { access: "some" as never }],
    ["paths without a function", { parallel: "paths" as const }],
    ["an alias that is its name", { aliases: ["noop"] }],
    ["a timeout of zero", { timeoutMs: 0 }],
    ["a result budget without room", { resultBudget: { maxBytes: 10 } }],
    [
      "a parameter called environment",
      { needsEnvironment: true, parameters: z.object({ environment: z.string() }) },
    ],
  ])("refuses %s", (_, changes) => {
    const registry = new ToolRegistry();
    expect(() => registry.register(noop(changes))).toThrow(
      expect.objectContaining({ code: "REGISTRATION_INVALID" }),
    );
    expect(registry.list()).toEqual([]);
  });

  it("takes a name of 64 characters, recursive parameters and good defaults", () => {
    type Tree = { children: Tree[] };
    const tree: z.ZodType<Tree> = z.object({ children: z.array(z.lazy(() => tree)) });
    const registry = new ToolRegistry();
    registry.register(
      noop({ name: "a".repeat(64), parameters: z.object({ tree, n: z.int().min(1).default(1) }) }),
    );
    expect(registry.list()).toHaveLength(1);
  });

  it("writes draft 7 without bounds that every integer has", () => {
    const registry = new ToolRegistry();
    registry.register(
      noop({ parameters: z.object({ n: z.int(), s: z.string().default("x").describe("Text.") }) }),
    );
    expect(registry.resolve("noop")?.inputSchema).toEqual({
      type: "object",
      properties: { n: { type: "integer" }, s: { type: "string", default: "x", description: "Text." } },
      required: ["n"],
      additionalProperties: false,
    });
  });
});
