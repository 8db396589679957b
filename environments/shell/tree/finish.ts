/**
 * The scripts by which what is staged comes into place, folder by folder, so that a thousand files of one folder cost
 * one program, and a folder that is not there yet one rename. `$s` is the folder for staged files.
 */
import type { Owner, TreeChanges } from "../../base.ts";
import { byPath, foldersOn, parentOf } from "../../tree/names.ts";
import { quote } from "../quote.ts";

/** Words of one command line, bytes: well below what any kernel allows. */
export const LINE_BYTES = 64 * 1024;
/** How staged folders get into place. */
export interface FolderPlan {
  /** Folders that are meant to be there as they are staged, with all that is in them. */
  readonly whole: ReadonlySet<string>;
  /** Those of them that are in no other one. */
  readonly tops: readonly string[];
}

/**
 * Only folders that are made anew can be moved as a whole, and such as nothing is staged in that must not get into place.
 *
 * @param placed files and links that are staged
 * @param spoiled folders of what is staged and must stay there
 */
export function planFolders(
  placed: readonly string[],
  { folders = [] }: TreeChanges,
  spoiled: ReadonlySet<string>,
): FolderPlan {
  if (placed.length === 0) return { whole: new Set(), tops: [] };
  const made = new Set(folders.map(({ path }) => path));
  const staged = new Set(made);
  for (const path of placed)
    for (let folder = parentOf(path); folder !== "" && !staged.has(folder); folder = parentOf(folder))
      staged.add(folder);
  const whole = new Set([...made].filter((folder) => !spoiled.has(folder)));
  // From the deepest up: one that cannot be moved keeps those that it is in.
  for (const folder of [...staged].sort(byPath).reverse())
    if (!whole.has(folder)) whole.delete(parentOf(folder));
  return { whole, tops: [...whole].filter((folder) => !whole.has(parentOf(folder))).sort(byPath) };
}

/**
 * @param placed files and links that are staged
 * @param leftCode exit code of a script that ends since folders could not be moved as a whole
 * @returns the script to be run, and the one that does what is left when it ended with that code. The second is as long
 * as all names together and seldom needed, so it is made for who asks; of a few names it is part of the first.
 */
export function finishScripts(
  placed: readonly string[],
  { remove = [], folders = [], links = [], modes = [] }: TreeChanges,
  { whole, tops }: FolderPlan,
  leftCode: number,
): { readonly now: string; readonly rest: () => string } {
  // Those under a folder that is moved come with it.
  const underWhole = (path: string) => whole.has(parentOf(path));
  const made = folders.map(({ path }) => path);
  const isWhole = (path: string) => whole.has(path);
  const touched = [...new Set([...placed, ...made].map(parentOf))];
  const opened = new Set([...remove.map(parentOf), ...touched.filter((folder) => !isWhole(folder))]);
  const first = [
    // A folder that its owner may not write to is opened; its own mode is among what is set at the end.
    ...[...opened].sort(byPath).flatMap(openFolder),
    // rm leaves the folders; those then go from the deepest up, each only when it is empty.
    ...inFolders(remove, (folder, words) => `${noLink(folder)} && rm -f -- ${words}`).reverse(),
    ...inFolders(remove, (folder, words) => `${noLink(folder)} && rmdir -- ${words}`).reverse(),
    ...(tops.length === 0 ? [] : ["left="]),
    ...inFolders(tops, moveWhole),
  ];
  const singly = () => [
    ...touched.filter(isWhole).sort(byPath).flatMap(openFolder),
    ...inFolders([...whole].filter(underWhole), moveWhole),
    ...makeFolders(made.filter(isWhole)),
    ...moveAll(placed.filter(underWhole)),
    ...setModes(
      "d",
      folders.filter(({ path }) => whole.has(path)),
    ),
  ];
  const last = () => [
    ...makeFolders(made.filter((path) => !whole.has(path))),
    ...moveAll(placed.filter((path) => !underWhole(path))),
    // Before the modes: whose a program is no longer, it no longer runs as.
    ...setOwners("l", links),
    ...setOwners("d", folders),
    ...setOwners("any", modes),
    ...setModes(
      "d",
      folders.filter(({ path, mode }) => !whole.has(path) || !isStagedMode(mode)),
    ),
    ...setModes("any", modes),
  ];
  const areFew = placed.length + made.length <= FEW_PATHS;
  const ifLeft = () =>
    areFew ? [`if [ -n "$left" ]; then`, ...singly(), ":", "fi"] : [`[ -z "$left" ] || exit ${leftCode}`];
  const text = (lines: readonly string[]) => [...lines, ":", ""].join("\n");
  return {
    now: text([...first, ...(tops.length === 0 ? [] : ifLeft()), ...last()]),
    rest: () => text([...singly(), ...last()]),
  };
}

/** For so many a second request costs more than what it would save the first. */
const FEW_PATHS = 256;

/**
 * Whether a folder can be staged with its own mode: into others nothing more could be put, and they could not be
 * moved.
 */
export function isStagedMode(mode: number): boolean {
  return (mode & 0o700) === 0o700;
}

/** Moves folders that are not there yet: one rename for all that is in them. */
function moveWhole(parent: string, words: string): string {
  const target = parent === "" ? "./" : quote(`./${parent}/`);
  return `${noLink(parent)} && [ -d ${target} ] && {
set --
for d in ${words}; do if [ -d "$s/$d" ] && [ ! -e "$d" ] && [ ! -L "$d" ]; then set -- "$@" "$s/$d"; fi; done
[ $# -eq 0 ] || mv -- "$@" ${target}; }
for d in ${words}; do [ ! -d "$s/$d" ] || left=1; done`;
}

function makeFolders(paths: readonly string[]): string[] {
  return inFolders(paths, (folder, words) => `${noLink(folder)} && mkdir -p -- ${words}`);
}

/** @param kind what is given away: where an entry could not be made, what stands there stays whose it is */
function setOwners(
  kind: keyof typeof KIND_TESTS,
  entries: readonly { readonly path: string; readonly owner?: Owner }[],
): string[] {
  const owned = entries.flatMap(({ path, owner }) =>
    owner ? [{ path, word: `${owner.uid}:${owner.gid}` }] : [],
  );
  return [...Map.groupBy(owned, ({ word }) => word)].flatMap(([word, members]) =>
    inFolders(
      members.map(({ path }) => path),
      (folder, words) =>
        `${noLink(folder)} && find ${words} -maxdepth 0 ${KIND_TESTS[kind]} -exec chown -h ${word} {} +`,
    ),
  );
}

const KIND_TESTS = { l: "-type l", d: "-type d", any: "! -type l" } as const;

/**
 * From the deepest up, since a folder's own mode may close it.
 *
 * @param kind what has its mode set: where a folder could not be made, what stands there keeps its own
 */
function setModes(
  kind: "d" | "any",
  entries: readonly { readonly path: string; readonly mode: number }[],
): string[] {
  return [...Map.groupBy(entries, ({ mode }) => mode)]
    .flatMap(([mode, members]) => {
      // With five digits GNU chmod also clears a folder's set-group bit.
      const octal = mode.toString(8).padStart(5, "0");
      return inFolders(
        members.map(({ path }) => path),
        (folder, words) =>
          `${noLink(folder)} && find ${words} -maxdepth 0 ${KIND_TESTS[kind]} -exec chmod ${octal} {} +`,
      );
    })
    .reverse();
}

function openFolder(folder: string): string[] {
  if (folder === "") return [];
  const word = here(folder);
  return [
    `${noLink(folder)} && [ -d ${word} ] && { [ ! -w ${word} ] || [ ! -x ${word} ]; } && chmod u+rwx ${word}`,
  ];
}

/** Moves what is staged and not in place yet: with a program for each folder, or one for all where there is a perl. */
function moveAll(paths: readonly string[]): string[] {
  const byFolder = [...Map.groupBy(paths, parentOf)].sort(([a], [b]) => byPath(a, b));
  const lines = byFolder.flatMap(([folder, members]) => moveLines(folder, members));
  if (byFolder.length <= FEW_FOLDERS) return lines;
  const moves = batches(paths.map(quote)).map((words) => `perl -e "$move" "$s" ${words}`);
  return [
    "if command -v perl >/dev/null 2>&1; then",
    `unset PERL5OPT PERL5LIB; move=${quote(MOVE)}`,
    ...moves,
    "else",
    ...lines,
    "fi",
  ];
}

/** So many programs cost less than a perl. */
const FEW_FOLDERS = 3;

/** Renames each of the paths from the folder for staged files; through no link, and tells what it cannot. */
const MOVE = String.raw`my $s = shift;
PATH: for my $path (@ARGV) {
  next unless lstat "$s/$path";
  my ($at, @parts) = (".", split m{/}, $path);
  pop @parts;
  for (@parts) {
    $at .= "/$_";
    mkdir $at unless lstat $at;
    lstat $at;
    unless (-d _) { print STDERR "mv: $path: not a folder: $at\n"; next PATH }
  }
  rename("$s/$path", "./$path") or print STDERR "mv: $path: $!\n";
}`;

/** Moves staged files into one folder, unless that was moved itself; one program for as many as a line holds. */
function moveLines(folder: string, paths: readonly string[]): string[] {
  const target = folder === "" ? "." : here(folder);
  return batches(paths.map((path) => `"$s"/${quote(path)}`)).map(
    (words) =>
      `[ -d "$s"/${quote(folder)} ] && ${noLink(folder)} && { [ -d ${target} ] || mkdir -p ${target}; } && mv -f -- ${words} ${folder === "" ? "./" : quote(`./${folder}/`)}`,
  );
}

/** A test that no folder on the way is a link: nothing is done through one. */
function noLink(folder: string): string {
  if (folder === "") return ":";
  const tests = [...foldersOn(folder), folder].map((each) => `[ ! -L ${here(each)} ]`);
  return tests.join(" && ");
}

/** A line for as many paths of one folder as it holds, folder by folder, parents first. */
function inFolders(paths: readonly string[], line: (folder: string, words: string) => string): string[] {
  return [...Map.groupBy(paths, parentOf)]
    .sort(([a], [b]) => byPath(a, b))
    .flatMap(([folder, members]) => batches(members.map(here)).map((words) => line(folder, words)));
}

/** An entry as a word that is no option. */
export function here(path: string): string {
  return quote(`./${path}`);
}

/** Lines of as many words as one holds. */
export function batches(words: readonly string[]): string[] {
  return inBatches(words, (word) => word).map((line) => line.join(" "));
}

/** As many at once as one line holds the words of. */
export function inBatches<Item>(items: readonly Item[], wordOf: (item: Item) => string): Item[][] {
  const whole: Item[][] = [];
  let line: Item[] = [];
  let bytes = 0;
  for (const item of items) {
    const { length } = wordOf(item);
    if (bytes + length > LINE_BYTES && line.length > 0) {
      whole.push(line);
      line = [];
      bytes = 0;
    }
    line.push(item);
    bytes += length + 1;
  }
  return line.length === 0 ? whole : [...whole, line];
}
