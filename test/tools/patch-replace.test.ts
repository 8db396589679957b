import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { isMoorageError } from "../../src/errors.ts";
import { replaceText } from "../../tools/patch-replace.ts";

function replace(text: string, old: string, now: string, replaceAll = false) {
  return replaceText(text, old, now, { replaceAll, unicode: true });
}

function refusal(text: string, old: string, now: string): string {
  try {
    return `applied: ${JSON.stringify(replace(text, old, now))}`;
  } catch (error) {
    if (isMoorageError(error)) return `${error.code}: ${error.message}`;
    throw error;
  }
}

describe("replaceText()", () => {
  it.each([
    ["keeps CRLF (FT-01)", "a\r\nb\r\nc\r\n", "a\nb", "a\nB", "a\r\nB\r\nc\r\n", "line-endings"],
    [
      "adds no blank line to CRLF (FT-03)",
      "a\r\nb\r\nc\r\n",
      "b\n",
      "B\n",
      "a\r\nB\r\nc\r\n",
      "line-endings",
    ],
    ["gives new lines the file's CRLF", "a\r\nb\r\n", "a", "a\nx", "a\r\nx\r\nb\r\n", "exact"],
    ["keeps LF when old and new text have CRLF", "a\nb\n", "a\r\nb", "a\r\nB", "a\nB\n", "line-endings"],
    [
      "keeps each ending of a mixed file",
      "a\r\nb\nc\r\n",
      "a\nb\nc",
      "a\nB\nc",
      "a\r\nB\nc\r\n",
      "line-endings",
    ],
    ["keeps a missing final newline (FT-06)", "a\nb", "a", "A", "A\nb", "exact"],
    ["matches a last line without newline", "a\nb", "b\n", "B\n", "a\nB", "trailing-whitespace"],
    [
      "matches part of lines across CRLF",
      "f(a,\r\n  b)",
      "a,\n  b",
      "a,\n  c",
      "f(a,\r\n  c)",
      "line-endings",
    ],
    [
      "keeps blanks at line ends",
      "a  \nb\t\nc\n",
      "a\nb\nc",
      "a\nB\nc",
      "a  \nB\t\nc\n",
      "trailing-whitespace",
    ],
    ["keeps tabs (FT-22)", "all:\n\tcc x\n", "    cc x", "    cc y", "all:\n\tcc y\n", "indentation"],
    [
      "shifts indentation",
      "    if a:\n        b\n",
      "if a:\n    b",
      "if a:\n    c",
      "    if a:\n        c\n",
      "indentation",
    ],
    [
      "changes one character among odd ones (FT-21)",
      "a = “x…” + 'y' # – keep\n",
      `a = "x..." + 'y' # - keep`,
      `a = "x..." + 'z' # - keep`,
      "a = “x…” + 'z' # – keep\n",
      "unicode",
    ],
    [
      "leaves numbers in front of lines (FT-15)",
      "  12|foo\na | b\nx\n",
      "x",
      "y",
      "  12|foo\na | b\ny\n",
      "exact",
    ],
    ["removes a line", "a\nb\nc\n", "b\n", "", "a\nc\n", "exact"],
    ["joins lines when asked", "a\r\nb\r\n", "a\nb", "ab", "ab\r\n", "line-endings"],
  ])("%s", (_, text, old, now, expected, matched) => {
    expect(replace(text, old, now)).toMatchObject({ text: expected, matched });
  });

  it("lists the lines of several matches and changes all when asked (FT-18)", () => {
    const text = "# 1\nvalue = value + 1\n\n\n\nvalue = value + 1\n\n\n\nvalue = value + 1\n";
    expect(refusal(text, "value = value + 1", "x")).toBe(
      "PATCH_AMBIGUOUS: old_string matches 3 places: L2, L6, L10",
    );
    expect(replace(text, "value = value + 1", "x", true)).toEqual({
      text: "# 1\nx\n\n\n\nx\n\n\n\nx\n",
      count: 3,
      matched: "exact",
      lines: [2, 6, 10],
    });
  });

  it("counts overlapping matches as several and replaces them once", () => {
    expect(refusal("aaa", "aa", "b")).toContain("PATCH_AMBIGUOUS");
    expect(replace("aaa aaaa", "aa", "b", true).text).toBe("ba bb");
  });

  it("refuses what it cannot place or carry over", () => {
    expect(refusal("a\nb\n", "c", "d")).toContain("PATCH_MISMATCH");
    expect(refusal("x:\n\tcc\n\tdd\n", "x:\n    cc\n    dd", "x:\n    cc\n    ee")).toContain(
      "PATCH_MISMATCH",
    );
    expect(refusal("\tcc\n", "    cc", "    cc\n        dd")).toContain("PATCH_MISMATCH");
    expect(refusal("x = “…”\n", `x = ".`, `y = ".`)).toContain("PATCH_MISMATCH");
  });

  it("tells a change that was made already", () => {
    expect(refusal("const answer = 42;\n", "const answer = 41;", "const answer = 42;")).toContain(
      "made already",
    );
  });

  const line = fc.stringMatching(/^[ -~\t“”‘’–…\u00a0é]{0,12}$/);
  const ending = fc.constantFrom("\n", "\r\n");
  const file = fc
    .tuple(fc.array(fc.tuple(line, ending), { maxLength: 8 }), line)
    .map(([lines, last]) => lines.map(([text, end]) => text + end).join("") + last);

  it("changes nothing outside the place of an exact match", () => {
    fc.assert(
      fc.property(file, file, (before, after) => {
        const text = `${before}<<old>>${after}`;
        expect(replace(text, "<<old>>", "<<new>>").text).toBe(`${before}<<new>>${after}`);
      }),
    );
  });

  it("finds a block whatever its endings, and keeps every byte of the lines that stay", () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(line, ending), { minLength: 1, maxLength: 6 }),
        fc.nat(),
        file,
        (lines, pick, rest) => {
          const block = lines.map(([text], index) => `${index}:${text}`);
          const at = pick % block.length;
          const made = (texts: readonly string[]) =>
            texts.map((text, index) => text + (lines[index]?.[1] ?? "")).join("");
          const changed = block.map((text, index) => (index === at ? `${text}!` : text));
          const result = replace(made(block) + rest, block.join("\n"), changed.join("\n"));
          expect(result.text).toBe(made(changed) + rest);
        },
      ),
    );
  });

  it("keeps odd characters when plain ones are given", () => {
    const plain = (text: string) =>
      text
        .replaceAll(/[“”]/g, '"')
        .replaceAll(/[‘’]/g, "'")
        .replaceAll("–", "-")
        .replaceAll("…", "...")
        .replaceAll("\u00a0", " ");
    fc.assert(
      fc.property(line, line, (before, after) => {
        const text = `${before}KEY${after}\nother\n`;
        const old = plain(`${before}KEY${after}`);
        if (text.indexOf("KEY") !== text.lastIndexOf("KEY")) return;
        const now = old.replace("KEY", "NEW");
        expect(replace(text, old, now).text).toBe(`${before}NEW${after}\nother\n`);
      }),
    );
  });
});
