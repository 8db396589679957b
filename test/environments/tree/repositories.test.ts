import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, realpathSync, rmSync, symlinkSync, unlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { rulesOf } from "../../../environments/sync/guards.ts";
import { excludesFileIn } from "../../../environments/tree/git-user-rules.ts";
import { createHostTree } from "../../../environments/tree/host.ts";
import { readRules, ruleFilesOf } from "../../../environments/tree/ignore-rules.ts";
import { HostRepositories } from "../../../environments/tree/repositories.ts";
import { write } from "./picture.ts";

const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-repositories-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));
const hasGit = spawnSync("git", ["--version"]).status === 0;

/** By git alone: no configuration of whoever runs the tests has a say. */
function git(folder: string, ...words: readonly string[]): string {
  const own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"];
  return execFileSync("git", ["-C", folder, ...own, ...words], {
    env: { PATH: process.env.PATH, HOME: join(base, "home") },
    encoding: "latin1",
    stdio: ["ignore", "pipe", "pipe"],
  });
}

async function keptIn(root: string): Promise<readonly string[]> {
  const tree = createHostTree();
  const { entries } = await tree.scan(root);
  const rules = rulesOf(
    await readRules(tree, root, ruleFilesOf(entries)),
    new HostRepositories(root),
    entries,
  );
  return entries
    .filter(({ path, kind }) => kind !== "directory" && !rules.ignores(path, false))
    .map(({ path }) => path)
    .filter((path) => !path.includes(".git/"));
}

/** What git itself tracks or would add, and the `.git` file that it never names. */
function namedByGit(root: string): readonly string[] {
  const names = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0");
  return [...new Set(names)].filter((name) => name !== "").sort();
}

describe.skipIf(!hasGit)(
  `repositories of this machine${hasGit ? "" : " (not tested: git is missing)"}`,
  () => {
    const main = join(base, "main");

    beforeAll(() => {
      vi.stubEnv("HOME", join(base, "home"));
      vi.stubEnv("XDG_CONFIG_HOME", undefined);
      write(join(main, ".gitignore"), "*.log\nbuild/\n");
      for (const path of [
        "t.log",
        "u.log",
        "build/kept",
        "build/gone",
        "pkg/app/dist/f",
        "pkg/app/s",
        "pkg/t.log",
      ])
        write(join(main, path), "1");
      write(join(main, "pkg/.gitignore"), "dist");
      git(base, "init", "--quiet", main);
      write(join(main, ".git/info/exclude"), "# words\nexcluded\n");
      git(main, "add", "--force", "t.log", "build/kept", "pkg/.gitignore", "pkg/t.log", ".gitignore");
      git(main, "commit", "--quiet", "-m", "1");
      return () => vi.unstubAllEnvs();
    });

    it("a worktree has the rules of its repository and an index of its own", async () => {
      const worktree = join(base, "worktree");
      git(main, "worktree", "add", "--quiet", worktree);
      for (const name of ["excluded", "new", "new.log", "build/new"]) write(join(worktree, name), "1");
      git(worktree, "rm", "--quiet", "--cached", "t.log");
      expect(await keptIn(worktree)).toEqual([".git", ...namedByGit(worktree)]);
      expect(await keptIn(worktree)).toEqual([
        ...[".git", ".gitignore", "build/kept", "new", "pkg/.gitignore", "pkg/t.log"],
      ]);
    });

    it("a folder of a repository has the rules around it, unless they name the folder itself", async () => {
      const folder = join(main, "pkg/app");
      write(join(folder, "excluded"), "1");
      write(join(folder, "x.log"), "1");
      expect(await keptIn(folder)).toEqual(namedByGit(folder));
      expect(await keptIn(folder)).toEqual(["s"]);
      expect(await keptIn(join(main, "build"))).toEqual(["gone", "kept"]);
      expect(await keptIn(join(main, "pkg"))).toEqual(namedByGit(join(main, "pkg")));
    });

    it("a repository within another has its own rules too, and keeps what it tracks", async () => {
      const outer = join(base, "outer");
      git(base, "init", "--quiet", outer);
      write(join(outer, ".gitignore"), "*.log\nleft-out/\n");
      for (const inner of ["inner", "left-out/inner"]) {
        const folder = join(outer, inner);
        for (const name of ["t.log", "u.log", "own", "plain"]) write(join(folder, name), "1");
        git(outer, "init", "--quiet", folder);
        write(join(folder, ".git/info/exclude"), "own\n");
        git(folder, "add", "--force", "t.log");
      }
      git(outer, "submodule", "--quiet", "add", main, "sub");
      write(join(outer, "sub/excluded-there"), "1");
      write(join(outer, ".git/modules/sub/info/exclude"), "excluded-there\n");
      expect((await keptIn(outer)).filter((path) => !path.startsWith("sub/"))).toEqual([
        ...[".gitignore", ".gitmodules", "inner/plain", "inner/t.log"],
      ]);
      const rest = (await keptIn(outer)).filter((path) => path.startsWith("sub/"));
      expect(rest).toEqual(["sub/.git", ...namedByGit(join(outer, "sub")).map((path) => `sub/${path}`)]);
      const { entries } = await createHostTree().scan(outer);
      const rules = rulesOf(new Map([[".gitignore", "left-out/"]]), new HostRepositories(outer), entries);
      expect(rules.ignores("left-out/inner/.git/config", false), "git's folder goes with its own").toBe(true);
      expect(rules.ignores("inner/.git/config", false)).toBe(false);
    });

    it("an index that is split lists what both parts of it do", async () => {
      const split = join(base, "split");
      git(base, "init", "--quiet", split);
      write(join(split, ".gitignore"), "*.x");
      const names = Array.from({ length: 150 }, (_, index) => `f${String(index).padStart(3, "0")}.x`);
      for (const name of names) write(join(split, name), "1");
      git(split, "add", "--force", ".");
      git(split, "update-index", "--split-index");
      git(split, "rm", "--quiet", "--cached", "f003.x", "f070.x", "f149.x");
      write(join(split, "f004.x"), "2");
      write(join(split, "g.x"), "1");
      git(split, "add", "--force", "f004.x", "g.x");
      const kept = await keptIn(split);
      expect(kept).toEqual(namedByGit(split));
      expect(kept).toHaveLength(150 - 3 + 2);
    });

    it("a person's own rules count in every repository, wherever their configuration puts them", async () => {
      const folder = join(base, "own");
      git(base, "init", "--quiet", folder);
      for (const name of ["a", "b", "c"]) write(join(folder, name), "1");
      write(join(base, "home/.config/git/ignore"), "a");
      expect(await keptIn(folder)).toEqual(["b", "c"]);
      expect(namedByGit(folder)).toEqual(["b", "c"]);
      write(
        join(base, "home/.gitconfig"),
        '[core]\n\texcludesFile = "~/rules" # mine\n[core "x"]\nexcludesfile=no\n',
      );
      write(join(base, "home/rules"), "b");
      expect(await keptIn(folder)).toEqual(["a", "c"]);
      expect(namedByGit(folder)).toEqual(["a", "c"]);
      const repositories = new HostRepositories(folder);
      rulesOf(new Map(), repositories, [{ path: ".git" }]);
      expect(repositories.isStale()).toBe(false);
      write(join(base, "home/rules"), "b\nc");
      expect(repositories.isStale()).toBe(true);
      for (const name of ["rules", ".gitconfig", ".config/git/ignore"]) unlinkSync(join(base, "home", name));
      expect(await keptIn(folder)).toEqual(["a", "b", "c"]);
    });

    it("a .gitignore that is a link, a folder or has no rules says nothing", async () => {
      const folder = join(base, "odd");
      git(base, "init", "--quiet", folder);
      write(join(folder, "rules"), "a\nb\n");
      for (const name of ["a", "b", "d/a", "d/.gitignore/b", "e/a"]) write(join(folder, name), "1");
      symlinkSync("rules", join(folder, ".gitignore"));
      write(join(folder, "e/.gitignore"), "\ufeff#\r\n\r\na\r\n!a");
      expect(await keptIn(folder)).toEqual(namedByGit(folder));
      expect(await keptIn(folder)).toHaveLength(8);
    });
  },
);

it.each([
  ["[core]\nexcludesFile = /a b ; c", "/a b"],
  ["[CORE] excludesfile = a\\\n/b", "a/b"],
  ['[core]\n  excludesFile = "a # b" ', "a # b"],
  ["[core]\nexcludesFile = a\n[other]\nexcludesFile = b", "a"],
  ["excludesFile = a", undefined],
])("excludesFileIn(%j)", (config, value) => {
  expect(excludesFileIn(config)).toBe(value);
});
