import { createRequire } from "node:module";
import { expect, it } from "vitest";
import { nativeRemark } from "../../../environments/ssh/native.ts";

it("nativeRemark() tells of a library without its native part, and of nothing else", () => {
  const asked: string[] = [];
  const library = (answer: unknown) => (name: string) => {
    asked.push(name);
    return answer;
  };
  expect(nativeRemark(library({ bindingAvailable: false }))).toBe(
    `ssh2 runs without its native part: large transfers are slower (npm rebuild ssh2, with Node ${process.version} first on PATH)`,
  );
  expect(nativeRemark(library({ bindingAvailable: true }))).toBeNull();
  expect(nativeRemark(library({}))).toBeNull();
  const missing = () => {
    throw new Error("Cannot find module");
  };
  expect(nativeRemark(missing)).toBeNull();
  // The library that is installed still tells.
  expect(createRequire(import.meta.url)(asked[0] ?? "")).toHaveProperty("bindingAvailable");
});
