import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { tool } from "../../tools/search-files.ts";
import { slowUnless } from "../slow.ts";
import { createToolFixture, type ToolFixture } from "./tool-fixture.ts";

/** Folders of programs: everything, everything but ripgrep, and BusyBox alone. */
function programs(scratch: string): Record<string, string | null> {
  const plain = join(scratch, "plain");
  const busybox = join(scratch, "busybox");
  const sh = `mkdir ${plain} ${busybox}
for f in /usr/bin/* /bin/*; do n=\${f##*/}; [ "$n" = rg ] || ln -sf "$f" ${plain}/"$n"; done
for n in $(busybox --list); do ln -sf /bin/busybox ${busybox}/"$n"; done`;
  execFileSync("/bin/bash", ["-c", sh]);
  return { ripgrep: null, "GNU grep": plain, BusyBox: busybox };
}

import { execFileSync } from "node:child_process";

const scratch = mkdtempSync(join(tmpdir(), "moorage-search-"));
const paths = programs(scratch);
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

for (const [name, path] of Object.entries(paths)) {
  describe(`search_files with ${name}`, slowUnless(name !== "BusyBox"), () => {
    let fixture: ToolFixture;
    beforeAll(async () => {
      fixture = await createToolFixture(path === null ? {} : { env: { PATH: path } });
    });
    afterAll(() => fixture[Symbol.asyncDispose]());

    it("gives path, line and text in order of path", async () => {
      fixture.write("order/b.txt", "one\nneedle two\n");
      fixture.write("order/a.txt", "needle\r\n");
      expect(await fixture.call(tool, { pattern: "need.e", path: "order" })).toEqual({
        matches: [
          { path: "order/a.txt", line: 1, text: "needle" },
          { path: "order/b.txt", line: 2, text: "needle two" },
        ],
        total: 2,
        truncated: false,
      });
    });

    it("says that matches may be missing when the search was killed", async () => {
      const wrappers = mkdtempSync(join(scratch, "killed-"));
      // The shell of BusyBox runs its own grep whatever PATH says, so another stands in that knows as little.
      const folders = name === "BusyBox" ? (paths["GNU grep"] ?? "") : (path ?? process.env.PATH ?? "");
      const unknown = name === "BusyBox" ? "*--null*) exit 2 ;;" : "";
      for (const program of path === null ? ["rg"] : ["grep"]) {
        const real = execFileSync("/bin/sh", ["-c", `command -v ${program}`], {
          env: { PATH: folders },
          encoding: "utf8",
        });
        const script = `#!/bin/sh\ncase "$*" in ${unknown} *"-- ./killed" | *killed/a*) kill -KILL $$ ;; esac\nexec ${real.trim()} "$@"\n`;
        writeFileSync(join(wrappers, program), script, { mode: 0o755 });
      }
      await using place = await createToolFixture({ env: { PATH: `${wrappers}:${folders}` } });
      place.write("killed/a", "needle\n");
      place.write("killed/b", "needle\n");
      const found = await place.call(tool, { pattern: "needle", path: "killed" });
      expect(found).toMatchObject({ truncated: true, note: expect.stringMatching(/may be missing.*killed/) });
      // Where each file is looked at by itself, the others are found.
      if (name === "BusyBox") expect(found.matches).toEqual([{ path: "killed/b", line: 1, text: "needle" }]);
    });

    it.each(["- [ ]", "->", "-77", "--pdf-engine", "-e", "foo(", "a.b*c[", "$x", "C++", "\\", "'", '"'])(
      "finds %j as it is written (FT-36)",
      async (pattern) => {
        fixture.write("dash/notes.md", `before\nx ${pattern} y\nafter\n`);
        const found = await fixture.call(tool, { pattern, path: "dash" });
        expect(found.matches).toEqual([{ path: "dash/notes.md", line: 2, text: `x ${pattern} y` }]);
      },
    );

    it("says which part of a pattern the engine does not know", async () => {
      fixture.write("around/a.txt", "abc\n");
      await expect(fixture.call(tool, { pattern: "(?<=a)b", path: "around" })).rejects.toMatchObject({
        code: "INVALID_ARGUMENTS",
        message: expect.stringMatching(
          /here \(look-around, .*\), and nothing holds it as plain text$|no group/,
        ),
      });
    });

    it("passes over case for (?i), at the start of the pattern", async () => {
      fixture.write("case/a.txt", "NeeDle\nother\n");
      const found = await fixture.call(tool, { pattern: "(?i)needle", path: "case" });
      expect(found.matches).toEqual([{ path: "case/a.txt", line: 1, text: "NeeDle" }]);
      expect((await fixture.call(tool, { pattern: "needle", path: "case" })).total).toBe(0);
    });

    it.each(["nee(?=dle)", "(?<!x)needle", "(?m)^needle"])("says when it cannot read %s", async (pattern) => {
      fixture.write("group/a.txt", "needle\n");
      const asked = tool.parameters.parse({ pattern, path: "group" });
      if (path === null && pattern.startsWith("(?m)")) {
        expect((await fixture.call(tool, asked)).total).toBe(1);
        return;
      }
      expect((await fixture.refused(tool, asked)).code).toBe("INVALID_ARGUMENTS");
    });

    it("reads an escaped or bracketed parenthesis before a question mark as text", async () => {
      fixture.write("paren/a.txt", "f(?x)\n");
      for (const pattern of ["f\\(?", "[(?=]x", "f[(?]"]) {
        expect((await fixture.call(tool, { pattern, path: "paren" })).total, pattern).toBe(1);
      }
    });

    it("does not show the lines of a binary file", async () => {
      fixture.write("bin/b.bin", Buffer.from("\0\x01needle\n\0"));
      fixture.write("bin/t.txt", "needle\n");
      const found = await fixture.call(tool, { pattern: "needle", path: "bin" });
      expect(found.matches).toEqual([{ path: "bin/t.txt", line: 1, text: "needle" }]);
    });

    it("tells path, line and text apart whatever a name looks like (FT-37)", async () => {
      fixture.write("names/d:1:x/f:2:g.txt", "release-2026-final\nNEEDLE 1:2\n3-4-5\n");
      fixture.write("names/gpt-4-config.py", "NEEDLE\n");
      fixture.write("names/notes-12-name.txt", "release-2026-final\nNEEDLE\n");
      fixture.write("names/-n", "NEEDLE\n");
      fixture.write("names/new\nline", "NEEDLE\n");
      const found = await fixture.call(tool, { pattern: "NEEDLE", path: "names", context: 1 });
      expect(new Set(found.matches as unknown[])).toEqual(
        new Set([
          { path: "names/-n", line: 1, text: "NEEDLE" },
          {
            path: "names/d:1:x/f:2:g.txt",
            line: 2,
            text: "NEEDLE 1:2",
            before: [{ line: 1, text: "release-2026-final" }],
            after: [{ line: 3, text: "3-4-5" }],
          },
          { path: "names/gpt-4-config.py", line: 1, text: "NEEDLE" },
          { path: "names/new\nline", line: 1, text: "NEEDLE" },
          {
            path: "names/notes-12-name.txt",
            line: 2,
            text: "NEEDLE",
            before: [{ line: 1, text: "release-2026-final" }],
          },
        ]),
      );
    });

    it("passes pipes, sockets and link loops in a tree (FT-31)", async () => {
      fixture.write("odd/a.txt", "xyz\n");
      fixture.sh("mkfifo odd/pipe; ln -s . odd/loop; ln -s /dev/zero odd/zero");
      const started = performance.now();
      const found = await fixture.call(tool, { pattern: "xyz", path: "odd" });
      expect(found.matches).toEqual([{ path: "odd/a.txt", line: 1, text: "xyz" }]);
      expect(performance.now() - started).toBeLessThan(5_000);
    });

    it("searches ignored and hidden folders that are named, or when nothing else matches (FT-38)", async () => {
      fixture.sh("mkdir -p repo && cd repo && git init -q . && printf 'venv/\\n' >.gitignore");
      fixture.write("repo/venv/lib.py", "IGNORED\n");
      fixture.write("repo/.github/ci.yml", "HIDDEN\n");
      const hit = async (pattern: string, where: string) =>
        (await fixture.call(tool, { pattern, path: where })).matches;
      expect(await hit("IGNORED", "repo/venv")).toEqual([
        { path: "repo/venv/lib.py", line: 1, text: "IGNORED" },
      ]);
      expect(await hit("IGNORED", "repo")).toEqual([{ path: "repo/venv/lib.py", line: 1, text: "IGNORED" }]);
      expect(await hit("HIDDEN", "repo/.github/")).toHaveLength(1);
      expect(await hit("HIDDEN", "repo")).toHaveLength(1);
    });

    it("finds files by glob (FT-39)", async () => {
      for (const name of ["readme.md", "a1.ts", "b2.ts", "c3.ts", "deep/er/x", "deep/y.md", ".hid.md"]) {
        fixture.write(`globs/${name}`, "");
      }
      const files = async (pattern: string) =>
        (await fixture.call(tool, { target: "files", pattern, path: "globs" })).files;
      expect(await files("[ab]*.ts")).toEqual(["globs/a1.ts", "globs/b2.ts"]);
      expect(await files("**/x")).toEqual(["globs/deep/er/x"]);
      expect(await files("deep/*.md")).toEqual(["globs/deep/y.md"]);
      expect(await files("*.{ts,none}")).toEqual(["globs/a1.ts", "globs/b2.ts", "globs/c3.ts"]);
      expect(await files("*.md")).toEqual(expect.arrayContaining(["globs/readme.md", "globs/deep/y.md"]));
      expect(await files("readm")).toEqual(["globs/readme.md"]);
    });

    it("limits contents to names that fit file_glob", async () => {
      fixture.write("by-name/a.py", "word\n");
      fixture.write("by-name/src/b.py", "word\n");
      fixture.write("by-name/a.js", "word\n");
      const paths = async (file_glob: string) =>
        (await fixture.call(tool, { pattern: "word", path: "by-name", file_glob, output_mode: "files_only" }))
          .files;
      expect(await paths("*.py")).toEqual(expect.arrayContaining(["by-name/a.py", "by-name/src/b.py"]));
      expect(await paths("src/*.py")).toEqual(["by-name/src/b.py"]);
      expect(await paths("*.{js,ts}")).toEqual(["by-name/a.js"]);
    });

    it("pages through matches and counts them all", async () => {
      fixture.write("pages/a.txt", "hit\n".repeat(30));
      fixture.write("pages/b.txt", "hit\n".repeat(12));
      const page = await fixture.call(tool, { pattern: "hit", path: "pages", limit: 10, offset: 5 });
      expect([page.total, page.truncated, page.next_offset]).toEqual([42, true, 15]);
      expect((page.matches as { line: number }[]).map(({ line }) => line)).toHaveLength(10);
      const counted = await fixture.call(tool, { pattern: "hit", path: "pages", output_mode: "count" });
      expect(new Set(counted.counts as unknown[])).toEqual(
        new Set([
          { path: "pages/a.txt", count: 30 },
          { path: "pages/b.txt", count: 12 },
        ]),
      );
    });

    it("shows the part of a long line that matches (FT-33)", async () => {
      fixture.write("min/min.js", `${"a".repeat(2_500_000)}NEEDLE${"b".repeat(2_500_000)}\n`);
      const found = await fixture.call(tool, { pattern: "NEEDLE", path: "min" });
      const [match] = found.matches as { text: string }[];
      expect(match?.text).toContain("NEEDLE");
      expect(match?.text.length).toBeLessThan(700);
    });

    it("tells a missing path, a special file and a pattern of two lines", async () => {
      fixture.sh("mkdir -p special; mkfifo special/p");
      expect((await fixture.refused(tool, { pattern: "x", path: "nowhere" })).code).toBe("FILE_MISSING");
      expect((await fixture.refused(tool, { pattern: "x", path: "special/p" })).code).toBe(
        "FILE_NOT_REGULAR",
      );
      expect((await fixture.refused(tool, { pattern: "x", path: "/dev/zero" })).code).toBe(
        "FILE_NOT_REGULAR",
      );
      expect((await fixture.refused(tool, { pattern: "a\nb" })).code).toBe("INVALID_ARGUMENTS");
      expect((await fixture.refused(tool, { pattern: "((((", path: "special" })).code).toBe(
        "INVALID_ARGUMENTS",
      );
    });

    it("searches one file, a linked folder and a name that begins with a dash", async () => {
      fixture.write("one/f.txt", "word\n");
      fixture.write("-dash/f.txt", "word\n");
      symlinkSync("one", join(fixture.workspace, "link"));
      const hits = async (where: string) =>
        (await fixture.call(tool, { pattern: "word", path: where })).matches;
      expect(await hits("one/f.txt")).toEqual([{ path: "one/f.txt", line: 1, text: "word" }]);
      expect(await hits("link")).toEqual([{ path: "link/f.txt", line: 1, text: "word" }]);
      expect(await hits("-dash")).toEqual([{ path: "-dash/f.txt", line: 1, text: "word" }]);
    });
  });
}
