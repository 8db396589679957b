/**
 * Where else in a workspace git finds its hooks, its configuration and programs to run, as its own files say. Git itself
 * is not run.
 */
import { closeSync, constants, existsSync, fstatSync, lstatSync, openSync, readSync } from "node:fs";
import { dirname, isAbsolute, join, relative, resolve } from "node:path";
import { homeFolder } from "../../../src/folders.ts";

/** More is no configuration that somebody wrote. */
const MAX_BYTES = 1024 * 1024;
/** Files that one configuration takes in; git itself stops at a depth of ten. */
const MAX_FILES = 100;

/** Keys whose values git runs by itself, in whatever section. */
const COMMANDS = new Set([
  "fsmonitor",
  "sshcommand",
  "gitproxy",
  "askpass",
  "editor",
  "pager",
  "external",
  "command",
  "cmd",
  "textconv",
  "clean",
  "smudge",
  "process",
  "driver",
  "helper",
  "program",
  "difffilter",
  "packobjectshook",
  "uploadpack",
  "receivepack",
  "alternaterefscommand",
  "update",
]);

/** Names are relative to the workspace, and below it. */
export interface GitParts {
  /** `.git`, or the folder that a file of that name speaks of. */
  readonly folder: string;
  /** Where a linked worktree has its configuration and hooks; null where that is its own folder, or elsewhere. */
  readonly common: string | null;
  /** Folders of hooks, other than git's own. */
  readonly hooks: readonly string[];
  /** Files that the configuration takes in. */
  readonly includes: readonly string[];
  /** Files that are there and that git runs, or hands to what it runs. */
  readonly programs: readonly string[];
}

interface Setting {
  /** Lower case. */
  readonly key: string;
  readonly value: string;
}

export function readGitParts(workspace: string): GitParts {
  const named = /^gitdir:\s*(.+?)\s*$/m.exec(textOf(join(workspace, ".git")))?.[1];
  const folder = (named === undefined ? null : inside(workspace, resolve(workspace, named))) ?? ".git";
  const shared = textOf(join(workspace, folder, "commondir")).trim();
  const other = shared === "" ? null : inside(workspace, resolve(workspace, folder, shared));
  const common = other === folder ? null : other;
  const folders = common === null ? [folder] : [folder, common];
  const { settings, includes } = readAll(
    workspace,
    folders.flatMap((name) => ["config", "config.worktree"].map((file) => join(workspace, name, file))),
  );
  const hooks = settings
    .filter(({ key }) => key === "hookspath")
    // In a checkout hooks are looked for from its top.
    .flatMap(({ value }) => inside(workspace, pathOf(value, workspace)) ?? []);
  const programs = settings
    .filter(({ key }) => COMMANDS.has(key))
    .flatMap(({ value }) => value.replace(/^!/, "").split(/[\s"';&|()<>]+/))
    // A bare word is looked for in the search path, or is an argument.
    .filter((word) => /[/.]/.test(word))
    .flatMap((word) => inside(workspace, pathOf(word, workspace)) ?? [])
    .filter((name) => isFile(join(workspace, name)));
  return { folder, common, hooks, includes, programs };
}

/** What files of configuration say, with those that they take in and what these take in. */
function readAll(
  workspace: string,
  files: readonly string[],
): { readonly settings: readonly Setting[]; readonly includes: readonly string[] } {
  const settings: Setting[] = [];
  const includes = new Set<string>();
  const waiting = [...files];
  const seen = new Set<string>();
  for (let file = waiting.shift(); file !== undefined && seen.size < MAX_FILES; file = waiting.shift()) {
    if (seen.has(file)) continue;
    seen.add(file);
    for (const setting of settingsOf(textOf(file))) {
      settings.push(setting);
      if (setting.key !== "path") continue;
      const path = pathOf(setting.value, dirname(file));
      const name = inside(workspace, path);
      if (name !== null) includes.add(name);
      waiting.push(path);
    }
  }
  return { settings, includes: [...includes] };
}

/** Of whatever section: one part too many is read-only, no more. */
function settingsOf(text: string): Setting[] {
  const joined = text.replaceAll(/\\\r?\n/g, "");
  return [...joined.matchAll(/^(?:[ \t]*\[[^\n]*?\])?[ \t]*([A-Za-z][\w-]*)[ \t]*=[ \t]*(.*?)[ \t\r]*$/gm)]
    .map(([, key = "", value = ""]) => ({ key: key.toLowerCase(), value: plainValue(value) }))
    .filter(({ value }) => value !== "");
}

/** Without quotes, escapes and what follows a comment's sign outside of quotes. */
function plainValue(text: string): string {
  let value = "";
  let quoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const char = text.charAt(at);
    if (char === '"') quoted = !quoted;
    else if (char === "\\") {
      at += 1;
      value += ({ n: "\n", t: "\t", b: "\b" } as Record<string, string>)[text.charAt(at)] ?? text.charAt(at);
    } else if (!quoted && (char === "#" || char === ";")) break;
    else value += char;
  }
  return value.trim();
}

function pathOf(value: string, base: string): string {
  if (value === "~" || value.startsWith("~/")) return join(homeFolder(), value.slice(1));
  return isAbsolute(value) ? value : resolve(base, value);
}

/** A path below the workspace, relative to it; null for any other. */
export function inside(workspace: string, path: string): string | null {
  const name = relative(workspace, path);
  return name === "" || name === ".." || name.startsWith("../") ? null : name;
}

function isFile(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
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
