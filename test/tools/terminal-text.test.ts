import { describe, expect, it } from "vitest";
import { plainText } from "../../tools/terminal-text.ts";

describe("plainText()", () => {
  it.each([
    ["SH-47 progress", "\r1%\r50%\r100%\n", "100%\n"],
    ["a bar that erases itself", "10%\r\u001b[K20%\r\u001b[K\n", "20%\n"],
    ["a bar without an end", "a\rb\rc", "c"],
    ["colours", "\u001b[1;31mred\u001b[0m ok", "red ok"],
    ["SH-47 a title with a bell", "\u001b[31mred\u001b[0m \u001b]0;t\u0007 ok\n", "red  ok\n"],
    ["a link", "\u001b]8;;http://a.example\u001b\\text\u001b]8;;\u001b\\", "text"],
    ["lines of a pty", "a\r\nb\r\n", "a\nb\n"],
    ["lines of a pty that ends lines twice", "a\r\r\nb\r\r\n", "a\nb\n"],
    ["overstrikes", "N\bNA\bAM\bME\bE", "NAME"],
    ["a bell and a NUL", "a\u0007b\0c", "abc"],
    ["a sequence that was cut off", "text\u001b[3\nnext\u001b", "text\nnext"],
    ["tabs, blanks and other scripts", "\ta  ü 你 😀 \n", "\ta  ü 你 😀 \n"],
    ["cursor movement", "\u001b[2J\u001b[Htop", "top"],
    ["one-byte controls", "\u009b31mred\u0085", "red"],
  ])("makes %s plain", (_, text, plain) => {
    expect(plainText(text)).toBe(plain);
  });

  it("is linear on hostile input", () => {
    const startedAt = performance.now();
    for (const piece of ["\u001b[", "\u001b]", "\r", "\b", "a\b", "\u001b[31", "\u001b]0;"]) {
      plainText(piece.repeat(300_000));
    }
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });
});
