import { describe, expect, it } from "vitest";
import { z } from "zod";
import { checkArguments, parseArguments } from "../../src/arguments.ts";
import { checkTool } from "../../src/declaration.ts";
import { noop } from "./tools.ts";

const registered = checkTool(
  noop({
    name: "tool",
    parameters: z.object({
      command: z.string().min(1),
      timeout: z.number().positive().default(5),
      mode: z.enum(["fast", "slow"]).optional(),
      items: z.array(z.object({ n: z.int() })).optional(),
    }),
  }),
);
const check = (value: Record<string, unknown>) => checkArguments(registered, value);

describe("parseArguments()", () => {
  it.each([
    [undefined, {}],
    [null, {}],
    ["", {}],
    [" \n", {}],
    ["{}", {}],
    ['{"a":1}', { a: 1 }],
    [{ a: 1 }, { a: 1 }],
    ['"{\\"a\\":1}"', { a: 1 }],
  ])("reads %j", (raw, value) => {
    expect(parseArguments(raw, "tool")).toEqual(value);
  });

  it.each(["{", "[1]", "3", "true", '"text"', [1], 7, "{'a': 1}"])(
    "answers %j with INVALID_ARGUMENTS",
    (raw) => {
      expect(() => parseArguments(raw, "tool")).toThrow(
        expect.objectContaining({ code: "INVALID_ARGUMENTS" }),
      );
    },
  );
});

describe("checkArguments()", () => {
  it("coerces, fills in defaults and passes on", async () => {
    expect(await check({ command: "ls", items: '[{"n":"1"}]' })).toEqual({
      command: "ls",
      timeout: 5,
      items: [{ n: 1 }],
    });
  });

  it.each([
    [{}, 'Cannot call "tool": "command" is required: expected string'],
    [{ comand: "x", command: "x" }, 'Cannot call "tool": unknown argument "comand"; did you mean "command"?'],
    [
      { command: "x", timeout: "soon" },
      'Cannot call "tool": "timeout": expected number, received string "soon"',
    ],
    [{ command: "x", timeout: 0 }, 'Cannot call "tool": "timeout": expected more than 0, received number 0'],
    [{ command: "" }, 'Cannot call "tool": "command": expected a length of at least 1, received string ""'],
    [
      { command: "x", mode: "fest" },
      'Cannot call "tool": "mode": expected one of "fast", "slow", received string "fest"',
    ],
    [
      { command: "x", items: [{ n: 1 }, { n: "1.5" }] },
      'Cannot call "tool": "items[1].n": expected number, received string "1.5"',
    ],
    [{ command: ["a", "b"] }, 'Cannot call "tool": "command": expected string, received an array'],
  ])("tells path and expectation of %j", async (value, message) => {
    await expect(check(value)).rejects.toMatchObject({ code: "INVALID_ARGUMENTS", message });
  });

  it("does not repeat long values", async () => {
    const failure = check({ command: "x", timeout: "s".repeat(100_000) });
    await expect(failure).rejects.toThrow(/expected number, received a string of 100002 characters$/);
  });
});
