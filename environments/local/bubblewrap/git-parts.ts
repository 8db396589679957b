/** Where else in a workspace git finds its hooks and configuration, as its own files say. Git itself is not run. */
import { closeSync, constants, existsSync, fstatSync, openSync, readSync } from "node:fs";
import { join, relative, resolve } from "node:path";

/** More is no configuration that somebody wrote. */
const MAX_BYTES = 1024 * 1024;

/** Names are relative to the workspace, and below it. */
export interface GitParts {
  /** `.git`, or the folder that a file of that name speaks of. */
  readonly folder: string;
  /** Folders of hooks, other than git's own. */
  readonly hooks: readonly string[];
  /** Files that the configuration takes in. */
  readonly includes: readonly string[];
}

export function readGitParts(workspace: string): GitParts {
  const named = /^gitdir:\s*(.+?)\s*$/m.exec(textOf(join(workspace, ".git")))?.[1];
  const folder = (named === undefined ? null : inside(workspace, resolve(workspace, named))) ?? ".git";
  const configuration = ["config", "config.worktree"]
    .map((name) => textOf(join(workspace, folder, name)))
    .join("\n");
  const found = (key: string, base: string) =>
    valuesOf(configuration, key).flatMap((value) => inside(workspace, resolve(base, value)) ?? []);
  return {
    folder,
    // In a checkout hooks are looked for from its top.
    hooks: found("hookspath", workspace),
    includes: found("path", join(workspace, folder)),
  };
}

/** Of a key in whatever section: one too many is read-only, no more. */
function valuesOf(configuration: string, key: string): string[] {
  return [...configuration.matchAll(/^(?:[^#;\n]*\])?[ \t]*([A-Za-z][\w-]*)[ \t]*=[ \t]*(.*?)[ \t]*$/gm)]
    .filter(([, name = ""]) => name.toLowerCase() === key)
    .map(([, , value = ""]) => value.replace(/^"(.*)"$/, "$1").replace(/\s+[#;].*$/, ""))
    .filter((value) => value !== "" && !value.startsWith("~"));
}

function inside(workspace: string, path: string): string | null {
  const name = relative(workspace, path);
  return name === "" || name === ".." || name.startsWith("../") ? null : name;
}

/** What is no file, or cannot be read, names nothing; a pipe must not be waited for. */
function textOf(path: string): string {
  let descriptor: number;
  try {
    // Most workspaces have none of them, and an error takes longer than the question.
    if (!existsSync(path)) return "";
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  } catch {
    return "";
  }
  try {
    const stat = fstatSync(descriptor);
    if (!stat.isFile()) return "";
    const bytes = Buffer.alloc(Math.min(stat.size, MAX_BYTES));
    return bytes.toString("utf8", 0, readSync(descriptor, bytes));
  } finally {
    closeSync(descriptor);
  }
}
