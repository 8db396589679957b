import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, it } from "vitest";
import { IgnoreRules } from "../../../environments/tree/ignore-rules.ts";
import { bytesOf } from "../../../environments/tree/names.ts";

const MARK = "\ufeff";
/** Rules, and a path of a file that git leaves out by them, or does not. */
const CASES: readonly (readonly [rules: string, path: string, isIgnored: boolean])[] = [
  ["*.log\n!keep.log", "keep.log", false],
  [`${MARK}*.log`, "x.log", true],
  [`${MARK}# words\n*.log`, "x.log", true],
  ["*.log\r\n", "x.log", true],
  ["b  ", "b", true],
  ["b\\ ", "b ", true],
  ["b\t", "b", false],
  // git knows bytes alone: a letter beyond ASCII is two of them.
  ["?", "é", false],
  ["??", "é", true],
  ["à", "à", true],
  // The last byte of both is one that some take for a space.
  ["\u00a0", "\u00a0", true],
  ["b\u00a0", "b", false],
  ["b\u00a0", "b\u00a0", true],
  ["a/**/b", "a/x/y/b", true],
  ["**/a/b", "x/a/b", true],
  ["foo/**", "foo/a", true],
  ["a*/\n!a*/b", "ab/b", true],
  ["/a", "x/a", false],
  ["build/", "build", false],
  ["BUILD", "build", false],
  ["\\!n", "!n", true],
  ["\\#h", "#h", true],
  ["[!a]", "b", true],
  ["[[:alpha:]]", "b", true],
  ["a\\*b", "axb", false],
];

it.each(CASES)("IgnoreRules read %j as git does: %j", (rules, path, isIgnored) => {
  const read = new IgnoreRules(new Map([[".gitignore", bytesOf(rules)]]));
  expect(read.ignores(bytesOf(path), false)).toBe(isIgnored);
});

it("the cases are what git says itself", ({ skip }) => {
  if (spawnSync("git", ["--version"]).status !== 0) skip("git is not installed");
  const folder = mkdtempSync(join(tmpdir(), "moorage-ignore-"));
  try {
    execFileSync("git", ["init", "--quiet", folder]);
    for (const [rules, path, isIgnored] of CASES) {
      mkdirSync(join(folder, dirname(path)), { recursive: true });
      writeFileSync(join(folder, path), "");
      writeFileSync(join(folder, ".gitignore"), rules);
      const { status } = spawnSync("git", ["check-ignore", "-q", "--no-index", "--", `./${path}`], {
        cwd: folder,
      });
      expect({ rules, path, isIgnored: status === 0 }).toEqual({ rules, path, isIgnored });
      rmSync(join(folder, path.split("/")[0] ?? ""), { recursive: true });
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
