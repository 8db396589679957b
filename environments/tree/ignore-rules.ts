/** Which paths `.gitignore` files leave out, as git reads them: nested files, later and deeper rules first. */
import ignore, { type Ignore } from "ignore";
import type { EnvironmentTree, TreeEntry } from "../base.ts";
import { contentUpTo } from "./content.ts";
import { INDEX_FILE } from "./git-index.ts";
import { parentOf } from "./names.ts";

/** Names of files with rules. */
const IGNORE_FILE = ".gitignore";
/** Rules of one repository that are not part of it. */
export const EXCLUDE_FILE = ".git/info/exclude";
/** A longer file with ignore rules is none that a person wrote. */
const RULES_MAX_BYTES = 1024 * 1024;

/** Whether a path is one of a file with ignore rules. */
function hasRules(path: string): boolean {
  return path.endsWith(IGNORE_FILE)
    ? path === IGNORE_FILE || path.endsWith(`/${IGNORE_FILE}`)
    : path === EXCLUDE_FILE;
}

/** Whether what is at a path decides about which paths are left out. */
export function decidesIgnored(path: string): boolean {
  return hasRules(path) || path === INDEX_FILE;
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

export class IgnoreRules {
  /** By folder. */
  readonly #rules = new Map<string, Ignore>();
  readonly #folders = new Map<string, boolean>();
  /** What git tracks, which no rule leaves out, and the folders that it is in. */
  readonly #tracked = new Set<string>();

  /**
   * @param files contents of the files with rules, one character for each byte, by path
   * @param tracked paths that git tracks
   */
  constructor(files: ReadonlyMap<string, string>, tracked: readonly string[] = []) {
    for (const path of tracked) {
      this.#tracked.add(path);
      for (let at = parentOf(path); at !== "" && !this.#tracked.has(at); at = parentOf(at))
        this.#tracked.add(at);
    }
    const exclude = files.get(EXCLUDE_FILE);
    if (exclude !== undefined) this.#at("").add(rulesIn(exclude));
    for (const [path, text] of files) if (path !== EXCLUDE_FILE) this.#at(parentOf(path)).add(rulesIn(text));
  }

  /** Whether the path, or a folder that it is in, is left out. git's own folder never is. */
  ignores(path: string, isFolder: boolean): boolean {
    if (this.#rules.size === 0 || (path.includes(".git") && path.split("/").includes(".git"))) return false;
    return !this.#tracked.has(path) && this.#isNamed(path, isFolder);
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
      const rules = this.#rules.get(folder);
      const verdict =
        rules && ownVerdict(rules, folder === "" ? path : path.slice(folder.length + 1), isFolder);
      if (verdict !== undefined && verdict !== null) return verdict;
      if (folder === "") return false;
    }
  }

  #at(folder: string): Ignore {
    let rules = this.#rules.get(folder);
    if (!rules) {
      rules = ignore({ ignorecase: false, allowRelativePaths: true });
      this.#rules.set(folder, rules);
    }
    return rules;
  }
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
