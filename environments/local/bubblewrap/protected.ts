/**
 * Parts of a workspace that programs outside the sandbox act upon: git's hooks and configuration, and the settings of
 * editors and agents. They are read-only inside, also those that do not exist yet: an empty folder holds their place,
 * which git does not list, and which goes when the sandbox stops.
 */
import { lstatSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { readFile, rm, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { MoorageError } from "../../../src/errors.ts";

/** What is held when it is missing; a parent before its children. */
const HELD = [
  ".git",
  ".git/hooks",
  ".git/config",
  ".git/commondir",
  ".git/config.worktree",
  ".vscode",
  ".idea",
  ".claude",
  ".cursor",
  ".codex",
  ".gemini",
  ".mcp.json",
];
/**
 * What cannot be held by a folder, which git takes for a broken repository, with the content that says what is so without
 * it: by the first git would take its configuration from another folder, the second is more of it.
 */
const HELD_FILES: ReadonlyMap<string, string> = new Map([
  [".git/commondir", ".\n"],
  [".git/config.worktree", ""],
]);

/** Read-only when there; as an empty folder they would disturb programs outside. */
const WHEN_THERE = [".gitmodules", ".envrc", ".husky", ".devcontainer", "moorage.yaml"];

export interface Protection {
  /** Options of bwrap, after the workspace's own. */
  readonly argv: readonly string[];
  /** What was made to hold a place. */
  readonly placeholders: readonly string[];
  /** All parts that are held, those that were there included. */
  readonly held: readonly string[];
}

/**
 * Makes the placeholders and tells how everything is mounted. At once: it is some fifty calls on the way of a start,
 * each of which takes microseconds, and longer to wait for.
 *
 * @param claimed placeholders that other sandboxes of this workspace hold
 * @throws {MoorageError} ENVIRONMENT_UNAVAILABLE when a protected part is a symbolic link, which cannot be held
 */
export function protect(workspace: string, claimed: ReadonlySet<string>): Protection {
  for (const name of [...HELD, ...WHEN_THERE]) refuseLink(join(workspace, name));
  const argv: string[] = [];
  const placeholders: string[] = [];
  const held: string[] = [];
  const absent = new Set<string>();
  for (const name of [...HELD, ...WHEN_THERE]) {
    const path = join(workspace, name);
    const kind = kindOf(path);
    const parent = dirname(name);
    // What is read-only as a whole, or is no folder, needs nothing inside.
    if (parent !== "." && (absent.has(parent) || kindOf(join(workspace, parent)) !== "folder")) continue;
    if (kind === "missing") {
      if (!HELD.includes(name)) continue;
      const text = HELD_FILES.get(name);
      if (text === undefined) mkdirSync(path);
      else writeFileSync(path, text, { flag: "wx" });
      placeholders.push(path);
      absent.add(name);
    } else if (claimed.has(path) && kind === "folder" && readdirSync(path).length === 0) {
      absent.add(name);
    }
    // A folder with protected parts is a mount of its own, so that it cannot be renamed away with them.
    const writable = name === ".git" && kind === "folder" && !absent.has(name);
    held.push(path);
    argv.push(writable ? "--bind" : "--ro-bind", path, path);
  }
  return { argv, placeholders, held };
}

/** In a folder that commands can write to, a link could be replaced by something else. */
function refuseLink(path: string): void {
  if (kindOf(path) !== "link") return;
  throw new MoorageError(
    "ENVIRONMENT_UNAVAILABLE",
    `Cannot protect "${path}" in the sandbox: it is a symbolic link, which commands could replace`,
    { suggestion: `Put the real file or folder in the place of "${path}", or work in another folder.` },
  );
}

/** Removes placeholders, deepest first; one that somebody has filled stays. */
export async function removePlaceholders(paths: readonly string[]): Promise<void> {
  for (const path of [...paths].sort((a, b) => b.length - a.length)) {
    try {
      const [, text] = [...HELD_FILES].find(([name]) => path.endsWith(`/${name}`)) ?? [];
      if (text === undefined) await rmdir(path);
      else if ((await readFile(path, "utf8")) === text) await rm(path);
    } catch (error) {
      const code = error instanceof Error && "code" in error ? error.code : "";
      if (code !== "ENOENT" && code !== "ENOTEMPTY" && code !== "ENOTDIR") throw error;
    }
  }
}

function kindOf(path: string): "missing" | "link" | "folder" | "other" {
  try {
    const stat = lstatSync(path);
    return stat.isSymbolicLink() ? "link" : stat.isDirectory() ? "folder" : "other";
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : "";
    if (code === "ENOENT" || code === "ENOTDIR") return "missing";
    throw error;
  }
}
