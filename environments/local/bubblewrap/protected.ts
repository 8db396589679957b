/**
 * Parts of a workspace that programs outside the sandbox act upon: git's hooks and configuration, and the settings of
 * editors and agents. They are read-only inside, also those that do not exist yet: an empty folder or file holds their
 * place, and goes when the sandbox stops.
 */
import { lstatSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { readFile, rm, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { MoorageError } from "../../../src/errors.ts";
import { readGitParts } from "./git-parts.ts";
import { linkedFiles } from "./linked-files.ts";

/** Of git's own folder, held when they are missing. */
const GIT = ["hooks", "config"];
/**
 * What cannot be held by a folder, which git takes for a broken repository, with the content that says what is so without
 * it: by the first git would take its configuration from another folder, the second is more of it.
 */
const GIT_FILES = { commondir: ".\n", "config.worktree": "" };

/** Held when they are missing. */
const HELD = [
  ".vscode",
  ".idea",
  ".zed",
  ".claude",
  ".cursor",
  ".codex",
  ".gemini",
  ".windsurf",
  ".kiro",
  ".roo",
  ".opencode",
  ".mcp.json",
];
/** Read-only when there; as an empty folder they would disturb programs outside. */
const WHEN_THERE = [
  ".gitmodules",
  ".envrc",
  ".husky",
  ".devcontainer",
  "moorage.yaml",
  "opencode.json",
  ".continue",
  ".amazonq",
  ".aider.conf.yml",
];
/** Mercurial runs what these name, by themselves when they are there. */
const MERCURIAL = [".hg/hgrc", ".hg/hgrc-not-shared", ".hg/sharedpath"];

interface Part {
  /** Relative to the workspace. */
  readonly name: string;
  /** A folder with protected parts, which is a mount of its own so that it cannot be renamed away with them. */
  readonly writable?: boolean;
  /** What holds its place when it is missing: a file with this text, or a folder. @default nothing */
  readonly hold?: "folder" | { readonly text: string };
}

export interface Protection {
  /** Options of bwrap, after the workspace's own. */
  readonly argv: readonly string[];
  /** What is to be made to hold a place. */
  readonly placeholders: readonly string[];
  /** All parts that are held, those that were there included. */
  readonly held: readonly string[];
  /** Those of them that are read-only as a whole. */
  readonly closed: readonly string[];
  /**
   * Makes the placeholders. At once: each takes some 30 microseconds on a disk, other threads are waited for longer, and
   * bwrap for all of them.
   *
   * @throws the system's error of the first that cannot be made
   */
  make(): Promise<void>;
}

/**
 * Tells how everything is mounted, and what has to be made for it. At once: it is some fifty calls on the way of a start,
 * each of which takes microseconds, and longer to wait for.
 *
 * @param claimed placeholders that other sandboxes of this workspace hold
 * @throws {MoorageError} ENVIRONMENT_UNAVAILABLE when a protected part is a symbolic link, which cannot be held
 */
export function protect(workspace: string, claimed: ReadonlySet<string>): Protection {
  const kinds = new Map<string, Kind>();
  const kind = (name: string): Kind => {
    const known = kinds.get(name) ?? kindOf(join(workspace, name));
    kinds.set(name, known);
    return known;
  };
  const parts = partsOf(workspace, kind);
  for (const { name } of parts) if (kind(name) === "link") throw linkError(join(workspace, name));
  const argv: string[] = [];
  const missing: Placeholder[] = [];
  const held: string[] = [];
  /** Read-only as a whole. */
  const closed = new Set<string>();
  for (const { name, writable = false, hold } of parts) {
    const path = join(workspace, name);
    const isMissing = kind(name) === "missing";
    const parent = dirname(name);
    // What is read-only as a whole, or is no folder, needs nothing inside.
    if (ancestors(name).some((above) => closed.has(above))) continue;
    if (parent !== "." && kind(parent) !== "folder") continue;
    if (isMissing) {
      if (hold === undefined) continue;
      kinds.set(name, hold === "folder" ? "folder" : "other");
      missing.push({ path, hold });
    }
    const isFolder = kind(name) === "folder";
    const isHeld = isMissing || (claimed.has(path) && isFolder && readdirSync(path).length === 0);
    const open = writable && isFolder && !isHeld;
    if (!open) closed.add(name);
    held.push(path);
    argv.push(open ? "--bind" : "--ro-bind", path, path);
  }
  return {
    argv,
    placeholders: missing.map(({ path }) => path),
    held,
    closed: [...closed].map((name) => join(workspace, name)),
    make: async () => makePlaceholders(missing),
  };
}

interface Placeholder {
  readonly path: string;
  readonly hold: NonNullable<Part["hold"]>;
}

/** One that lies in another comes after it. */
function makePlaceholders(missing: readonly Placeholder[]): void {
  for (const { path, hold } of missing) {
    try {
      if (hold === "folder") mkdirSync(path);
      else writeFileSync(path, hold.text, { flag: "wx" });
    } catch (error) {
      // Another sandbox of this workspace, or somebody else, came first: what is there now is held as well.
      const isThere = error instanceof Error && "code" in error && error.code === "EEXIST";
      if (!isThere || kindOf(path) !== (hold === "folder" ? "folder" : "other")) throw error;
    }
  }
}

/** Each once, a folder before what is in it. */
function partsOf(workspace: string, kind: (name: string) => Kind): readonly Part[] {
  const { folder, common, hooks, includes, programs } = readGitParts(workspace);
  const rest: Part[] = [
    ...HELD.map((name) => ({ name, hold: "folder" as const })),
    ...WHEN_THERE.map((name) => ({ name })),
    ...(kind(".hg") === "folder" ? [opened(".hg"), ...MERCURIAL.map(heldEmpty)] : []),
  ];
  const repositories = common === null ? [folder] : [folder, common];
  const linked = [...HELD, ...WHEN_THERE, ...hooks, ...repositories.map((name) => join(name, "hooks"))]
    .filter((name) => kind(name) === "folder")
    .flatMap((name) => linkedFiles(workspace, name));
  const parts: Part[] = [
    ...(folder === ".git" ? [] : [{ name: ".git" }, ...ancestors(folder).map(opened)]),
    { name: folder, writable: true, hold: "folder" },
    ...(common === null ? [] : [...ancestors(common).map(opened), opened(common)]),
    ...repositories.flatMap((repository) => [
      ...GIT.map((name) => ({ name: join(repository, name), hold: "folder" as const })),
      ...Object.entries(GIT_FILES).map(([name, text]) => ({ name: join(repository, name), hold: { text } })),
    ]),
    // Before what lies elsewhere, which may lie in one of them.
    ...rest,
    ...hooks.flatMap((name) => elsewhere(kind, name, "folder")),
    ...[...includes, ...programs, ...linked].flatMap((name) => elsewhere(kind, name, { text: "" })),
  ];
  const own = new Map(parts.filter((part) => !isOpened(part)).map((part) => [part.name, part] as const));
  return parts
    .filter(({ name }, index) => parts.findIndex((part) => part.name === name) === index)
    .map((part) => (isOpened(part) ? (own.get(part.name) ?? part) : part));
}

function heldEmpty(name: string): Part {
  return { name, hold: { text: "" } };
}

/** Protected for what is in it alone. */
function opened(name: string): Part {
  return { name, writable: true };
}

function isOpened({ writable, hold }: Part): boolean {
  return writable === true && hold === undefined;
}

/** A part with the folders above it; where one of those is missing, that one is held. */
function elsewhere(
  kind: (name: string) => Kind,
  name: string,
  hold: NonNullable<Part["hold"]>,
): readonly Part[] {
  const above = ancestors(name);
  const missing = above.find((folder) => kind(folder) === "missing");
  if (missing === undefined) return [...above.map(opened), { name, hold }];
  return [...ancestors(missing).map(opened), { name: missing, hold: "folder" }];
}

/** `a` and `a/b` of `a/b/c`. */
function ancestors(name: string): string[] {
  const parts = name.split("/");
  return parts.slice(0, -1).map((_, index) => parts.slice(0, index + 1).join("/"));
}

/** In a folder that commands can write to, a link could be replaced by something else. */
function linkError(path: string): MoorageError {
  return new MoorageError(
    "ENVIRONMENT_UNAVAILABLE",
    `Cannot protect "${path}" in the sandbox: it is a symbolic link, which commands could replace`,
    { suggestion: `Put the real file or folder in the place of "${path}", or work in another folder.` },
  );
}

/** Removes placeholders, deepest first; one that somebody has filled stays. */
export async function removePlaceholders(paths: readonly string[]): Promise<void> {
  for (const path of [...paths].sort((a, b) => b.length - a.length)) {
    try {
      if (kindOf(path) === "folder") await rmdir(path);
      else if (Object.values(GIT_FILES).includes(await readFile(path, "utf8"))) await rm(path);
    } catch (error) {
      const code = error instanceof Error && "code" in error ? error.code : "";
      if (code !== "ENOENT" && code !== "ENOTEMPTY" && code !== "ENOTDIR") throw error;
    }
  }
}

type Kind = "missing" | "link" | "folder" | "other";

function kindOf(path: string): Kind {
  try {
    // Most are missing, and an error takes longer than the question.
    const stat = lstatSync(path, { throwIfNoEntry: false });
    if (stat === undefined) return "missing";
    return stat.isSymbolicLink() ? "link" : stat.isDirectory() ? "folder" : "other";
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOTDIR") return "missing";
    throw error;
  }
}
