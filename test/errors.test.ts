import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ERRORS, isMoorageError, MoorageError, toMoorageError } from "../src/errors.ts";

const ROOT = join(import.meta.dirname, "..");
const sources = ["src", "environments", "tools", "images"].flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts") && join(folder, name) !== "src/errors.ts")
    .map((name) => ({ file: join(folder, name), text: readFileSync(join(ROOT, folder, name), "utf8") })),
);
const all = sources.map(({ text }) => text).join("\n");

/** Codes that wait for their stage, with the reason. One that comes into use must go from here. */
const NOT_YET_USED: Readonly<Record<string, string>> = {};

describe("the table of errors", () => {
  it.each(Object.keys(ERRORS))("has users for %s, or a reason why not", (code) => {
    const isUsed = ['"', "'", "`"].some((quote) => all.includes(quote + code + quote));
    expect(isUsed).toBe(!(code in NOT_YET_USED));
  });

  it.each(Object.entries(ERRORS))(
    "suggests one imperative sentence for %s",
    (code, { suggestion, kind, retryable }) => {
      expect(code).toMatch(/^[A-Z]+(?:_[A-Z]+)*$/);
      expect(suggestion).toMatch(/^[A-Z][^\n]{3,158}\.$/);
      if (kind === "refused" || kind === "bug" || kind === "reconcile") expect(retryable).toBe(false);
    },
  );

  it("is followed by messages in sentence case without a final period", () => {
    const message =
      /new MoorageError\(\s*"[A-Z_]+",\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|`((?:[^`\\]|\\.)*)`)/g;
    const messages = sources.flatMap(({ file, text }) =>
      [...text.matchAll(message)].map(([, ...texts]) => ({
        file,
        text: texts.find((part) => part !== undefined) ?? "",
      })),
    );
    expect(messages.length).toBeGreaterThan(50);
    expect(messages.filter(({ text }) => !/^(?:[A-Z"\\]|\$\{)/.test(text) || text.endsWith("."))).toEqual([]);
  });
});

describe("MoorageError", () => {
  it("tells a model code, message, suggestion and whether to retry, and nothing else", () => {
    const error = new MoorageError("DOCKER_UNREACHABLE", "Cannot reach the engine", {
      details: { secret: 1 },
      cause: new Error("x"),
    });
    expect(error.report()).toEqual({
      code: "DOCKER_UNREACHABLE",
      message: "Cannot reach the engine",
      suggestion: ERRORS.DOCKER_UNREACHABLE.suggestion,
      retryable: true,
    });
    expect(new MoorageError("INTERNAL", "x", { suggestion: "Do this." }).suggestion).toBe("Do this.");
  });

  it("is known by its code, and wraps what is none", () => {
    const error = new MoorageError("FILE_MISSING", "x");
    expect([
      isMoorageError(error),
      isMoorageError(error, "FILE_MISSING"),
      isMoorageError(error, "INTERNAL"),
    ]).toEqual([true, true, false]);
    expect(isMoorageError(Object.assign(new Error("x"), { code: "ENOENT" }))).toBe(false);
    expect(toMoorageError(error)).toBe(error);
    const cause = new RangeError("out");
    expect(toMoorageError(cause, "TOOL_FAILED", "Cannot go on")).toMatchObject({
      code: "TOOL_FAILED",
      message: "Cannot go on: out",
      cause,
    });
    expect(toMoorageError("text").message).toBe("text");
    const full = Object.assign(new Error("no space"), { code: "ENOSPC" });
    expect(toMoorageError(full, "TOOL_FAILED", "Cannot go on")).toMatchObject({
      code: "STORAGE_FULL",
      message: "Cannot go on: no space",
      cause: full,
    });
  });
});
