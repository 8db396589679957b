/** Which paths `.gitignore` files leave out, as git reads them: nested files, later and deeper rules first. */
import ignore, { type Ignore } from "ignore";
import type { EnvironmentTree, TreeEntry } from "../base.ts";
import { contentUpTo } from "./content.ts";
import { foldersOn, isUnder, parentOf } from "./names.ts";

/** Names of files with rules. */
export const IGNORE_FILE = ".gitignore";
/** Rules of one repository that are not part of it. */
export const EXCLUDE_FILE = ".git/info/exclude";
/** A longer file with ignore rules is none that a person wrote. */
export const RULES_MAX_BYTES = 1024 * 1024;

/** Whether a path is one of a file with ignore rules. */
export function hasRules(path: string): boolean {
  return path.endsWith(IGNORE_FILE)
    ? path === IGNORE_FILE || path.endsWith(`/${IGNORE_FILE}`)
    : path === EXCLUDE_FILE;
}

/** The entries that are files with rules, by path. */
export function ruleFilesOf(entries: readonly TreeEntry[]): readonly string[] {
  return entries
    .filter(({ path, kind, size }) => kind === "file" && size <= RULES_MAX_BYTES && hasRules(path))
    .map(({ path }) => path);
}

/** Texts of files with rules, by path. */
export async function readRules(
  tree: Pick<EnvironmentTree, "pack">,
  root: string,
  paths: readonly string[],
  options: { readonly timeoutMs?: number } = {},
): Promise<ReadonlyMap<string, string>> {
  const texts = new Map<string, string>();
  await tree.pack(
    root,
    paths,
    async ({ path, content }) => {
      const bytes = await contentUpTo(content, RULES_MAX_BYTES);
      if (bytes) texts.set(path, bytes.toString("latin1"));
    },
    options,
  );
  return texts;
}

/** What a repository in the tree has beside its `.gitignore` files. What is not asked for need not be read. */
export interface Repository {
  /** Where it is. */
  readonly folder: string;
  readonly readExclude: () => string;
  /** Paths that its index lists, relative to it. */
  readonly readTracked: () => readonly string[];
}

/** Rules from outside of the tree. */
export interface Surroundings {
  /** The tree's root, relative to the folder that all is relative to. */
  readonly path: string;
  /** Those that decide first come first. */
  readonly levels: readonly { readonly folder: string; readonly text: string }[];
  /** Paths that are tracked from outside, relative to the tree's root. */
  readonly readTracked: () => readonly string[];
}

export class IgnoreRules {
  /** By folder. */
  readonly #rules = new Map<string, Ignore>();
  /** Rules that are asked after those of the same folder's own file. */
  readonly #excludes = new Map<string, Ignore>();
  #around: { readonly path: string; readonly levels: readonly Level[] } | null = null;
  readonly #folders = new Map<string, boolean>();
  /** What git tracks, which no rule leaves out, and the folders that it is in. */
  readonly #tracked = new Set<string>();

  /**
   * @param files contents of the files with rules, one character for each byte, by path
   * @param repositories in the tree, in any order. @default none
   * @param around null where nothing around the tree says anything. @default null
   */
  constructor(
    files: ReadonlyMap<string, string>,
    repositories: readonly Repository[] = [],
    around: Surroundings | null = null,
  ) {
    const exclude = files.get(EXCLUDE_FILE);
    if (exclude !== undefined) this.#exclude("", exclude);
    for (const [path, text] of files)
      if (path !== EXCLUDE_FILE) this.#rules.set(parentOf(path), ignoreIn(text));
    if (around) this.#surround(around);
    const outerFirst = [...repositories].sort((a, b) => (a.folder < b.folder ? -1 : 1));
    for (const { folder, readExclude, readTracked } of outerFirst) {
      // Of one that is left out itself nothing is taken in again.
      if (folder !== "" && this.ignores(folder, true)) continue;
      this.#exclude(folder, readExclude());
      if (!this.#isEmpty) this.#track(folder, readTracked());
      this.#folders.clear();
    }
  }

  /** Whether the path, or a folder that it is in, is left out. git's own folder is only with the folder that it is in. */
  ignores(path: string, isFolder: boolean): boolean {
    if (this.#isEmpty) return false;
    const [git, name] = path.includes(".git")
      ? (/^(?:(.*?)\/)?(\.git)(?:\/|$)/.exec(path)?.slice(1) ?? [])
      : [];
    if (name !== undefined) return git !== undefined && this.ignores(git, true);
    return !this.#tracked.has(path) && this.#isNamed(path, isFolder);
  }

  get #isEmpty(): boolean {
    return this.#rules.size === 0 && this.#excludes.size === 0 && this.#around === null;
  }

  #exclude(folder: string, text: string): void {
    // Most of them hold nothing but git's own comment.
    if (text.split("\n").some((line) => /^[^#\r]/.test(line))) this.#excludes.set(folder, ignoreIn(text));
  }

  #track(folder: string, paths: readonly string[]): void {
    for (const each of paths) {
      const path = folder === "" ? each : `${folder}/${each}`;
      this.#tracked.add(path);
      for (let at = parentOf(path); at !== "" && !this.#tracked.has(at); at = parentOf(at))
        this.#tracked.add(at);
    }
  }

  #surround({ path, levels, readTracked }: Surroundings): void {
    const known = levels
      .filter(({ text }) => text !== "")
      .map(({ folder, text }) => ({ folder, rules: ignoreIn(text) }));
    if (known.length === 0) return;
    // Whoever asks for a folder that is left out means what is in it.
    const way = path === "" ? [] : [...foldersOn(path), path];
    if (way.some((folder) => verdictOf(known, folder, true))) return;
    this.#around = { path, levels: known };
    this.#track("", readTracked());
  }

  /** Whether the rules say so, whatever is tracked. */
  #isNamed(path: string, isFolder: boolean): boolean {
    if (!isFolder) return this.#judge(path, false);
    const known = this.#folders.get(path);
    if (known !== undefined) return known;
    const ignored = this.#judge(path, true);
    this.#folders.set(path, ignored);
    return ignored;
  }

  #judge(path: string, isFolder: boolean): boolean {
    const parent = parentOf(path);
    // What is in a folder that is left out cannot be taken in again.
    if (parent !== "" && this.#isNamed(parent, true)) return true;
    for (let folder = parent; ; folder = parentOf(folder)) {
      const inFolder = folder === "" ? path : path.slice(folder.length + 1);
      for (const rules of [this.#rules.get(folder), this.#excludes.get(folder)]) {
        const verdict = rules && ownVerdict(rules, inFolder, isFolder);
        if (verdict !== undefined && verdict !== null) return verdict;
      }
      if (folder === "") break;
    }
    if (!this.#around) return false;
    const { path: root, levels } = this.#around;
    return verdictOf(levels, root === "" ? path : `${root}/${path}`, isFolder) ?? false;
  }
}

interface Level {
  readonly folder: string;
  readonly rules: Ignore;
}

/** What the first level says that says something; null when none does. */
function verdictOf(levels: readonly Level[], path: string, isFolder: boolean): boolean | null {
  for (const { folder, rules } of levels) {
    if (!isUnder(path, folder)) continue;
    const verdict = ownVerdict(rules, folder === "" ? path : path.slice(folder.length + 1), isFolder);
    if (verdict !== null) return verdict;
  }
  return null;
}

function ignoreIn(text: string): Ignore {
  return ignore({ ignorecase: false, allowRelativePaths: true }).add(rulesIn(text));
}

/** What the rules say of the path itself; null when nothing, or only something of a folder that it is in. */
function ownVerdict(rules: Ignore, path: string, isFolder: boolean): boolean | null {
  const text = inBytes(path);
  const { ignored, unignored } = rules.test(isFolder ? `${text}/` : text);
  if (unignored) return false;
  if (!ignored) return null;
  const parent = parentOf(text);
  return parent !== "" && rules.test(`${parent}/`).ignored ? null : true;
}

/** UTF-8's mark at the beginning of a file, as bytes. */
const BYTE_ORDER_MARK = "\xef\xbb\xbf";

/** Rules as git reads them from a text: it knows bytes alone, and strips a mark, a line's carriage return and spaces. */
function rulesIn(text: string): readonly string[] {
  const body = text.startsWith(BYTE_ORDER_MARK) ? text.slice(BYTE_ORDER_MARK.length) : text;
  return body.split("\n").map((line) => inBytes(line.replace(/\r$/, "")));
}

/** Bytes beyond ASCII as characters that are nothing else: some would pass for spaces. */
function inBytes(text: string): string {
  return /[\x80-\xff]/.test(text)
    ? text.replaceAll(/[\x80-\xff]/g, (byte) => String.fromCharCode(PRIVATE + byte.charCodeAt(0)))
    : text;
}

/** Where Unicode has characters that are nobody's. */
const PRIVATE = 0xf000;
