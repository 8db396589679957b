import { afterEach, expect, it, vi } from "vitest";
import { canTest, parseRequired } from "./required.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

it("parseRequired takes spaces and an empty list", () => {
  expect(parseRequired(undefined)).toEqual([]);
  expect(parseRequired(" docker , local,")).toEqual(["docker", "local"]);
});

it("tests that cannot run are left out, unless their backend is required", () => {
  vi.stubEnv("MOORAGE_REQUIRE", "local,vercel");
  expect(canTest("ssh", "logins", null)).toBe(true);
  expect(canTest("ssh", "logins", "no server")).toBe(false);
  vi.stubEnv("MOORAGE_REQUIRE", "local,ssh");
  expect(canTest("ssh", "logins", null)).toBe(true);
  expect(() => canTest("ssh", "logins", "no server")).toThrow("Required, but not tested: logins: no server");
});
