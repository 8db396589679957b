/**
 * `TreeWriter` inside an environment. Contents go into a folder of our own inside the root, as archives of what that
 * folder is to hold; one script then moves everything in place, folder by folder, so that a thousand files of one
 * folder cost one program.
 */
import { randomBytes } from "node:crypto";
import { isMoorageError, MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { EnvironmentTree, TreeChanges, TreeOutcome, TreeWriter } from "../base.ts";
import { judgeOutcome, requireInside } from "../tree/host-writer.ts";
import { byPath, foldersOn, OUR_PREFIX, parentOf } from "../tree/names.ts";
import { TarBatch } from "../tree/tar.ts";
import { quote } from "./quote.ts";
import type { SystemShell } from "./stream.ts";
import { enterRoot, rootError } from "./tree-run.ts";

type Staged = Parameters<TreeWriter["stage"]>[0];

/** Contents of small files that are sent while the next ones are read, bytes. */
const SEND_BYTES = 1024 * 1024;
/** Words of one command line, bytes: well below what any kernel allows. */
const LINE_BYTES = 64 * 1024;
const STAGE_PREFIX = `${OUR_PREFIX}stage-`;

export class ShellWriter implements TreeWriter {
  readonly #system: SystemShell;
  readonly #root: string;
  readonly #scan: EnvironmentTree["scan"];
  readonly #stage = `${STAGE_PREFIX}${randomBytes(8).toString("hex")}`;
  readonly #files = new Map<string, Staged>();
  #begun = false;
  #ended = false;
  readonly #batch = new TarBatch();
  /** Folders with something staged that must not get into place. */
  readonly #spoiled = new Set<string>();
  #sending: Promise<void> = Promise.resolve();

  constructor(system: SystemShell, root: string, scan: EnvironmentTree["scan"]) {
    this.#system = system;
    this.#root = root;
    this.#scan = scan;
  }

  async stage(file: Staged, content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    if (this.#ended) throw new TypeError("The writer has ended");
    requireInside(file.path);
    try {
      if (file.size > limits.treeBatchBytes) await this.#stageLarge(file, content);
      else await this.#stageSmall(file, content);
    } catch (error) {
      this.#spoil(file.path);
      throw error;
    }
    this.#files.set(file.path, file);
  }

  unstage(path: string): void {
    // Its content stays in the folder for staged files, and goes with it.
    this.#files.delete(path);
    this.#spoil(path);
  }

  async finish(changes: TreeChanges): Promise<TreeOutcome> {
    const { remove = [], folders = [], links = [], modes = [] } = changes;
    for (const list of [folders, links, modes]) for (const { path } of list) requireInside(path);
    remove.forEach(requireInside);
    try {
      for (const { path, target } of links) {
        this.#batch.add({ path, type: "symlink", size: 0, mode: 0o777, modifiedAt: 0, linkTarget: target });
        if (this.#batch.length > SEND_BYTES) await this.#send();
      }
      await this.#flush();
      const script = Buffer.from(this.#finishScript(changes), "latin1");
      const { exitCode, stderr } = await this.#system.run(
        `${this.#enter(true)}\ncat >"$s/.run" && . "./$s/.run"\nrm -rf -- "$s"`,
        { stdin: script, timeoutMs: limits.treeTimeoutMs },
      );
      if (exitCode !== 0) throw rootError(exitCode, "write", this.#root, stderr);
      this.#ended = true;
      const outcome = await judgeOutcome(
        this.#scan,
        this.#root,
        [...this.#files.values()],
        changes,
        new Map(),
      );
      return { ...outcome, failed: outcome.failed.map((each) => withReason(each, stderr)) };
    } finally {
      await this.discard();
    }
  }

  async discard(): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    if (!this.#begun) return;
    await Promise.allSettled([this.#sending]);
    try {
      await this.#system.run(`cd -P -- ${quote(this.#root)} && rm -rf -- ./${this.#stage}`);
    } catch (error) {
      // Where the place is gone so is what was staged, or the next writer removes it; what broke it is told already.
      if (!isMoorageError(error)) throw error;
    }
  }

  #spoil(path: string): void {
    for (const folder of foldersOn(path)) this.#spoiled.add(folder);
  }

  /** Goes to the root and sees to the folder for staged files; those that a dead writer left an hour ago go. */
  #enter(first: boolean): string {
    const sweep = `for d in ./${STAGE_PREFIX}*; do
  [ ! -e "$d" ] || find . -maxdepth 1 -name '${STAGE_PREFIX}*' -mmin +60 -exec rm -rf {} + 2>/dev/null
  break
done`;
    const make = first && !this.#begun ? `\n${sweep}\n( umask 077; exec mkdir "$s" ) || exit 92` : "";
    this.#begun = true;
    return `LC_ALL=C EXTRACT_UNSAFE_SYMLINKS=1; export LC_ALL EXTRACT_UNSAFE_SYMLINKS
${enterRoot(this.#root)}
s=${this.#stage}${make}`;
  }

  async #stageSmall(file: Staged, content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    const chunks: Uint8Array[] = [];
    // Waiting for what is there already costs more than a small file's bytes.
    if (Symbol.asyncIterator in content) for await (const chunk of content) chunks.push(chunk);
    else chunks.push(...content);
    checkSize(
      file,
      chunks.reduce((sum, { length }) => sum + length, 0),
    );
    const { path, size, mode, modifiedAt, owner } = file;
    this.#batch.add({ path, type: "file", size, mode, modifiedAt, ...owner }, chunks);
    if (this.#batch.length > SEND_BYTES) await this.#send();
  }

  /** A file that is too large for one request is put together from parts. */
  async #stageLarge(file: Staged, content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    await this.#flush();
    const target = `"$s"/${quote(file.path)}`;
    let part: Uint8Array[] = [];
    let partBytes = 0;
    let bytes = 0;
    const send = async (command: string) => {
      const script = Buffer.from(command, "latin1");
      // The script's own words may be no UTF-8, so it comes before the bytes that it reads; head would read too far.
      const { exitCode, stderr } = await this.#system.run(
        `${this.#enter(true)}\ndd bs=1 count=${script.length} of="$s/.run" 2>/dev/null && . "./$s/.run"`,
        { stdin: Buffer.concat([script, ...part]), timeoutMs: limits.treeTimeoutMs },
      );
      if (exitCode !== 0) throw rootError(exitCode, "write", this.#root, stderr);
      part = [];
      partBytes = 0;
    };
    const folder = parentOf(file.path);
    const make = `( umask 077; mkdir -p "$s"/${quote(folder)} ) && `;
    for await (const chunk of content) {
      part.push(chunk);
      partBytes += chunk.length;
      bytes += chunk.length;
      if (partBytes >= limits.treeBatchBytes) await send(`${make}cat >>${target}`);
    }
    checkSize(file, bytes);
    const own = file.owner
      ? `; [ "$(id -u)" != 0 ] || chown ${file.owner.uid}:${file.owner.gid} ${target}`
      : "";
    await send(
      `${make}cat >>${target}${own}; chmod ${file.mode.toString(8)} ${target} && touch -d @${file.modifiedAt} ${target}`,
    );
  }

  /** Sends what waits and comes back when it is there. */
  async #flush(): Promise<void> {
    await this.#send();
    await this.#sending;
  }

  /** Sends what waits, after what is on its way. A failure is told by the next call. */
  async #send(): Promise<void> {
    await this.#sending;
    if (this.#batch.length === 0) return;
    this.#sending = this.#unpack(this.#batch.take());
    // Whoever waits for it next is told.
    this.#sending.catch(() => undefined);
  }

  async #unpack(archive: Buffer): Promise<void> {
    const { exitCode, stderr } = await this.#system.run(
      `${this.#enter(true)}\ncommand -v tar >/dev/null 2>&1 || exit 93\numask 077; tar -x -p -f - -C "./$s"`,
      { stdin: archive, timeoutMs: limits.treeTimeoutMs },
    );
    if (exitCode === 0) return;
    if (/No space left|quota exceeded/.test(stderr)) {
      throw new MoorageError("STORAGE_FULL", `Cannot write into "${this.#root}": no space left`);
    }
    throw rootError(exitCode, "write", this.#root, stderr);
  }

  /** Its bytes are the names' own, so it is handed in as data and read by the shell. */
  #finishScript({ remove = [], folders = [], links = [], modes = [] }: TreeChanges): string {
    const placed = [...this.#files.values(), ...links].map(({ path }) => path);
    const made = folders.map(({ path }) => path);
    const touched = new Set([...placed, ...remove, ...made].map(parentOf));
    const kinds = [...folders, ...modes];
    return [
      // A folder that its owner may not write to is opened; its own mode is among what is set at the end.
      ...[...touched].sort(byPath).flatMap(openFolder),
      // rm leaves the folders; those then go from the deepest up, each only when it is empty.
      ...inFolders(remove, (folder, words) => `${noLink(folder)} && rm -f -- ${words}`).reverse(),
      ...inFolders(remove, (folder, words) => `${noLink(folder)} && rmdir -- ${words}`).reverse(),
      ...this.#wholeFolders(placed, new Set(made)),
      ...inFolders(made, (folder, words) => `${noLink(folder)} && mkdir -p -- ${words}`),
      ...moveAll(placed),
      ...[...Map.groupBy(kinds, ({ mode }) => mode)]
        .flatMap(([mode, entries]) => {
          // With five digits GNU chmod also clears a folder's set-group bit.
          const octal = mode.toString(8).padStart(5, "0");
          return inFolders(
            entries.map(({ path }) => path),
            (folder, words) =>
              `${noLink(folder)} && find ${words} -maxdepth 0 ! -type l -exec chmod ${octal} {} +`,
          );
        })
        .reverse(),
      ":",
      "",
    ].join("\n");
  }

  /**
   * Moves folders that are not there yet, parents first: one rename for all that is in them. Only such as get their
   * mode afterwards, and as everything in them is meant for.
   */
  #wholeFolders(placed: readonly string[], made: ReadonlySet<string>): string[] {
    const staged = [...new Set(placed.flatMap(foldersOn))].sort(byPath);
    const whole = new Set(staged.filter((folder) => made.has(folder) && !this.#spoiled.has(folder)));
    // From the deepest up: one that cannot be moved keeps those that it is in.
    for (const folder of [...staged].reverse()) if (!whole.has(folder)) whole.delete(parentOf(folder));
    return inFolders([...whole], (parent, words) => {
      const target = parent === "" ? "./" : quote(`./${parent}/`);
      return `${noLink(parent)} && [ -d ${target} ] && {
set --
for d in ${words}; do if [ -d "$s/$d" ] && [ ! -e "$d" ] && [ ! -L "$d" ]; then set -- "$@" "$s/$d"; fi; done
[ $# -eq 0 ] || mv -- "$@" ${target}; }`;
    });
  }
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

function here(path: string): string {
  return quote(`./${path}`);
}

function batches(words: readonly string[]): string[] {
  const whole: string[] = [];
  let line: string[] = [];
  let bytes = 0;
  for (const word of words) {
    if (bytes + word.length > LINE_BYTES) {
      whole.push(line.join(" "));
      line = [];
      bytes = 0;
    }
    line.push(word);
    bytes += word.length + 1;
  }
  return line.length === 0 ? whole : [...whole, line.join(" ")];
}

function checkSize({ path, size }: Staged, bytes: number): void {
  if (bytes === size) return;
  throw new MoorageError("FILE_CHANGED", `Cannot write "${path}": ${bytes} of ${size} bytes came`);
}

/** What a program said of the path, where it said something. */
function withReason(
  { path, reason }: { readonly path: string; readonly reason: string },
  stderr: string,
): { readonly path: string; readonly reason: string } {
  const name = Buffer.from(path.slice(path.lastIndexOf("/") + 1), "latin1").toString("utf8");
  const line = stderr.split("\n").find((each) => each.includes(name));
  return { path, reason: line === undefined ? reason : `${reason}: ${line.trim()}` };
}
