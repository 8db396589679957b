import { describe, expect, it } from "vitest";
import { type CallInProgress, compose } from "../../src/middleware.ts";
import { noop } from "./tools.ts";

const call: CallInProgress = {
  callId: "1",
  turn: "turn",
  caller: "me",
  tool: noop(),
  arguments: {},
  environment: null,
  environmentName: null,
  abortSignal: new AbortController().signal,
  cwd: () => "/",
  replaceArguments: async () => {},
};

describe("compose()", () => {
  it("runs middleware from the outside in and back", async () => {
    const trail: string[] = [];
    const layer = (name: string) => async (_: CallInProgress, next: () => Promise<object>) => {
      trail.push(`${name} in`);
      const output = { ...(await next()), [name]: true };
      trail.push(`${name} out`);
      return output;
    };
    const run = compose([layer("a"), layer("b")], async () => {
      trail.push("handler");
      return { done: true };
    });
    expect(await run(call)).toEqual({ done: true, a: true, b: true });
    expect(trail).toEqual(["a in", "b in", "handler", "b out", "a out"]);
  });

  it("lets a middleware block, and pass on what the handler threw", async () => {
    let ran = false;
    const block = compose([async () => ({ blocked: true })], async () => {
      ran = true;
      return {};
    });
    expect([await block(call), ran]).toEqual([{ blocked: true }, false]);
    const failing = compose([(_, next) => next()], () => Promise.reject(new Error("no")));
    await expect(failing(call)).rejects.toThrow("no");
  });

  it("refuses a second next(), also beside the first", async () => {
    let runs = 0;
    const handler = async () => {
      runs += 1;
      return {};
    };
    const twice = compose([async (_, next) => ({ ...(await next()), ...(await next()) })], handler);
    await expect(twice(call)).rejects.toThrow("next() was called more than once");
    const beside = compose(
      [async (_, next) => Object.assign({}, ...(await Promise.all([next(), next()])))],
      handler,
    );
    await expect(beside(call)).rejects.toThrow("next() was called more than once");
    expect(runs).toBe(2);
  });

  it("serves calls side by side", async () => {
    const run = compose([(_, next) => next()], async ({ callId }) => ({ callId }));
    const outputs = await Promise.all(["a", "b", "c"].map((callId) => run({ ...call, callId })));
    expect(outputs).toEqual([{ callId: "a" }, { callId: "b" }, { callId: "c" }]);
  });
});
