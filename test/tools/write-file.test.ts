import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { contentHash } from "../../tools/content-hash.ts";
import { tool } from "../../tools/write-file.ts";
import { createToolFixture, type ToolFixture } from "./tool-fixture.ts";

describe("write_file", () => {
  let fixture: ToolFixture;
  beforeAll(async () => {
    fixture = await createToolFixture();
  });
  afterAll(() => fixture[Symbol.asyncDispose]());

  it("makes a file with its folders and shows it", async () => {
    const hash = contentHash(Buffer.from("one\n"));
    expect(await fixture.call(tool, { path: "a/b/new.txt", content: "one\n" })).toEqual({
      path: "a/b/new.txt",
      hash,
      created: true,
      bytes_written: 4,
      diff: "--- /dev/null\n+++ b/a/b/new.txt\n@@ -0,0 +1,1 @@\n+one\n",
      files: [{ path: "a/b/new.txt", change: "added", hash }],
    });
  });

  it("shows a name that would break its line in quotes, escaped once", async () => {
    const { diff } = await fixture.call(tool, { path: 'a\n"b.txt', content: "x\n" });
    expect(diff).toBe('--- /dev/null\n+++ "b/a\\n\\"b.txt"\n@@ -0,0 +1,1 @@\n+x\n');
  });

  it("shows what changed in a file that was there", async () => {
    fixture.write("old.txt", "a\nb\nc\n");
    const result = await fixture.call(tool, { path: "old.txt", content: "a\nB\nc\n" });
    expect(result).toMatchObject({
      created: false,
      diff: "--- a/old.txt\n+++ b/old.txt\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n",
    });
  });

  it.each(["a\nb\n", "a\r\nb\r\n", "no end", "", "“q” ‘s’ – …\u00a0", "\ufeffx", "\0"])(
    "writes %j exactly, whatever was there (FT-04, FT-20, FT-41)",
    async (content) => {
      fixture.write("exact", "x\r\ny\r\n");
      await fixture.call(tool, { path: "exact", content });
      expect(fixture.read("exact")).toBe(content);
    },
  );

  it("refuses when the file is not what was read", async () => {
    fixture.write("cas", "mine");
    const expected_hash = contentHash(Buffer.from("other"));
    expect((await fixture.refused(tool, { path: "cas", content: "x", expected_hash })).code).toBe(
      "FILE_CHANGED",
    );
    expect(fixture.read("cas")).toBe("mine");
    await fixture.call(tool, { path: "cas", content: "x", expected_hash: contentHash(Buffer.from("mine")) });
    expect(fixture.read("cas")).toBe("x");
  });

  it("bounds the difference it shows", async () => {
    fixture.write("big.txt", "old line\n".repeat(5_000));
    const result = await fixture.call(tool, { path: "big.txt", content: "new line\n".repeat(5_000) });
    expect(result.diff).toMatch(/^--- a\/big.txt\n\+\+\+ b\/big.txt\n@@ -1,5000 \+1,5000 @@\n-old line\n/);
    expect(String(result.diff).length).toBeLessThan(13_000);
    fixture.write("bin", Buffer.alloc(10));
    const binary = await fixture.call(tool, { path: "bin", content: "text" });
    expect(binary.diff).toBeUndefined();
    expect(binary.note).toContain("binary");
  });
});
