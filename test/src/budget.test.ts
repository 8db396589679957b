import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { fitOutput, fitText } from "../../src/budget.ts";
import { limits } from "../../src/limits.ts";

const MARKER = /\[([\d,]+) of ([\d,]+) bytes left out(?:, ([\d,]+) of ([\d,]+) lines)?\]\n/;
const number = (text: string | undefined) => Number(text?.replaceAll(",", ""));

/** Head and tail of a cut text, and the numbers of its marker. */
function parts(text: string) {
  const match = MARKER.exec(text);
  if (!match) throw new Error(`No marker in ${JSON.stringify(text.slice(0, 200))}`);
  const [marker, omittedBytes, totalBytes, omittedLines, totalLines] = match;
  return {
    head: text.slice(0, match.index),
    tail: text.slice(match.index + marker.length),
    omittedBytes: number(omittedBytes),
    totalBytes: number(totalBytes),
    omittedLines: number(omittedLines),
    totalLines: number(totalLines),
  };
}

describe("fitText()", () => {
  it("gives back what fits", () => {
    expect(fitText("a\nb\n")).toEqual({ text: "a\nb\n", truncated: false, totalBytes: 4, omittedBytes: 0 });
  });

  it("SH-32 keeps the first and the last lines", () => {
    const text = `${Array.from({ length: 100_000 }, (_, n) => n + 1).join("\n")}\nFATAL\n`;
    const fitted = parts(fitText(text, { maxLines: 100 }).text);
    expect(fitted.head).toMatch(/^1\n2\n3\n/);
    expect(fitted.tail).toMatch(/\n100000\nFATAL\n$/);
    expect(fitted.totalLines).toBe(100_001);
    const shown = fitted.head.split("\n").length - 1 + (fitted.tail.split("\n").length - 1);
    expect(fitted.omittedLines).toBe(100_001 - shown);
    expect(shown + 1).toBeLessThanOrEqual(100);
  });

  it.each([
    ["你", 3],
    ["😀", 4],
    ["\u001b[31m", 5],
    ["\u001b]0;a title\u0007", 13],
    ["é", 2],
  ])("SH-28 never cuts inside %j, wherever the budget falls", (unit, width) => {
    for (let offset = 0; offset <= width; offset += 1) {
      const text = "x".repeat(offset) + unit.repeat(2_000);
      for (const measure of ["plain", "json"] as const) {
        const { text: fitted, omittedBytes } = fitText(text, { maxBytes: 1_000, measure });
        const { head, tail, ...counts } = parts(fitted);
        expect(head.replace(/\n$/, "")).toMatch(wholeUnits(unit));
        expect(tail).toMatch(wholeUnits(unit));
        expect(fitted.isWellFormed()).toBe(true);
        expect(Buffer.byteLength(fitted)).toBeLessThanOrEqual(1_000);
        expect(counts.omittedBytes).toBe(omittedBytes);
        expect(omittedBytes).toBe(
          Buffer.byteLength(text) - Buffer.byteLength(head.replace(/\n$/, "")) - Buffer.byteLength(tail),
        );
        expect(counts.totalBytes).toBe(Buffer.byteLength(text));
      }
    }
  });

  it("SH-31 cuts one giant line inside", () => {
    const { head, tail, omittedBytes } = parts(fitText("x".repeat(2_000_000)).text);
    expect(head).toMatch(/^x+\n$/);
    expect(tail).toMatch(/^x+$/);
    expect(omittedBytes).toBe(2_000_000 - (head.length - 1) - tail.length);
  });

  it("counts by the whole of which it got a part", () => {
    const { omittedBytes, totalBytes, totalLines } = parts(
      fitText("line\n".repeat(10_000), { maxBytes: 1_000, totalBytes: 9_000_000 }).text,
    );
    expect(totalBytes).toBe(9_000_000);
    expect(omittedBytes).toBeGreaterThan(8_999_000);
    expect(totalLines).toBeNaN();
  });

  it("refuses a budget that cannot hold the marker", () => {
    expect(() => fitText("x", { maxBytes: 10 })).toThrow(RangeError);
    expect(() => fitText("x", { maxLines: 2 })).toThrow(RangeError);
  });

  it("holds its bounds and its counts for any text", () => {
    const unit = fc.oneof(
      fc.string({ unit: "binary", minLength: 1, maxLength: 40 }),
      fc.constantFrom("\n", "\u001b[1;31m", "\u001b", "\u001b[", "a line\n", "😀", "\ud800", "\0", '"'),
    );
    const text = fc.array(unit, { minLength: 200, maxLength: 800 }).map((units) => units.join(""));
    fc.assert(
      fc.property(
        text,
        fc.integer({ min: 400, max: 3_000 }),
        fc.integer({ min: 3, max: 60 }),
        (whole, maxBytes, maxLines) => {
          const json = fitText(whole, { maxBytes, maxLines, measure: "json" }).text;
          expect(Buffer.byteLength(JSON.stringify(json)) - 2).toBeLessThanOrEqual(maxBytes);
          const { text: fitted, truncated } = fitText(whole, { maxBytes, maxLines });
          expect(Buffer.byteLength(fitted)).toBeLessThanOrEqual(maxBytes);
          expect(fitted.split("\n").length - (fitted.endsWith("\n") ? 1 : 0)).toBeLessThanOrEqual(maxLines);
          if (!truncated) expect(fitted).toBe(whole);
          else {
            const { tail } = parts(fitted);
            expect(whole.endsWith(tail)).toBe(true);
          }
        },
      ),
    );
  });
});

describe("fitOutput()", () => {
  it("gives back the very object that fits", () => {
    const output = { a: "x", b: [1] };
    expect(fitOutput(output).output).toBe(output);
  });

  it("cuts the longest strings and leaves the short ones", () => {
    const output = {
      note: "short",
      output: "a line of the output\n".repeat(50_000),
      more: { text: "y".repeat(100_000) },
    };
    const { output: fitted, text } = fitOutput(output);
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(limits.resultMaxBytes);
    expect(Buffer.byteLength(text)).toBeGreaterThan(limits.resultMaxBytes * 0.9);
    expect(JSON.parse(text)).toEqual(fitted);
    expect(fitted.note).toBe("short");
    expect(parts(String(fitted.output)).totalBytes).toBe(1_050_000);
  });

  it("cuts a string of many lines that has few bytes", () => {
    const { output } = fitOutput({ text: "\n".repeat(5_000) });
    expect(parts(String(output.text)).totalLines).toBe(5_000);
  });

  it.each([
    ["control characters", { text: "\u0001".repeat(100_000) }],
    ["quotes", { text: '"'.repeat(100_000) }],
    ["many short strings", { list: Array.from({ length: 20_000 }, (_, n) => `item ${n}`) }],
    ["many numbers", { list: Array.from({ length: 100_000 }, (_, n) => n) }],
    ["nested lists", { rows: Array.from({ length: 500 }, () => Array.from({ length: 500 }, () => "cell")) }],
    ["many keys", Object.fromEntries(Array.from({ length: 10_000 }, (_, n) => [`key-${n}`, n]))],
  ])("fits %s", (_, output) => {
    const { text } = fitOutput(output, { maxBytes: 5_000 });
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(5_000);
    expect(JSON.parse(text)).toBeTypeOf("object");
  });

  it("says what it left out of a list", () => {
    const { output } = fitOutput({ list: Array.from({ length: 4_096 }, (_, n) => n) }, { maxBytes: 4_000 });
    expect(output.list).toHaveLength(512);
    expect(output.left_out).toEqual(["list: 3584 of 4096 items"]);
  });
});

function wholeUnits(unit: string): RegExp {
  return new RegExp(`^x*(?:${unit.replace(/[[\]\\]/g, "\\$&")})*$`, "u");
}
