/**
 * Parts of a workspace that programs outside the sandbox act upon: git's hooks and configuration, and the settings of
 * editors and agents. They are read-only inside, also those that do not exist yet: an empty folder or file holds their
 * place, and goes when the sandbox stops.
 */
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { MoorageError } from "../../../src/errors.ts";
import { readGitParts } from "./git-parts.ts";
import { type Kind, kindOf } from "./kinds.ts";
import { linkedFiles } from "./linked-files.ts";
import { makePlaceholders, type Placeholder } from "./placeholders.ts";

/** Of git's own folder, held when they are missing. */
const GIT = ["hooks", "config"];
/**
 * What cannot be held by a folder, which git takes for a broken repository, with the content that says what is so without
 * it: by the first git would take its configuration from another folder, the second is more of it.
 */
const GIT_FILES = { commondir: ".\n", "config.worktree": "" };
/** Contents of files that hold a place. */
export const PLACEHOLDER_TEXTS: readonly string[] = Object.values(GIT_FILES);

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
  readonly hold?: Placeholder["hold"];
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
  /** Whether the workspace itself is read-only as a whole. */
  readonly readonly: boolean;
  /**
   * Makes the placeholders.
   *
   * @throws {MoorageError} ENVIRONMENT_UNAVAILABLE for the first that cannot be made
   */
  make(): void;
}

/** Of a workspace that is read-only anyway, and is to stay so. */
export const CLOSED_WHOLE: Protection = {
  argv: [],
  placeholders: [],
  held: [],
  closed: [],
  readonly: true,
  make: () => {},
};

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
    readonly: false,
    make: () => makePlaceholders(missing),
  };
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
function elsewhere(kind: (name: string) => Kind, name: string, hold: Placeholder["hold"]): readonly Part[] {
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
