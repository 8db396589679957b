import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { isMoorageError } from "../../src/errors.ts";
import { applyChunks } from "../../tools/patch-chunks.ts";
import type { LineEdit } from "../../tools/patch-lines.ts";
import { parseUnifiedDiff } from "../../tools/patch-unified.ts";
import { parseV4a } from "../../tools/patch-v4a.ts";

function apply(text: string, body: string): string {
  const [operation] = parseV4a(`*** Begin Patch\n*** Update File: f\n${body}\n*** End Patch`);
  if (operation?.kind !== "update") throw new TypeError("not an update");
  return applyChunks("f", text, operation.chunks, false).text;
}

function refusal(action: () => unknown): string {
  try {
    return `done: ${JSON.stringify(action())}`;
  } catch (error) {
    if (isMoorageError(error)) return `${error.code}: ${error.message}`;
    throw error;
  }
}

const wrap = (body: string) => `*** Begin Patch\n${body}\n*** End Patch\n`;

describe("parseV4a()", () => {
  it("reads every kind of operation", () => {
    const text = wrap(
      [
        "*** Add File: new.txt",
        "+one",
        "+",
        "*** Delete File:  gone.txt ",
        "*** Update File: a.py",
        "*** Move to: b.py",
        "@@ class A",
        " keep",
        "-old",
        "+new",
        "",
        "@@",
        "+tail",
        "*** End of File",
      ].join("\n"),
    );
    expect(parseV4a(text)).toEqual([
      { kind: "add", path: "new.txt", content: "one\n\n" },
      { kind: "delete", path: "gone.txt" },
      {
        kind: "update",
        path: "a.py",
        moveTo: "b.py",
        chunks: [
          {
            contexts: ["class A"],
            edits: [
              { kind: "keep", text: "keep" },
              { kind: "remove", text: "old" },
              { kind: "add", text: "new" },
            ],
            endOfFile: false,
          },
          { contexts: [], edits: [{ kind: "add", text: "tail" }], endOfFile: true },
        ],
      },
    ]);
  });

  it.each(["<<EOF\nX\nEOF\n", "<<'EOF'\nX\nEOF", '<<"EOF"\nX\nEOF\n', "\n\n  X\n\n"])(
    "takes off the wrapping of %j",
    (form) => {
      const text = form.replace("X", "*** Begin Patch  \n  *** Update File: f\n-a\n+b\n*** End Patch ");
      expect(parseV4a(text)).toHaveLength(1);
    },
  );

  it("drops the CR of a text that has it on every line (FT-11)", () => {
    const [operation] = parseV4a(wrap("*** Add File: f\n+a\n+b").replaceAll("\n", "\r\n"));
    expect(operation).toEqual({ kind: "add", path: "f", content: "a\nb\n" });
  });

  it.each([
    ["no operation (FT-16)", wrap("")],
    ["an empty path", wrap("*** Add File: \n+x")],
    ["an update without hunk", wrap("*** Update File: f")],
    ["a move without target", wrap("*** Update File: f\n*** Move to: \n@@\n-a\n+b")],
    ["no end", "*** Begin Patch\n*** Delete File: f\n"],
    ["no begin", "*** Delete File: f\n*** End Patch"],
    ["an unknown header", wrap("*** Rename File: f")],
    ["a line without a mark", wrap("*** Update File: f\n@@\nfoo")],
    ["an added file without lines", wrap("*** Add File: f")],
    ["an added line without a mark", wrap("*** Add File: f\n+a\nb")],
    ["a hunk without lines", wrap("*** Update File: f\n@@ x\n*** Delete File: g")],
    ["text after the end", `${wrap("*** Delete File: f")}more`],
    ["nothing", ""],
  ])("refuses %s", (_, text) => {
    expect(refusal(() => parseV4a(text))).toContain("PATCH_INVALID");
  });
});

describe("applyChunks()", () => {
  it.each([
    ["a change", "foo\nbar\n", "@@\n foo\n-bar\n+baz", "foo\nbaz\n"],
    ["a first chunk without @@", "foo\nbar\n", " foo\n-bar\n+baz", "foo\nbaz\n"],
    ["several chunks", "a\nb\nc\nd\n", "@@\n-a\n+A\n@@\n-d\n+D", "A\nb\nc\nD\n"],
    ["equal chunks, forward only", "a\nx\na\n", "@@\n-a\n+A\n@@\n-a\n+B", "A\nx\nB\n"],
    ["context after @@", "def a\n  x\ndef b\n  x\n", "@@ def b\n-  x\n+  y", "def a\n  x\ndef b\n  y\n"],
    ["nested context", "A\n f\n x\nB\n f\n x\n", "@@ B\n@@  f\n- x\n+ y", "A\n f\n x\nB\n f\n y\n"],
    ["an insertion after context", "def a\n  x\n", "@@ def a\n+  new", "def a\n  new\n  x\n"],
    ["an insertion at the end", "a\n", "@@\n+b", "a\nb\n"],
    ["a line added to an unterminated one (FT-07)", "a", " a\n+b", "a\nb"],
    ["the same in CRLF", "x\r\na", " a\n+b", "x\r\na\r\nb"],
    ["a file without final newline (FT-06)", "a\nb", "@@\n-a\n+A", "A\nb"],
    ["CRLF", "a\r\nb\r\nc\r\n", " a\n-b\n+B\n+D", "a\r\nB\r\nD\r\nc\r\n"],
    ["the end of the file first", "x\ny\nx\n", "@@\n-x\n+z\n*** End of File", "x\ny\nz\n"],
    ["a fallback from the end", "x\ny\n", "@@\n-x\n+z\n*** End of File", "z\ny\n"],
    ["blanks at line ends", "a  \nb\n", " a\n-b\n+c", "a  \nc\n"],
    ["another indentation", "\ta\n\tb\n", " a\n-b\n+c", "\ta\n\tc\n"],
    ["typographic context", "say “hi” – now\nb\n", ' say "hi" - now\n-b\n+c', "say “hi” – now\nc\n"],
    ["an empty line as context", "a\n\nb\n", " a\n\n-b\n+c", "a\n\nc\n"],
    ["removal of everything", "a\n", "-a", ""],
  ])("applies %s", (_, text, body, expected) => {
    expect(apply(text, body)).toBe(expected);
  });

  it("names file, hunk and first line of what does not match (FT-13)", () => {
    expect(refusal(() => apply("a\nb\n", "@@\n-a\n+A\n@@\n zzz\n-b\n+B"))).toBe(
      'PATCH_MISMATCH: Cannot patch "f": hunk 2, which begins "zzz": it does not match',
    );
  });

  it("refuses to flatten characters of a removed line, and tabs (FT-21, FT-22)", () => {
    expect(refusal(() => apply("x = “a”\n", '-x = "a"\n+y = "a"'))).toContain("PATCH_MISMATCH");
    expect(refusal(() => apply("all:\n\tcc\n", " all:\n-    cc\n+    dd"))).toContain("PATCH_MISMATCH");
  });

  const word = fc.stringMatching(/^[a-z ]{0,6}$/);
  it("rebuilds any edit from its patch, and leaves other lines as they are", () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.record({ text: word, edit: fc.constantFrom("keep", "remove", "change"), crlf: fc.boolean() }),
          { minLength: 1, maxLength: 12 },
        ),
        fc.boolean(),
        (lines, final) => {
          const edits: LineEdit[] = [];
          let before = "";
          let after = "";
          lines.forEach(({ text, edit, crlf }, index) => {
            const line = `${index} ${text}`;
            const end = index < lines.length - 1 || final ? (crlf ? "\r\n" : "\n") : "";
            before += line + end;
            if (edit === "keep") {
              after += line + end;
              edits.push({ kind: "keep", text: line });
            } else edits.push({ kind: "remove", text: line });
            if (edit === "change") {
              after += `${line}!${end}`;
              edits.push({ kind: "add", text: `${line}!` });
            }
          });
          const marks = { keep: " ", remove: "-", add: "+" };
          const body = edits.map(({ kind, text }) => marks[kind] + text).join("\n");
          const result = apply(before, `@@\n${body}`);
          expect(result.replaceAll("\r\n", "\n").replace(/\n$/, "")).toBe(
            after.replaceAll("\r\n", "\n").replace(/\n$/, ""),
          );
          if (lines.every(({ edit }) => edit !== "remove")) expect(result).toBe(after);
        },
      ),
    );
  });
});

describe("parseUnifiedDiff()", () => {
  const diff = (body: string) => `--- a/f\n+++ b/f\n${body}\n`;
  const applied = (text: string, body: string): string => {
    const [operation] = parseUnifiedDiff(diff(body));
    if (operation?.kind !== "update") throw new TypeError("not an update");
    return applyChunks("f", text, operation.chunks, true).text;
  };
  const long = Array.from({ length: 60 }, (_, index) => `line ${index + 1}`).join("\n");

  it("applies a hunk at its unique context, whatever its numbers (FT-19)", () => {
    const body = "@@ -10,3 +10,3 @@\n line 49\n-line 50\n+LINE 50\n line 51";
    expect(applied(long, body)).toBe(long.replace("line 50", "LINE 50"));
  });

  it("verifies deletions and refuses two places", () => {
    expect(refusal(() => applied(long, "@@ -10,2 +10,1 @@\n line 49\n-not there"))).toContain(
      "PATCH_MISMATCH",
    );
    expect(refusal(() => applied("a\nb\na\n", "@@ -9,1 +9,1 @@\n-a\n+c"))).toContain("PATCH_AMBIGUOUS");
    expect(applied("a\nb\na\n", "@@ -3,1 +3,1 @@\n-a\n+c")).toBe("a\nb\nc\n");
  });

  it("reads new, deleted and renamed files and wrong counts", () => {
    const text = [
      "diff --git a/n b/n\n--- /dev/null\n+++ b/n\n@@ -0,0 +1,9 @@\n+x\n+y",
      "--- a/d\n+++ /dev/null\n@@ -1 +0,0 @@\n-z",
      "--- a/o\n+++ b/p\n@@ -1,7 +1,2 @@\n q\n-r\n+s\n",
    ].join("\n");
    expect(parseUnifiedDiff(text)).toMatchObject([
      { kind: "add", path: "n", content: "x\ny\n" },
      { kind: "delete", path: "d", chunks: [{ edits: [{ kind: "remove", text: "z" }] }] },
      { kind: "update", path: "o", moveTo: "p" },
    ]);
  });
});
