import { setImmediate as turn } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { AvailabilityCache } from "../../src/availability.ts";
import { MoorageError } from "../../src/errors.ts";
import { EventHub, type MoorageEvent } from "../../src/events.ts";
import { limits } from "../../src/limits.ts";
import type { Middleware } from "../../src/middleware.ts";
import { Pipeline } from "../../src/pipeline.ts";
import { type AnyTool, ToolRegistry } from "../../src/registry.ts";
import { Sessions } from "../../src/sessions.ts";
import { defineEnvironment, defineTools } from "../../src/subjects.ts";
import { EmptyEnvironment } from "./fake-environment.ts";
import { ManualClock } from "./manual-clock.ts";
import { noop } from "./tools.ts";

interface Setting {
  readonly tools: readonly AnyTool[];
  readonly middleware?: readonly Middleware[];
  readonly environments?: readonly string[];
  readonly disabled?: string;
}

function pipelineOf({ tools, middleware = [], environments = ["one"], disabled }: Setting) {
  const registry = new ToolRegistry();
  for (const tool of tools) registry.register(tool);
  const clock = new ManualClock();
  const availability = new AvailabilityCache({ clock });
  const places = new Map(environments.map((name) => [name, new EmptyEnvironment(name)]));
  for (const [name, environment] of places) defineEnvironment(availability, name, environment, clock);
  defineTools(availability, registry, { PRESENT: "1" });
  const events: MoorageEvent[] = [];
  const hub = new EventHub();
  hub.listen((event) => events.push(event));
  const stopping = new AbortController();
  const pipeline = new Pipeline({
    registry,
    environments: places,
    availability,
    sessions: new Sessions(),
    isEnabled: (toolset) => toolset !== disabled,
    middleware,
    events: hub,
    clock,
    stopSignal: stopping.signal,
  });
  return { pipeline, clock, places, events, stopping };
}

const warnings: Error[] = [];
const onWarning = (warning: Error) => warnings.push(warning);
afterEach(() => {
  process.off("warning", onWarning);
  warnings.length = 0;
});

describe("a call", () => {
  it("comes back with its id, tool, environment, content and the same as text", async () => {
    const { pipeline, events } = pipelineOf({
      tools: [
        noop({
          needsEnvironment: true,
          parameters: z.object({ n: z.int() }),
          handler: async ({ n }) => ({ double: n * 2 }),
        }),
      ],
    });
    expect(await pipeline.call({ id: "c1", name: "noop", arguments: '{"n":"21"}', caller: "me" })).toEqual({
      callId: "c1",
      tool: "noop",
      environment: "one",
      ok: true,
      content: { double: 42 },
      text: '{"double":42}',
      durationMs: 0,
    });
    expect(events).toEqual([
      { type: "call-started", callId: "c1", caller: "me", tool: "noop", environment: null },
      {
        type: "call-ended",
        callId: "c1",
        caller: "me",
        tool: "noop",
        environment: "one",
        durationMs: 0,
        resultBytes: 13,
        error: null,
      },
    ]);
  });

  it("to an unknown tool names the nearest", async () => {
    const { pipeline, events } = pipelineOf({
      tools: [noop({ name: "terminal" }), noop({ name: "off", toolset: "x" })],
      disabled: "x",
    });
    const result = await pipeline.call({ id: "1", name: "termnial" });
    const error = {
      code: "UNKNOWN_TOOL",
      message: 'There is no tool "termnial"; did you mean "terminal"?',
      suggestion: "Use one of the listed tools.",
      retryable: false,
    };
    expect(result).toEqual({
      callId: "1",
      tool: "termnial",
      environment: null,
      ok: false,
      error,
      text: JSON.stringify({ error }),
      durationMs: 0,
    });
    expect(events.at(-1)).toMatchObject({ type: "call-ended", error });
    expect((await pipeline.call({ name: "off" })).text).toContain('Tool \\"off\\" is turned off');
  });

  it.each(["{", "[]", "null,", { n: "x" }])("with bad arguments %j is answered, not run", async (given) => {
    let runs = 0;
    const handler = async () => {
      runs += 1;
      return {};
    };
    const { pipeline } = pipelineOf({ tools: [noop({ parameters: z.object({ n: z.int() }), handler })] });
    expect(await pipeline.call({ name: "noop", arguments: given })).toMatchObject({
      ok: false,
      error: { code: "INVALID_ARGUMENTS" },
    });
    expect(runs).toBe(0);
  });

  it("goes to the environment that the arguments or the caller name, else to the first", async () => {
    const { pipeline } = pipelineOf({
      environments: ["one", "two", "three"],
      tools: [
        noop({
          needsEnvironment: true,
          handler: async (args, { environment }) => ({ args, id: environment.id }),
        }),
      ],
    });
    const asked = [{}, { environment: "two" }, { environment: "two", arguments: { environment: "three" } }];
    const results = await Promise.all(asked.map((call) => pipeline.call({ name: "noop", ...call })));
    expect(results.map((result) => result.text)).toEqual([
      '{"args":{},"id":"one"}',
      '{"args":{},"id":"two"}',
      '{"args":{},"id":"three"}',
    ]);
    expect(await pipeline.call({ name: "noop", arguments: { environment: "tow" } })).toMatchObject({
      ok: false,
      error: {
        code: "INVALID_ARGUMENTS",
        message:
          '"environment": there is no environment "tow"; did you mean "two"? (there are: one, two, three)',
      },
    });
    expect(await pipeline.call({ name: "noop", arguments: { environment: 5 } })).toMatchObject({ ok: false });
  });

  it("keeps one session per environment and caller, opened on first use", async () => {
    const { pipeline, places } = pipelineOf({
      environments: ["one", "two"],
      tools: [
        noop({
          needsEnvironment: true,
          handler: async (_, context) => ({
            before: context.cwd(),
            id: (await context.session()).id,
            cwd: context.cwd(),
          }),
        }),
      ],
    });
    const as = async (caller: string, environment: string) =>
      JSON.parse((await pipeline.call({ name: "noop", caller, environment })).text);
    expect(await as("a", "one")).toEqual({ before: "/empty", id: "session-1", cwd: "/empty/1" });
    expect(await as("a", "one")).toEqual({ before: "/empty/1", id: "session-1", cwd: "/empty/1" });
    expect((await as("b", "one")).id).toBe("session-2");
    expect((await as("a", "two")).id).toBe("session-1");
    expect([...places.values()].map(({ opened }) => opened)).toEqual([2, 1]);
  });

  it("opens a new session after one that was closed elsewhere", async () => {
    let fault: Error | null = new MoorageError("SESSION_CLOSED", "Cannot use a closed session");
    const { pipeline } = pipelineOf({
      tools: [
        noop({
          needsEnvironment: true,
          handler: async (_, { session }) => {
            const { id } = await session();
            if (fault) throw fault;
            return { id };
          },
        }),
      ],
    });
    expect(await pipeline.call({ name: "noop" })).toMatchObject({ error: { code: "SESSION_CLOSED" } });
    fault = null;
    expect(await pipeline.call({ name: "noop" })).toMatchObject({ content: { id: "session-2" } });
  });

  it("with a name that is no text is answered", async () => {
    const { pipeline } = pipelineOf({ tools: [noop()] });
    for (const name of [undefined, null, 7, {}, ["noop"]]) {
      // What a model writes need not be what the type says.
      const result = await pipeline.call({ name: name as never });
      expect(result).toMatchObject({ ok: false, error: { code: "UNKNOWN_TOOL" } });
    }
  });

  it("AV-05 to an environment that is down gives the reason, and runs again when it is up", async () => {
    const { pipeline, places, clock } = pipelineOf({ tools: [noop({ needsEnvironment: true })] });
    const place = places.get("one") ?? new EmptyEnvironment();
    place.state = {
      healthy: false,
      code: "DOCKER_UNREACHABLE",
      reason: "Cannot reach the Docker engine at unix:///run/x.sock",
      suggestion: "Start it.",
    };
    const result = await pipeline.call({ name: "noop" });
    expect(result).toMatchObject({
      ok: false,
      environment: "one",
      error: {
        code: "TOOL_UNAVAILABLE",
        message:
          'Cannot use "noop" in environment "one": Cannot reach the Docker engine at unix:///run/x.sock',
        suggestion: "Start it.",
        retryable: true,
      },
    });
    place.state = { healthy: true };
    await clock.advance(3_000);
    expect(await pipeline.call({ name: "noop" })).toMatchObject({ ok: true });
  });

  it("to a tool whose own condition fails gives that reason", async () => {
    const { pipeline } = pipelineOf({
      tools: [
        noop({ name: "a", requiredEnv: ["PRESENT", "ABSENT"] }),
        noop({ name: "b", requiredEnv: ["PRESENT"] }),
        noop({ name: "c", availability: async () => ({ available: false, reason: "No licence" }) }),
        noop({ name: "d", availability: () => Promise.reject(new TypeError("oops")) }),
      ],
    });
    const texts = await Promise.all(
      ["a", "b", "c", "d"].map(async (name) => (await pipeline.call({ name })).text),
    );
    expect(texts[0]).toContain('Cannot use \\"a\\": ABSENT is not set');
    expect(texts[1]).toBe('{"done":true}');
    expect(texts[2]).toContain("No licence");
    expect(texts[3]).toContain('"code":"INTERNAL"');
  });

  it.each([
    [
      "a Moorage error",
      new MoorageError("FILE_MISSING", "There is no file"),
      { code: "FILE_MISSING", message: "There is no file" },
    ],
    ["any error", new RangeError("out"), { code: "TOOL_FAILED", message: 'Tool "noop" failed: out' }],
    ["a string", "text", { code: "TOOL_FAILED", message: 'Tool "noop" failed: text' }],
    ["undefined", undefined, { code: "TOOL_FAILED", message: 'Tool "noop" failed: undefined' }],
  ])("whose handler throws %s is a failed result", async (_, thrown, error) => {
    const { pipeline } = pipelineOf({ tools: [noop({ handler: () => Promise.reject(thrown) })] });
    expect(await pipeline.call({ name: "noop" })).toMatchObject({ ok: false, error });
  });

  it("whose handler throws at once, or returns no object, or no JSON, is a failed result", async () => {
    const loop: Record<string, unknown> = {};
    loop.loop = loop;
    const handlers = [
      () => {
        throw new Error("at once");
      },
      async () => undefined as never,
      async () => [] as never,
      async () => loop,
      async () => ({ big: 1n }),
    ];
    for (const handler of handlers) {
      const { pipeline } = pipelineOf({ tools: [noop({ handler })] });
      expect(await pipeline.call({ name: "noop" })).toMatchObject({ ok: false });
    }
  });

  it("cuts a result, and a message, that are too long for a model", async () => {
    const { pipeline } = pipelineOf({
      tools: [
        noop({ name: "a", handler: async () => ({ text: "word ".repeat(100_000) }) }),
        noop({ name: "b", handler: () => Promise.reject(new Error("word ".repeat(100_000))) }),
        noop({
          name: "c",
          resultBudget: { maxBytes: 2_000 },
          handler: async () => ({ text: "word ".repeat(1_000) }),
        }),
      ],
    });
    const lengths = await Promise.all(
      ["a", "b", "c"].map(async (name) => Buffer.byteLength((await pipeline.call({ name })).text)),
    );
    const [a = 0, b = 0, c = 0] = lengths;
    expect([a <= 50_000, b <= 50_000, c <= 2_000]).toEqual([true, true, true]);
  });
});

describe("middleware", () => {
  it("sees the checked arguments and may put others in place, which are checked too", async () => {
    const seen: unknown[] = [];
    const { pipeline } = pipelineOf({
      tools: [noop({ parameters: z.object({ n: z.int().default(1) }), handler: async ({ n }) => ({ n }) })],
      middleware: [
        async (call, next) => {
          seen.push(call.arguments);
          await expect(call.replaceArguments({ n: "x" })).rejects.toMatchObject({
            code: "INVALID_ARGUMENTS",
          });
          seen.push(call.arguments);
          await call.replaceArguments('{"n":"5"}');
          seen.push(call.arguments);
          return next();
        },
      ],
    });
    expect((await pipeline.call({ name: "noop" })).text).toBe('{"n":5}');
    expect(seen).toEqual([{ n: 1 }, { n: 1 }, { n: 5 }]);
  });

  it("blocks by throwing, and its faults are told as ours, not as the tool's", async () => {
    const blocking = pipelineOf({
      tools: [noop()],
      middleware: [() => Promise.reject(new MoorageError("PATH_DENIED", "No"))],
    });
    expect(await blocking.pipeline.call({ name: "noop" })).toMatchObject({
      ok: false,
      error: { code: "PATH_DENIED" },
    });
    const faulty = pipelineOf({ tools: [noop()], middleware: [(_, next) => next().then(() => next())] });
    expect(await faulty.pipeline.call({ name: "noop" })).toMatchObject({
      ok: false,
      error: { code: "INTERNAL" },
    });
  });

  it("gets the handler's failure to look at", async () => {
    const seen: unknown[] = [];
    const { pipeline } = pipelineOf({
      tools: [noop({ handler: () => Promise.reject(new Error("no")) })],
      middleware: [
        async (_, next) => {
          try {
            return await next();
          } catch (error) {
            seen.push(error);
            throw error;
          }
        },
      ],
    });
    await pipeline.call({ name: "noop" });
    expect(seen).toEqual([expect.objectContaining({ code: "TOOL_FAILED", cause: expect.any(Error) })]);
  });
});

describe("a call that ends early", () => {
  const obedient = noop({
    timeoutMs: 1_000,
    handler: (_, { abortSignal }) =>
      new Promise((_, reject) => {
        if (abortSignal.aborted) reject(abortSignal.reason);
        abortSignal.addEventListener("abort", () => reject(new DOMException("stopped", "AbortError")));
      }),
  });

  it("is TOOL_TIMEOUT after the tool's deadline", async () => {
    const { pipeline, clock } = pipelineOf({ tools: [obedient] });
    const call = pipeline.call({ name: "noop" });
    await clock.advance(1_000);
    expect(await call).toMatchObject({
      ok: false,
      durationMs: 1_000,
      error: { code: "TOOL_TIMEOUT", message: 'Tool "noop" did not end within 1000 ms' },
    });
    expect(clock.pendingTimers).toBe(0);
  });

  it("is ABORTED when the caller or the runtime's stop says so", async () => {
    const { pipeline, stopping } = pipelineOf({ tools: [obedient] });
    const controller = new AbortController();
    const aborted = pipeline.call({ name: "noop" }, { abortSignal: controller.signal });
    const stopped = pipeline.call({ name: "noop" });
    await turn();
    controller.abort();
    expect(await aborted).toMatchObject({
      ok: false,
      error: { code: "ABORTED", message: "The call was cancelled" },
    });
    stopping.abort();
    expect(await stopped).toMatchObject({ ok: false, error: { code: "ABORTED" } });
  });

  it("does not run at all when it was aborted before", async () => {
    let runs = 0;
    const { pipeline } = pipelineOf({
      tools: [
        noop({
          handler: async () => {
            runs += 1;
            return {};
          },
        }),
      ],
    });
    const result = await pipeline.call({ name: "noop" }, { abortSignal: AbortSignal.abort() });
    expect([result.ok, runs]).toEqual([false, 0]);
  });

  it("keeps what the handler has after the abort", async () => {
    const { pipeline, clock } = pipelineOf({
      tools: [
        noop({
          timeoutMs: 1_000,
          handler: (_, { abortSignal }) =>
            new Promise((resolve) =>
              abortSignal.addEventListener("abort", () => resolve({ output: "so far" })),
            ),
        }),
      ],
    });
    const call = pipeline.call({ name: "noop" });
    await clock.advance(1_000);
    expect(await call).toMatchObject({ ok: true, content: { output: "so far" } });
  });

  it("leaves a handler that will not end to itself, and drops its late answer", async () => {
    let finish = (_: Error) => {};
    const { pipeline, clock, events } = pipelineOf({
      tools: [
        noop({
          timeoutMs: 1_000,
          handler: () =>
            new Promise((_, reject) => {
              finish = reject;
            }),
        }),
      ],
    });
    const call = pipeline.call({ id: "c", name: "noop" });
    await clock.advance(1_000 + limits.abortGraceMs);
    expect(await call).toMatchObject({ ok: false, error: { code: "TOOL_TIMEOUT" } });
    expect(events.map(({ type }) => type)).toEqual(["call-started", "handler-abandoned", "call-ended"]);
    finish(new Error("late"));
    await turn();
  });

  it("ends a middleware that waits for someone", async () => {
    const { pipeline, clock } = pipelineOf({ tools: [noop()], middleware: [() => new Promise(() => {})] });
    const controller = new AbortController();
    const call = pipeline.call({ name: "noop" }, { abortSignal: controller.signal });
    await turn();
    controller.abort();
    await clock.advance(limits.abortGraceMs);
    expect(await call).toMatchObject({ ok: false, error: { code: "ABORTED" } });
  });
});

describe("listeners", () => {
  it("that throw disturb neither the call nor each other", async () => {
    process.on("warning", onWarning);
    const hub = new EventHub();
    const seen: string[] = [];
    hub.listen(() => {
      throw new Error("listener broke");
    });
    hub.listen(({ type }) => seen.push(type));
    hub.emit({ type: "tools-changed" });
    const { pipeline } = pipelineOf({
      tools: [
        noop({
          handler: async (_, { progress }) => {
            progress({ message: "half", progress: 1 });
            return {};
          },
        }),
      ],
    });
    const onProgress = () => {
      throw new Error("progress broke");
    };
    expect(await pipeline.call({ name: "noop" }, { onProgress })).toMatchObject({ ok: true });
    await turn();
    expect(seen).toEqual(["tools-changed"]);
    expect(warnings.map(({ message }) => message.split("\n")[0])).toEqual([
      'A listener for "tools-changed" events threw: Error: listener broke',
      "A progress listener threw: Error: progress broke",
    ]);
  });
});
