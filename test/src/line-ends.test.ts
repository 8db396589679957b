import { describe, expect, it } from "vitest";
import { shellLines } from "../../src/line-ends.ts";

describe("shellLines()", () => {
  it.each([
    ["echo a\r\necho b\r\n", "echo a\necho b\n"],
    ["echo a\r\necho b", "echo a\necho b"],
    ["echo a\r\n", "echo a\n"],
    ["echo a\r", "echo a"],
    ["\r\necho a\r\n", "\necho a\n"],
    ["# don't\r\necho a\r\n", "# don't\necho a\n"],
    [
      "echo \"it's\" 'a \"b' $'c\\'d' \\' a#'b' $# \\\r\n  e\r\n",
      "echo \"it's\" 'a \"b' $'c\\'d' \\' a#'b' $# \\\n  e\n",
    ],
    ["cat >f <<'E'\r\nit's\r\nE\r\n", "cat >f <<'E'\nit's\nE\n"],
  ])("SH-21 makes %j fit for a shell", (command, lines) => {
    expect(shellLines(command)).toBe(lines);
  });

  it.each([
    "printf 'a\rb'",
    "printf 'a\r'",
    "printf 'a\r\nb\r\n'",
    'printf "a\\"\r\nb\r\n"',
    "printf $'a\\'\r\nb\r\n'",
    "cat >f <<'E'\na\r\nb\r\nE\n",
    "echo a\necho b",
    "",
  ])("keeps %j", (command) => {
    expect(shellLines(command)).toBe(command);
  });

  it("takes no longer for hostile text", () => {
    for (const piece of ["'", '"', "\\", "#", "$", "$'", "\r", "\r\n", " #"]) {
      const text = `${piece.repeat(200_000)}\r`;
      const startedAt = performance.now();
      shellLines(text);
      expect(performance.now() - startedAt).toBeLessThan(5_000);
    }
  });
});
