import { describe, expect, it } from "vitest";
import { chooseToolsets } from "../../src/toolsets.ts";

const known = new Set(["terminal", "files", "web"]);
const on = (choice: Parameters<typeof chooseToolsets>[0]) => [...known].filter(chooseToolsets(choice, known));

describe("chooseToolsets()", () => {
  it.each([
    [{}, ["terminal", "files", "web"]],
    [{ enabled: [] }, []],
    [{ enabled: ["files"] }, ["files"]],
    [{ disabled: ["files"] }, ["terminal", "web"]],
    [{ enabled: ["files", "web"], disabled: ["web"] }, ["files"]],
    [
      { enabled: ["coding"], includes: { coding: ["basic", "files"], basic: ["terminal"] } },
      ["terminal", "files"],
    ],
    [{ disabled: ["coding"], includes: { coding: ["files"] } }, ["terminal", "web"]],
  ])("of %j turns on %j", (choice, expected) => {
    expect(on(choice)).toEqual(expected);
  });

  it("refuses unknown names with the nearest, and circles", () => {
    expect(() => on({ enabled: ["fiels"] })).toThrow('Unknown toolset "fiels"; did you mean "files"?');
    expect(() => on({ disabled: ["nothing"] })).toThrow(expect.objectContaining({ code: "INVALID_CONFIG" }));
    expect(() => on({ includes: { a: ["b"], b: ["a"] } })).toThrow(
      "Toolsets include each other: a -> b -> a",
    );
  });
});
