import { describe, expect, it } from "vitest";
import { loginDifference, mergePath } from "../../../environments/shell/login.ts";

describe("mergePath()", () => {
  it.each([
    [
      "a profile that resets PATH loses no folder of the backend's (SH-22)",
      "/opt/x/bin:/usr/bin",
      "/usr/local/bin:/usr/bin:/bin",
      "/opt/x/bin:/usr/local/bin:/usr/bin:/bin",
    ],
    [
      "a virtual environment stays first (SH-22)",
      "/venv/bin:/usr/bin:/bin",
      "/usr/bin:/bin:/venv/bin",
      "/venv/bin:/usr/bin:/bin",
    ],
    [
      "what a profile puts first comes first",
      "/usr/bin:/bin",
      "/home/u/.local/bin:/usr/bin:/bin",
      "/home/u/.local/bin:/usr/bin:/bin",
    ],
  ])("%s", (_, own, login, merged) => {
    expect(mergePath(own, login)).toBe(merged);
  });
});

describe("loginDifference()", () => {
  it("holds what a login adds and changes, and nothing that belongs to one shell", () => {
    const own = new Map([
      ["PATH", "/usr/bin"],
      ["HOME", "/root"],
      ["SHLVL", "1"],
      ["KEPT", "1"],
    ]);
    const login = new Map([
      ["PATH", "/usr/bin:/games"],
      ["HOME", "/root"],
      ["SHLVL", "2"],
      ["LANG", "C.UTF-8"],
      ["PWD", "/x"],
    ]);
    expect(loginDifference(own, login)).toEqual(
      new Map([
        ["PATH", "/usr/bin:/games"],
        ["LANG", "C.UTF-8"],
      ]),
    );
  });

  it("is empty when no login could be read", () => {
    expect(loginDifference(new Map([["A", "1"]]), null)).toEqual(new Map());
  });
});
