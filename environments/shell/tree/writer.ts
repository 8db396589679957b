/**
 * `TreeWriter` inside an environment. Contents go into a folder of our own inside the root, as archives of what that
 * folder is to hold, and everything is then moved in place. A few files are one request in all.
 */
import { randomBytes } from "node:crypto";
import { isMoorageError, MoorageError } from "../../../src/errors.ts";
import { limits } from "../../../src/limits.ts";
import type { EnvironmentTree, TreeChanges, TreeOutcome, TreeWriter } from "../../base.ts";
import { foldersOn, OUR_PREFIX, parentOf, STAGE_PREFIX } from "../../tree/names.ts";
import {
  changedSince,
  judgedPaths,
  judgeOutcome,
  requireAllInside,
  requireInside,
  type Staged,
  without,
} from "../../tree/outcome.ts";
import { TarBatch } from "../../tree/tar.ts";
import { quote } from "../quote.ts";
import type { SystemRunResult, SystemShell } from "../stream.ts";
import { type FolderPlan, finishScripts, isStagedMode, planFolders } from "./finish.ts";
import { enterRoot, rootError } from "./run.ts";
import { expectationScript, type Telling, telling } from "./told.ts";

/**
 * Contents of small files that are sent while the next ones are read, bytes: the first of them soon, then in larger
 * pieces.
 */
const SEND_FIRST_BYTES = 256 * 1024;
const SEND_MAX_BYTES = 2 * 1024 * 1024;
/** Archives that are unpacked side by side: one program makes files on one core alone. */
const SENDING_MAX = 2;
/** Name of our own script among what is staged; no entry of a tree is called so. */
const SCRIPT = `${OUR_PREFIX}run`;
/** Exit codes of `finish`, beside those of `rootError`. */
const UNPACK_FAILED = 95;
const CHANGED = 96;
const NO_BASE64 = 97;
const FOLDERS_LEFT = 98;
/** An archive that goes as a text in the script itself: a standard input costs more programs, and a turn of the line. */
const INLINE_MAX_BYTES = 48 * 1024;
/** Bytes of the longest path that Linux takes, with which the folder for staged files is named too. */
const PATH_MAX_BYTES = 4095;
const TOO_LONG = "its path is too long";

export class ShellWriter implements TreeWriter {
  readonly #system: SystemShell;
  readonly #root: string;
  readonly #scan: EnvironmentTree["scan"];
  readonly #hasFind: () => boolean;
  readonly stageName = `${STAGE_PREFIX}${randomBytes(8).toString("hex")}`;
  readonly #files = new Map<string, Staged>();
  /** Whether an owner is asked for of anything that was staged. */
  #hasOwners = false;
  #begun = false;
  /** Whether the folder for staged files is known to be there. */
  #isMade = false;
  #ended = false;
  readonly #batch = new TarBatch();
  /** Folders that the archive names. */
  readonly #named = new Set<string>();
  #sendBytes = SEND_FIRST_BYTES;
  /** Folders with something staged that must not get into place. */
  readonly #spoiled = new Set<string>();
  /** Files that were not staged, since no program could name them. */
  readonly #tooLong = new Set<string>();
  readonly #sending = new Set<Promise<void>>();

  /** @param hasFind whether the environment is known to have a find that tells everything */
  constructor(system: SystemShell, root: string, scan: EnvironmentTree["scan"], hasFind: () => boolean) {
    this.#system = system;
    this.#root = root;
    this.#scan = scan;
    this.#hasFind = hasFind;
  }

  stage(file: Staged, content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> | undefined {
    const isPlain = Array.isArray(content) && file.size <= limits.treeBatchBytes;
    if (!this.#ended && isPlain && !this.#isTooLong(file.path)) {
      try {
        requireInside(file.path);
        return this.#add(file, content);
      } catch (error) {
        this.#spoil(file.path);
        return Promise.reject(error);
      }
    }
    return this.#stageSlowly(file, content);
  }

  unstage(path: string): void {
    // Its content stays in the folder for staged files, and goes with it.
    this.#files.delete(path);
    this.#spoil(path);
  }

  async finish(wanted: TreeChanges): Promise<TreeOutcome> {
    requireAllInside(wanted);
    const tooLong = [...this.#tooLong, ...pathsIn(wanted).filter((path) => this.#isTooLong(path))];
    const asked = tooLong.length === 0 ? wanted : this.#withoutTooLong(wanted);
    try {
      for (const { path, target } of asked.links ?? []) {
        if (this.#begun) this.#addFolder(parentOf(path));
        // Made now, as a link of the host's is: an archive's word for its time would be 1970.
        const modifiedAt = Math.floor(Date.now() / 1000);
        this.#batch.add({ path, type: "symlink", size: 0, mode: 0o777, modifiedAt, linkTarget: target });
        if (this.#batch.length > this.#sendBytes) await this.#send();
      }
      // What is much goes beside what is on its way, and not only after it.
      if (this.#begun && this.#batch.length > INLINE_MAX_BYTES) await this.#send();
      let plan = this.#plan(asked);
      const expected = new Map(asked.expected);
      const changed = new Set<string>();
      const leaveChanged = async () => {
        for (const path of await changedSince(this.#scan, this.#root, expected)) {
          changed.add(path);
          expected.delete(path);
          this.unstage(path);
        }
        plan = this.#plan(without(asked, changed));
      };
      const check = () => expectationScript(expected, plan.folders, CHANGED);
      await this.#allSent();
      if (!this.#hasFind()) await leaveChanged();
      let applied = await this.#apply(plan, this.#hasFind() ? check() : "");
      for (let left = LOOKS_MAX; applied.exitCode === CHANGED && left > 0; left -= 1) {
        // Nothing was done yet. Where the look never agrees with what was expected, the last one is taken at its word.
        await leaveChanged();
        applied = await this.#apply(plan, left > 1 ? check() : "");
      }
      const isLeft = applied.exitCode === FOLDERS_LEFT;
      const said = applied.stderr;
      if (isLeft) applied = await this.#applyRest(plan);
      const { exitCode, stdout } = applied;
      const stderr = isLeft ? `${said}\n${applied.stderr}` : said;
      if (exitCode !== 0) throw this.#failure(exitCode, stderr);
      this.#ended = true;
      const told = isLeft ? null : plan.telling?.read(stdout);
      const { done, failed } = told ?? (await this.#look(plan));
      return {
        done,
        failed: [
          ...failed.map((each) => withReason(each, stderr)),
          ...tooLong.map((path) => ({ path, reason: TOO_LONG })),
        ],
        ...(changed.size > 0 && { changed }),
      };
    } finally {
      await this.discard();
    }
  }

  async discard(): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    if (!this.#begun) return;
    await Promise.allSettled(this.#sending);
    try {
      await this.#system.run(`cd -P -- ${quote(this.#root)} && rm -rf -- ./${this.stageName}`);
    } catch (error) {
      // Where the place is gone so is what was staged, or the next writer removes it; what broke it is told already.
      if (!isMoorageError(error)) throw error;
    }
  }

  #isTooLong(path: string): boolean {
    return path.length > PATH_MAX_BYTES - this.stageName.length - "..".length;
  }

  #withoutTooLong({ folders = [], links = [], ...rest }: TreeChanges): TreeChanges {
    const fits = ({ path }: { readonly path: string }) => !this.#isTooLong(path);
    return { ...rest, folders: folders.filter(fits), links: links.filter(fits) };
  }

  /** Reads a content to its end, so that whoever sends it goes on. */
  async #leave({ path }: Staged, content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    this.#tooLong.add(path);
    this.#spoil(path);
    for await (const _ of content);
  }

  #spoil(path: string): void {
    for (const folder of foldersOn(path)) this.#spoiled.add(folder);
  }

  /** Goes to the root and sees to the folder for staged files; those that a dead writer left an hour ago go. */
  #enter(): string {
    const sweep = `for d in ./${STAGE_PREFIX}*; do
  [ ! -e "$d" ] || find . -maxdepth 1 -name '${STAGE_PREFIX}*' -mmin +60 -exec rm -rf {} + 2>/dev/null
  break
done`;
    const make = this.#begun ? "" : `\n${sweep}\n( umask 077; exec mkdir "$s" ) || exit 92`;
    this.#begun = true;
    return `LC_ALL=C EXTRACT_UNSAFE_SYMLINKS=1; export LC_ALL EXTRACT_UNSAFE_SYMLINKS
${enterRoot(this.#root)}
s=${this.stageName}${make}`;
  }

  async #stageSlowly(file: Staged, content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    if (this.#ended) throw new TypeError("The writer has ended");
    requireInside(file.path);
    try {
      if (this.#isTooLong(file.path)) await this.#leave(file, content);
      else if (file.size > limits.treeBatchBytes) await this.#stageLarge(file, content);
      else {
        const chunks: Uint8Array[] = [];
        for await (const chunk of content) chunks.push(chunk);
        await this.#add(file, chunks);
      }
    } catch (error) {
      this.#spoil(file.path);
      throw error;
    }
  }

  /** @returns what is to be waited for, if anything */
  #add(file: Staged, chunks: readonly Uint8Array[]): Promise<void> | undefined {
    checkSize(
      file,
      chunks.reduce((sum, { length }) => sum + length, 0),
    );
    const { path, size, mode, modifiedAt, owner } = file;
    if (owner) this.#hasOwners = true;
    if (this.#begun) this.#addFolder(parentOf(path));
    this.#batch.add({ path, type: "file", size, mode, modifiedAt, ...owner }, chunks);
    this.#files.set(path, file);
    return this.#batch.length > this.#sendBytes ? this.#send() : undefined;
  }

  /**
   * Names a folder in the archive itself: GNU tar fails where a folder that it misses is made by somebody else just then,
   * and two archives may have files of one folder.
   */
  #addFolder(path: string): void {
    if (path === "" || this.#named.has(path)) return;
    this.#addFolder(parentOf(path));
    this.#named.add(path);
    this.#batch.add({ path, type: "directory", size: 0, mode: 0o700, modifiedAt: 0 });
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
        `${this.#enter()}\ndd bs=1 count=${script.length} of="$s/${SCRIPT}" 2>/dev/null && . "./$s/${SCRIPT}"`,
        { stdin: Buffer.concat([script, ...part]), timeoutMs: limits.treeTimeoutMs },
      );
      if (exitCode !== 0) throw this.#failure(exitCode, stderr);
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
    this.#files.set(file.path, file);
  }

  /** Sends what waits and comes back when it is there. */
  async #flush(): Promise<void> {
    await this.#send();
    await this.#allSent();
  }

  async #allSent(): Promise<void> {
    await Promise.all(this.#sending);
  }

  /** Sends what waits, when not too much is on its way. A failure is told by the next call. */
  async #send(): Promise<void> {
    // The first one makes the folder that the others go to.
    if (this.#sending.size >= (this.#isMade ? SENDING_MAX : 1)) await Promise.race(this.#sending);
    if (this.#batch.length === 0) return;
    this.#named.clear();
    const sending = this.#unpack(this.#batch.take());
    this.#sending.add(sending);
    sending.then(
      () => this.#sending.delete(sending),
      // It stays, so that whoever waits next is told.
      () => undefined,
    );
  }

  async #unpack(archive: Buffer): Promise<void> {
    this.#sendBytes = Math.min(2 * this.#sendBytes, SEND_MAX_BYTES);
    const { exitCode, stderr } = await this.#system.run(`${this.#enter()}\n${unpack(this.#hasOwners)}`, {
      stdin: archive,
      timeoutMs: limits.treeTimeoutMs,
    });
    if (exitCode !== 0) throw this.#failure(exitCode, stderr);
    this.#isMade = true;
    this.#batch.recycle(archive);
  }

  /** @param stderr of the script, whose programs say when a disk is full; GNU tar calls it a write that came short */
  #failure(exitCode: number, stderr: string): MoorageError {
    if (/No space left|quota exceeded|Wrote only \d+ of/.test(stderr)) {
      return new MoorageError("STORAGE_FULL", `Cannot write into "${this.#root}": no space left`);
    }
    return rootError(exitCode, "write", this.#root, stderr);
  }

  #plan(changes: TreeChanges): Plan {
    const files = [...this.#files.values()];
    const placed = [...files, ...(changes.links ?? [])].map(({ path }) => path);
    const folders = planFolders(placed, changes, this.#spoiled);
    return {
      changes,
      files,
      folders,
      scripts: finishScripts(placed, changes, folders, FOLDERS_LEFT),
      telling: this.#hasFind() ? telling(files, changes, folders) : null,
    };
  }

  async #look({ files, changes }: Plan): Promise<TreeOutcome> {
    const { entries } = await this.#scan(this.#root, { paths: judgedPaths(files, changes) });
    return judgeOutcome(entries, files, changes, new Map());
  }

  /**
   * Unpacks what has not been sent, does everything and removes what was staged. The script's bytes are the names' own,
   * so it comes as one of the files, and is read by the shell.
   */
  async #apply(
    { changes, folders, scripts: { now }, telling }: Plan,
    check: string,
  ): Promise<SystemRunResult> {
    const script = Buffer.from(
      `${check}${now}\nrm -rf -- "$s" &\n${telling?.script ?? ""}wait\n:\n`,
      "latin1",
    );
    const timeoutMs = limits.treeTimeoutMs;
    // Without a tar this can still be had.
    if (this.#batch.length === 0 && folders.tops.length === 0) return this.#runScript(script);
    const modifiedAt = Math.floor(Date.now() / 1000);
    for (const { path, mode } of changes.folders ?? []) {
      // Empty ones come so, too; the mode of the others is set in the end.
      const staged = { path, type: "directory", size: 0, mode: isStagedMode(mode) ? mode : 0o700 } as const;
      if (folders.whole.has(path)) this.#batch.add({ ...staged, modifiedAt });
    }
    this.#batch.add({ path: SCRIPT, type: "file", size: script.length, mode: 0o600, modifiedAt }, [script]);
    const archive = this.#batch.take();
    const run = `. "./$s/${SCRIPT}"`;
    if (archive.length <= INLINE_MAX_BYTES) {
      const inline = await this.#system.run(
        `${this.#enter()}\n${unpackInline(archive, this.#hasOwners)}\n${run}`,
        {
          timeoutMs,
        },
      );
      if (inline.exitCode !== NO_BASE64) return inline;
    }
    return this.#system.run(`${this.#enter()}\n${unpack(this.#hasOwners)}\n${run}`, {
      stdin: archive,
      timeoutMs,
    });
  }

  /** Does what is left when a folder could not be moved as a whole, and removes what was staged. */
  #applyRest({ scripts }: Plan): Promise<SystemRunResult> {
    return this.#runScript(Buffer.from(`${scripts.rest()}\nrm -rf -- "$s"\n:\n`, "latin1"));
  }

  /** Runs a script whose words may be no UTF-8. */
  #runScript(stdin: Buffer): Promise<SystemRunResult> {
    const command = `${this.#enter()}\ncat >"$s/${SCRIPT}" && . "./$s/${SCRIPT}"`;
    return this.#system.run(command, { stdin, timeoutMs: limits.treeTimeoutMs });
  }
}

/** What `finish` is about to do. */
interface Plan {
  readonly changes: TreeChanges;
  readonly files: readonly Staged[];
  readonly folders: FolderPlan;
  readonly scripts: ReturnType<typeof finishScripts>;
  /** Null when everything is looked at afterwards. */
  readonly telling: Telling | null;
}

/** Looks at what others change meanwhile, after which something is put in place in the end. */
const LOOKS_MAX = 3;

const HAS_TAR = "command -v tar >/dev/null 2>&1 || exit 93";

/**
 * Extracts an archive from standard input among what is staged.
 *
 * @param hasOwners whether the archive names owners; otherwise root's tar need not see to them, a tenth of its time
 */
function extract(hasOwners: boolean): string {
  return `( umask 077; exec tar -x -p${hasOwners ? "" : " -o"} -f - -C "./$s" ) || exit ${UNPACK_FAILED}`;
}

function unpack(hasOwners: boolean): string {
  return `${HAS_TAR}\n${extract(hasOwners)}`;
}

function unpackInline(archive: Buffer, hasOwners: boolean): string {
  return `${HAS_TAR}
command -v base64 >/dev/null 2>&1 || exit ${NO_BASE64}
printf %s '${archive.toString("base64")}' | base64 -d | ${extract(hasOwners)}`;
}

function pathsIn({ folders = [], links = [] }: TreeChanges): readonly string[] {
  return [...folders, ...links].map(({ path }) => path);
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
  // A short name may be a part of any word.
  const isNamed = (line: string) =>
    ["/", "'"].some((before) => [":", "'"].some((after) => line.includes(before + name + after)));
  const line = stderr.split("\n").find(isNamed);
  return { path, reason: line === undefined ? reason : `${reason}: ${line.trim()}` };
}
