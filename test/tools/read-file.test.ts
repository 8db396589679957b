import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { contentHash } from "../../tools/content-hash.ts";
import { tool } from "../../tools/read-file.ts";
import { createToolFixture, type ToolFixture } from "./tool-fixture.ts";

describe("read_file", () => {
  let fixture: ToolFixture;
  beforeAll(async () => {
    fixture = await createToolFixture();
  });
  afterAll(() => fixture[Symbol.asyncDispose]());

  it("numbers lines and gives the hash of the file", async () => {
    fixture.write("a.txt", "one\ntwo\r\n\n three");
    expect(await fixture.call(tool, { path: "a.txt" })).toEqual({
      content: "1|one\n2|two\n3|\n4| three",
      total_lines: 4,
      hash: contentHash(fixture.bytes("a.txt")),
      truncated: false,
    });
  });

  it("takes a range from either end and says how to go on", async () => {
    fixture.write("ten.txt", Array.from({ length: 10 }, (_, index) => `line ${index + 1}\n`).join(""));
    expect(await fixture.call(tool, { path: "ten.txt", offset: 3, limit: 2 })).toMatchObject({
      content: "3|line 3\n4|line 4",
      total_lines: 10,
      truncated: true,
      next_offset: 5,
      note: "Lines 3 to 4 of 10; go on with offset 5",
    });
    expect(await fixture.call(tool, { path: "ten.txt", offset: -2 })).toMatchObject({
      content: "9|line 9\n10|line 10",
      truncated: false,
    });
    expect(await fixture.call(tool, { path: "ten.txt", offset: 11 })).toMatchObject({
      content: "",
      truncated: false,
    });
    expect((await fixture.call(tool, { path: "ten.txt", offset: 11 })).note).toContain("10 lines");
  });

  it("shows an empty file as such (FT-41)", async () => {
    fixture.write("empty", "");
    expect(await fixture.call(tool, { path: "empty" })).toEqual({
      content: "(empty)",
      total_lines: 0,
      hash: contentHash(Buffer.alloc(0)),
      truncated: false,
    });
  });

  it("hides a byte order mark (FT-05)", async () => {
    fixture.write("bom", Buffer.from("\ufeffx=1\n"));
    expect(await fixture.call(tool, { path: "bom" })).toMatchObject({ content: "1|x=1" });
  });

  it.each([
    ["utf-16le", false],
    ["utf-16be", true],
  ])("decodes %s with a note (FT-32)", async (encoding, swap) => {
    const body = Buffer.from("\ufeffgrüße\r\nzwei\r\n", "utf16le");
    fixture.write("wide", swap ? body.swap16() : body);
    const result = await fixture.call(tool, { path: "wide" });
    expect(result).toMatchObject({ content: "1|grüße\n2|zwei", total_lines: 2, encoding });
    expect(result.note).toContain(encoding.toUpperCase());
    expect(await fixture.call(tool, { path: "wide", offset: 2 })).toMatchObject({ content: "2|zwei" });
  });

  it("decodes a large UTF-16 file from its middle", async () => {
    const text = Array.from({ length: 20_000 }, (_, index) => `Zeile ${index + 1}\n`).join("");
    fixture.write("wide-large", Buffer.from(`\ufeff${text}`, "utf16le"));
    expect(await fixture.call(tool, { path: "wide-large", offset: 15_000, limit: 1 })).toMatchObject({
      content: "15000|Zeile 15000",
      total_lines: 20_000,
    });
  });

  it("shows Latin-1 with a note and refuses binary files", async () => {
    fixture.write("latin1", Buffer.from("caf\xe9\n", "latin1"));
    expect(await fixture.call(tool, { path: "latin1" })).toMatchObject({
      content: "1|caf\ufffd",
      encoding: "unknown",
    });
    fixture.write("png", Buffer.from("89504e470d0a1a0a0000000d49484452", "hex"));
    expect((await fixture.refused(tool, { path: "png" })).code).toBe("FILE_BINARY");
    expect((await fixture.refused(tool, { path: "/bin/ls" })).code).toBe("FILE_BINARY");
  });

  it("bounds a line of 5 MB and says how to see more (FT-33)", async () => {
    fixture.write("minified.js", `${"x".repeat(5_000_000)}\nsecond\n`);
    const result = await fixture.call(tool, { path: "minified.js" });
    expect(String(result.content).length).toBeLessThan(2_200);
    expect(result).toMatchObject({ total_lines: 2, truncated: true, next_offset: 2 });
    expect(result.note).toContain("cut -c 2001-4000");
    expect(await fixture.call(tool, { path: "minified.js", offset: 2 })).toMatchObject({
      content: "2|second",
    });
    fixture.write("many-long.txt", `${"é".repeat(3_000)}\n`.repeat(50));
    const many = await fixture.call(tool, { path: "many-long.txt" });
    expect(Buffer.byteLength(String(many.content))).toBeLessThan(50_000);
    expect(String(many.content)).not.toContain("\ufffd");
  });

  it("fits the result whatever the lines are, and pages without a gap", async () => {
    const lines = Array.from({ length: 5_000 }, (_, index) => `${index} ${"y".repeat(index % 90)}`);
    fixture.write("pages.txt", lines.join("\n"));
    const seen: string[] = [];
    for (let offset: unknown = 1; typeof offset === "number"; ) {
      const page = await fixture.call(tool, { path: "pages.txt", offset });
      expect(Buffer.byteLength(String(page.content))).toBeLessThan(50_000);
      seen.push(...String(page.content).split("\n"));
      offset = page.next_offset;
    }
    expect(seen).toEqual(lines.map((line, index) => `${index + 1}|${line}`));
  });

  it("passes the errors of files on", async () => {
    fixture.sh("mkfifo pipe; mkdir folder");
    expect((await fixture.refused(tool, { path: "pipe" })).code).toBe("FILE_NOT_REGULAR");
    expect((await fixture.refused(tool, { path: "none" })).message).toBe(
      'Cannot read "none": no such file or directory',
    );
    expect((await fixture.refused(tool, { path: "folder" })).code).toBe("FILE_IS_DIRECTORY");
    expect((await fixture.refused(tool, { path: "out_0123456789abcdef" })).suggestion).toBe(
      'It is an id and no file: call process with action "log" and session_id "out_0123456789abcdef".',
    );
  });
});
