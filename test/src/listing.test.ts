import { describe, expect, it } from "vitest";
import { z } from "zod";
import { AvailabilityCache } from "../../src/availability.ts";
import { Listings } from "../../src/listing.ts";
import { type AnyTool, ToolRegistry } from "../../src/registry.ts";
import { defineEnvironment, defineTools } from "../../src/subjects.ts";
import { EmptyEnvironment } from "./fake-environment.ts";
import { ManualClock } from "./manual-clock.ts";
import { noop } from "./tools.ts";

const DOWN = { healthy: false, code: "DOCKER_UNREACHABLE", reason: "Cannot reach the engine" } as const;

function listingsOf(tools: readonly AnyTool[], names: readonly string[] = ["one"]) {
  const registry = new ToolRegistry();
  for (const tool of tools) registry.register(tool);
  const clock = new ManualClock();
  const availability = new AvailabilityCache({ clock });
  const places = names.map((name) => new EmptyEnvironment(name));
  for (const place of places) defineEnvironment(availability, place.id, place, clock);
  defineTools(availability, registry, {});
  const listings = new Listings({
    registry,
    availability,
    environments: names,
    isEnabled: (toolset) => toolset !== "off",
  });
  return { listings, registry, clock, places };
}

const names = async (listings: Listings) => (await listings.list()).visible.map(({ name }) => name);

describe("Listings", () => {
  it("shows what is on and works, and says why the rest is hidden", async () => {
    const { listings, places } = listingsOf([
      noop({ name: "needs-one", needsEnvironment: true, title: "Needs one" }),
      noop({ name: "free" }),
      noop({ name: "off", toolset: "off" }),
      noop({ name: "unlicensed", availability: async () => ({ available: false, reason: "No licence" }) }),
      noop({ name: "keyless", requiredEnv: ["SOME_KEY"] }),
      noop({ name: "broken", availability: () => Promise.reject(new TypeError("oops")) }),
      noop({
        name: "wordless",
        dynamicDescription: () => {
          throw new Error("no words");
        },
      }),
    ]);
    for (const place of places) place.state = DOWN;
    const parameters = { type: "object", properties: {}, additionalProperties: false };
    expect(await listings.list()).toEqual({
      visible: [{ name: "free", toolset: "test", description: "Does nothing.", parameters }],
      hidden: [
        {
          name: "broken",
          toolset: "test",
          why: "fault",
          reason: "Cannot tell whether it is available: oops",
        },
        { name: "keyless", toolset: "test", why: "unavailable", reason: "SOME_KEY is not set" },
        { name: "needs-one", toolset: "test", why: "unavailable", reason: "Cannot reach the engine" },
        { name: "off", toolset: "off", why: "disabled", reason: 'Toolset "off" is off' },
        { name: "unlicensed", toolset: "test", why: "unavailable", reason: "No licence" },
        {
          name: "wordless",
          toolset: "test",
          why: "fault",
          reason: "Its description cannot be made: no words",
        },
      ],
    });
  });

  it("adds environment only where there are several, with those that work", async () => {
    const tools = [
      noop({ name: "a", needsEnvironment: true, parameters: z.object({ n: z.int() }) }),
      noop({ name: "b" }),
    ];
    const single = await listingsOf(tools).listings.list();
    expect(single.visible.map(({ parameters }) => Object.keys(parameters.properties as object))).toEqual([
      ["n"],
      [],
    ]);

    const { listings, places, clock } = listingsOf(tools, ["one", "two", "three"]);
    if (places[1]) places[1].state = DOWN;
    const several = await listings.list();
    expect(several.visible.map(({ parameters }) => parameters.properties)).toEqual([
      {
        n: { type: "integer" },
        environment: {
          type: "string",
          enum: ["one", "three"],
          description: "Environment to use. Without it: one.",
        },
      },
      {},
    ]);
    if (places[1]) places[1].state = { healthy: true };
    await clock.advance(3_000);
    expect(JSON.stringify((await listings.list()).visible)).toContain('["one","two","three"]');
  });

  it("gives the same object until something changes", async () => {
    const { listings, registry, clock } = listingsOf([noop({ needsEnvironment: true })]);
    const first = await listings.list();
    const openai = await listings.format("openai");
    await clock.advance(100_000);
    expect([await listings.list(), await listings.format("openai")]).toEqual([first, openai]);
    expect(await listings.list()).toBe(first);
    expect(await listings.format("openai")).toBe(openai);
    registry.register(noop({ name: "another" }));
    expect(await listings.list()).not.toBe(first);
    expect((await listings.format("openai")).map((tool) => tool.function.name)).toEqual(["another", "noop"]);
  });

  it("AV-07 shows all tools of an environment or none, whatever its probe does", async () => {
    const tools = ["terminal", "process", "files", "search"].map((name) =>
      noop({ name, toolset: name, needsEnvironment: true }),
    );
    const { listings, places, clock } = listingsOf(tools);
    let flips = 0;
    for (const place of places) {
      place.state = async () => {
        flips += 1;
        return flips % 2 === 0 ? { healthy: true } : DOWN;
      };
    }
    const seen = new Set<number>();
    for (let listing = 0; listing < 100; listing += 1) {
      seen.add((await names(listings)).length);
      await clock.advance(40_000);
    }
    expect(seen).toEqual(new Set([0, 4]));
  });

  it("describes tools by what is there", async () => {
    const { listings, registry } = listingsOf(
      [
        noop({
          name: "a",
          dynamicDescription: ({ tools, environments }) =>
            `Beside ${tools.join(", ")} in ${environments.join(", ")}.`,
        }),
        noop({ name: "b" }),
      ],
      ["one", "two"],
    );
    expect((await listings.list()).visible[0]?.description).toBe("Beside a, b in one, two.");
    registry.unregister("b");
    expect((await listings.list()).visible[0]?.description).toBe("Beside a in one, two.");
  });

  it("writes the forms of the providers", async () => {
    const parameters = {
      type: "object",
      properties: { n: { type: "integer" } },
      required: ["n"],
      additionalProperties: false,
    };
    const { listings } = listingsOf([
      noop({
        title: "Title",
        parameters: z.object({ n: z.int() }),
        output: z.object({ done: z.boolean() }),
        permissions: ["terminal:execute"],
      }),
    ]);
    expect(await listings.format("openai")).toEqual([
      { type: "function", function: { name: "noop", description: "Does nothing.", parameters } },
    ]);
    expect(await listings.format("anthropic")).toEqual([
      { name: "noop", description: "Does nothing.", input_schema: parameters },
    ]);
    expect(await listings.format("mcp")).toEqual([
      {
        name: "noop",
        title: "Title",
        description: "Does nothing.",
        inputSchema: parameters,
        outputSchema: {
          type: "object",
          properties: { done: { type: "boolean" } },
          required: ["done"],
          additionalProperties: false,
        },
        annotations: {
          readOnlyHint: true,
          destructiveHint: false,
          idempotentHint: true,
          openWorldHint: true,
        },
      },
    ]);
  });
});
