import { statSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { contentHash } from "../../tools/content-hash.ts";
import { tool } from "../../tools/patch.ts";
import { createToolFixture, type ToolFixture } from "./tool-fixture.ts";

const patchText = (...lines: string[]) => ["*** Begin Patch", ...lines, "*** End Patch"].join("\n");

describe("patch", () => {
  let fixture: ToolFixture;
  beforeAll(async () => {
    fixture = await createToolFixture();
  });
  afterAll(() => fixture[Symbol.asyncDispose]());

  const replace = (path: string, old_string: string, new_string: string, replace_all = false) =>
    fixture.call(tool, { mode: "replace", path, old_string, new_string, replace_all });
  const apply = (...lines: string[]) => fixture.call(tool, { mode: "patch", patch: patchText(...lines) });
  const refused = async (args: object) => {
    const { code, message } = await fixture.refused(tool, tool.parameters.parse(args));
    return `${code}: ${message}`;
  };

  it("replaces a text and tells what changed", async () => {
    fixture.write("a.txt", "one\ntwo\n");
    expect(await replace("a.txt", "two", "2")).toEqual({
      files: [{ path: "a.txt", change: "updated", hash: contentHash(Buffer.from("one\n2\n")) }],
      replacements: 1,
      matched: "exact",
      diff: "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
    });
    expect(fixture.read("a.txt")).toBe("one\n2\n");
  });

  it("reports a match that is not exact", async () => {
    fixture.write("b.txt", "x  \ny\n");
    const result = await replace("b.txt", "x\ny", "x\nz");
    expect(result).toMatchObject({ matched: "trailing-whitespace" });
    expect(result.note).toContain("L1");
    expect(fixture.read("b.txt")).toBe("x  \nz\n");
  });

  it.each([
    ["a UTF-8 mark (FT-05)", Buffer.from("\ufeffx=1\n"), Buffer.from("\ufeffx=2\n")],
    ["UTF-16LE (FT-32)", Buffer.from("\ufeffx=1\r\n", "utf16le"), Buffer.from("\ufeffx=2\r\n", "utf16le")],
    [
      "UTF-16BE",
      Buffer.from("\ufeffx=1\n", "utf16le").swap16(),
      Buffer.from("\ufeffx=2\n", "utf16le").swap16(),
    ],
    ["Latin-1", Buffer.from("\xe9 x=1 \xff\n", "latin1"), Buffer.from("\xe9 x=2 \xff\n", "latin1")],
  ])("keeps %s in both modes", async (_, before, after) => {
    fixture.write("enc", before);
    await replace("enc", "x=1", "x=2");
    expect(fixture.bytes("enc").equals(after)).toBe(true);
    fixture.write("enc", before);
    if (_ === "Latin-1") return;
    await apply("*** Update File: enc", "@@", "-x=1", "+x=2");
    expect(fixture.bytes("enc").equals(after)).toBe(true);
  });

  it("holds to the rules of an empty old_string (FT-41)", async () => {
    fixture.write("zero", "");
    fixture.write("full", "x\n");
    await replace("zero", "", "first\n");
    expect(fixture.read("zero")).toBe("first\n");
    expect(await refused({ path: "full", old_string: "", new_string: "y" })).toContain("INVALID_ARGUMENTS");
    expect(await refused({ path: "full", old_string: " \n", new_string: "y" })).toContain(
      "INVALID_ARGUMENTS",
    );
    expect(await refused({ path: "full", old_string: "x", new_string: "x" })).toContain("INVALID_ARGUMENTS");
    expect(await refused({ path: "full", old_string: "x" })).toContain("needs new_string");
    expect(await refused({ mode: "patch" })).toContain("needs patch");
    fixture.write("crlf", "a\r\nb\r\n");
    expect(await refused({ path: "crlf", old_string: "a\r\nb", new_string: "a\nb" })).toContain(
      "no difference",
    );
  });

  it("names the path and the lines of what it refuses (FT-18)", async () => {
    fixture.write("v", "v = 1\nx\nv = 1\n");
    expect(await refused({ path: "v", old_string: "v = 1", new_string: "w" })).toBe(
      'PATCH_AMBIGUOUS: Cannot patch "v": old_string matches 2 places: L1, L3',
    );
    expect(await refused({ path: "none", old_string: "a", new_string: "b" })).toContain("FILE_MISSING");
    fixture.write("bin", Buffer.from("a\0b"));
    expect(await refused({ path: "bin", old_string: "a", new_string: "b" })).toContain("FILE_BINARY");
    fixture.sh("mkfifo pipe");
    expect(await refused({ path: "pipe", old_string: "a", new_string: "b" })).toContain("FILE_NOT_REGULAR");
    expect(await refused({ mode: "patch", patch: patchText("*** Update File: pipe", "-a", "+b") })).toContain(
      "FILE_NOT_REGULAR",
    );
  });

  it("keeps mode and links (FT-23, FT-25)", async () => {
    fixture.write("real.sh", "echo 1\n");
    fixture.sh("chmod 755 real.sh");
    symlinkSync("real.sh", join(fixture.workspace, "link.sh"));
    await replace("link.sh", "1", "2");
    await apply("*** Update File: link.sh", "@@", "-echo 2", "+echo 3");
    expect(fixture.read("real.sh")).toBe("echo 3\n");
    expect(fixture.sh("readlink link.sh").trim()).toBe("real.sh");
    expect(statSync(join(fixture.workspace, "real.sh")).mode & 0o777).toBe(0o755);
  });

  it("deletes and moves a link, not what it leads to", async () => {
    fixture.sh(
      "mkdir -p l/sub; cd l; echo real >real; ln -s real lnk; ln -s real gone; ln -s nowhere dead; ln -s sub dir",
    );
    const deleted = await apply(
      "*** Delete File: l/gone",
      "*** Delete File: l/dead",
      "*** Delete File: l/dir",
    );
    expect(deleted.files).toMatchObject([
      { change: "deleted" },
      { change: "deleted" },
      { change: "deleted" },
    ]);
    await apply("*** Update File: l/lnk", "*** Move to: l/moved");
    expect(fixture.sh("ls l; readlink l/moved; cat l/moved")).toBe("moved\nreal\nsub\nreal\nreal\n");
    await apply("*** Update File: l/moved", "*** Move to: l/again", "@@", "-real", "+new");
    expect(fixture.sh("ls l; readlink l/again; cat l/real")).toBe("again\nreal\nsub\nreal\nnew\n");
    const far = await apply("*** Update File: l/again", "*** Move to: l/sub/far");
    expect(far.note).toContain('still names "real"');
    expect(fixture.sh("ls l; readlink l/sub/far")).toBe("real\nsub\nreal\n");
  });

  it("puts a file where the same patch deleted a link", async () => {
    fixture.sh("mkdir m; cd m; echo real >real; ln -s real lnk");
    await apply(
      "*** Update File: m/lnk",
      "@@",
      "-real",
      "+changed",
      "*** Delete File: m/lnk",
      "*** Add File: m/../m/lnk",
      "+own",
    );
    expect(fixture.sh("cat m/real m/lnk; [ -L m/lnk ] || echo file")).toBe("changed\nown\nfile\n");
    fixture.sh("cd m; rm lnk; ln -s real lnk; echo x >other");
    const patch = patchText("*** Delete File: m/lnk", "*** Update File: m/other", "@@", "-y", "+z");
    expect(await refused({ mode: "patch", patch })).toContain("PATCH_MISMATCH");
    expect(fixture.sh("readlink m/lnk")).toBe("real\n");
  });

  it("adds, updates, moves and deletes in one patch", async () => {
    fixture.write("u.txt", "1\n2\n");
    fixture.write("d.txt", "gone\n");
    fixture.write("m.sh", "a\n");
    fixture.sh("chmod 750 m.sh");
    const result = await apply(
      "*** Add File: deep/n.txt",
      "+new",
      "*** Update File: u.txt",
      "@@",
      "-2",
      "+two",
      "*** Delete File: d.txt",
      "*** Update File: m.sh",
      "*** Move to: to/m.sh",
      "@@",
      "-a",
      "+b",
    );
    expect(result.files).toEqual([
      { path: "deep/n.txt", change: "added", hash: contentHash(Buffer.from("new\n")) },
      { path: "u.txt", change: "updated", hash: contentHash(Buffer.from("1\ntwo\n")) },
      { path: "d.txt", change: "deleted", hash: null },
      { path: "m.sh", change: "deleted", hash: null },
      { path: "to/m.sh", change: "moved", hash: contentHash(Buffer.from("b\n")), moved_from: "m.sh" },
    ]);
    expect(fixture.read("to/m.sh")).toBe("b\n");
    expect(statSync(join(fixture.workspace, "to/m.sh")).mode & 0o777).toBe(0o750);
    expect(fixture.sh("ls -A . to deep | grep moorage- || true")).toBe("");
    expect(String(result.diff)).toContain("+two");
  });

  it("refuses to add over a file, and to move onto one (FT-08, FT-10)", async () => {
    fixture.write("f", "f\n");
    fixture.write("g", "g\n");
    expect(await refused({ mode: "patch", patch: patchText("*** Add File: f", "+x") })).toBe(
      'FILE_EXISTS: Cannot add "f": it exists; use Update File to change it',
    );
    expect(
      await refused({
        mode: "patch",
        patch: patchText("*** Update File: f", "*** Move to: g", "@@", "-f", "+x"),
      }),
    ).toContain("FILE_EXISTS");
    expect([fixture.read("f"), fixture.read("g")]).toEqual(["f\n", "g\n"]);
  });

  it("judges each step by what those before it leave (FT-09, FT-10)", async () => {
    fixture.write("o", "old\n");
    await apply(
      "*** Delete File: o",
      "*** Add File: ./o",
      "+new",
      "*** Update File: o",
      "@@",
      "-new",
      "+newer",
    );
    expect(fixture.read("o")).toBe("newer\n");
    await apply(
      "*** Update File: o",
      "*** Move to: p",
      "@@",
      "-newer",
      "+x",
      "*** Update File: p",
      "@@",
      "-x",
      "+y",
    );
    expect(fixture.read("p")).toBe("y\n");
    await apply("*** Move File: p -> q", "*** Add File: p", "+again");
    expect([fixture.read("p"), fixture.read("q")]).toEqual(["again\n", "y\n"]);
    expect(
      await refused({
        mode: "patch",
        patch: patchText("*** Delete File: p", "*** Update File: p", "-again", "+x"),
      }),
    ).toContain("FILE_MISSING");
    expect(fixture.read("p")).toBe("again\n");
  });

  it("writes nothing when one hunk does not match (FT-13)", async () => {
    for (const name of ["x1", "x2", "x3"]) fixture.write(name, `${name}\n`);
    const update = (name: string, old: string) => [`*** Update File: ${name}`, "@@", `-${old}`, "+changed"];
    const patch = patchText(...update("x1", "x1"), ...update("x2", "nope"), ...update("x3", "x3"));
    expect(await refused({ mode: "patch", patch })).toBe(
      'PATCH_MISMATCH: Cannot patch "x2": hunk 1, which begins "nope": it does not match',
    );
    expect(["x1", "x2", "x3"].map((name) => fixture.read(name))).toEqual(["x1\n", "x2\n", "x3\n"]);
  });

  it("takes a unified diff (FT-19)", async () => {
    fixture.write("diffed", "a\nb\nc\n");
    await fixture.call(tool, {
      mode: "patch",
      patch: "--- a/diffed\n+++ b/diffed\n@@ -7,2 +7,2 @@\n a\n-b\n+B\n",
    });
    expect(fixture.read("diffed")).toBe("a\nB\nc\n");
  });

  it("names its files to the scheduler", () => {
    const paths = (args: object) => tool.paths?.(tool.parameters.parse(args));
    expect(paths({ path: "a", old_string: "x", new_string: "y" })).toEqual({ reads: ["a"], writes: ["a"] });
    const patch = patchText("*** Update File: a", "*** Move to: b", "-x", "+y", "*** Delete File: c");
    expect(paths({ mode: "patch", patch })?.writes).toEqual(["a", "b", "c"]);
    expect(paths({ mode: "patch", patch: "?" })).toEqual({ reads: [], writes: [] });
  });
});
