import { describe, expect, it } from "vitest";
import { didYouMean, editDistance, nearest } from "../../src/nearest.ts";

describe("nearest()", () => {
  it.each([
    ["dokcer", "docker"],
    ["comand", "command"],
    ["cmd", "command"],
    ["time-out", "timeout"],
    ["LOCAL", "local"],
    ["workDir", "workdir"],
  ])("takes %j for %j", (word, meant) => {
    expect(nearest(word, ["command", "timeout", "workdir", "docker", "local"])).toBe(meant);
  });

  it.each(["banana", "", "x"])("takes %j for nothing", (word) => {
    expect(nearest(word, ["command", "timeout"])).toBeNull();
    expect(didYouMean(word, ["command"])).toBe("");
  });

  it("answers hostile lengths at once", () => {
    expect(nearest("a".repeat(1_000_000), ["b".repeat(1_000_000)])).toBeNull();
  });
});

describe("editDistance()", () => {
  it.each([
    ["", "", 0],
    ["abc", "", 3],
    ["ab", "ba", 1],
    ["kitten", "sitting", 3],
  ])("of %j and %j is %i", (a, b, distance) => {
    expect([editDistance(a, b), editDistance(b, a)]).toEqual([distance, distance]);
  });
});
