/**
 * The contract of an environment: a place with a file system and processes where an agent's commands run.
 *
 * Every backend keeps every sentence of this file; `moorage/conformance` asks each of them. Paths are the
 * environment's own, absolute or relative to what the member says, never the host's. A command that ran is a
 * result, with any exit code; a member throws a `MoorageError` only when the environment failed or refused.
 * Commands start with pagers that pass their text on and editors that leave it as it is (PAGER, EDITOR and their
 * kind), unless a caller's variables say otherwise: nobody is there to press a key.
 */
import { type ErrorCode, MoorageError } from "../src/errors.ts";

/** What stands between a command and the host: nothing, a sandboxed process, a container, a virtual machine. */
export type Isolation = "none" | "process" | "container" | "vm";

/** What a backend can do beyond the contract's core. Asking for more fails at construction with `UNSUPPORTED`. */
export type Capability =
  | "pty"
  | "snapshot"
  | "ports"
  | "egress:none"
  | "egress:allow-list"
  /** Background processes outlive a restarted orchestrator, which finds them by id. */
  | "reattach"
  /** Commands are this process's own user's on this very machine: what it writes itself is what they would write. */
  | "host-user";

/**
 * An argv array is started as it is; a string is one or more lines for the environment's shell. Lines that all end as
 * on Windows lose their carriage returns.
 */
export type Command = string | readonly string[];

export type OutputStream = "output" | "stdout" | "stderr";

export interface OutputChunk {
  readonly stream: OutputStream;
  readonly data: Uint8Array;
}

export interface ExecOptions {
  /** Absolute, or relative to the workspace (stateless) or to the session's cwd. Only for this command. */
  readonly cwd?: string;
  /** Exported for this command only. Values must hold no NUL. */
  readonly env?: Readonly<Record<string, string>>;
  /** Standard input, byte-exact, at most `limits.stdinMaxBytes`. @default empty: the command reads EOF */
  readonly stdin?: string | Uint8Array;
  /** Ends the whole process tree after this many milliseconds. @default none */
  readonly timeoutMs?: number;
  /** Ends the whole process tree; the promise still resolves, with `aborted` and the output so far. */
  readonly abortSignal?: AbortSignal;
  /** `merged` keeps stdout and stderr in the order written; `separate` keeps them apart. @default "merged" */
  readonly output?: "merged" | "separate";
  /** Called with every chunk as it arrives, whatever the capture keeps. Slow promises hold the source back. */
  readonly onOutput?: (chunk: OutputChunk) => void | Promise<void>;
  /** Bytes kept of each stream, head and tail together. @default limits.captureHeadBytes + captureTailBytes */
  readonly captureBytes?: number;
  /**
   * Returns after this many milliseconds with what there is and a `processId`, while the command goes on as a
   * background process of the environment. Ignored when the command ends earlier. @default never
   */
  readonly yieldMs?: number;
  /**
   * Yields at once when this signal fires, like `yieldMs`.
   */
  readonly yieldSignal?: AbortSignal;
}

/** What a capture left out. */
export interface Truncation {
  /** Bytes the command wrote to the stream. */
  readonly totalBytes: number;
  /** Bytes missing between the head and the tail of the text. */
  readonly omittedBytes: number;
}

/** A process that outlived its command. */
export interface LeftProcess {
  /** As the environment numbers it. */
  readonly pid: number;
  /** Its command line, or its name in brackets, at most 200 characters. */
  readonly command: string;
}

export interface ExecResult {
  /** Null when none is known: the command timed out, was aborted, or was yielded. A signal death is 128 + n. */
  readonly exitCode: number | null;
  /** The POSIX signal that ended the command (`SIGKILL`), when that is known. */
  readonly signal: string | null;
  readonly timedOut: boolean;
  readonly aborted: boolean;
  /** stdout and stderr merged; empty when `output` is `separate`. Decoded as UTF-8, U+FFFD where invalid. */
  readonly output: string;
  /** Empty unless `output` is `separate`. */
  readonly stdout: string;
  /** Empty unless `output` is `separate`. */
  readonly stderr: string;
  /** Per stream, only those that lost something. */
  readonly truncated: Readonly<Partial<Record<OutputStream, Truncation>>>;
  /** Id under which `environment.outputs` has the full text, present when something was truncated or yielded. */
  readonly outputId: string | null;
  /** Working directory after the command, absolute. */
  readonly cwd: string;
  readonly durationMs: number;
  /** Processes that the command left behind; they run on. */
  readonly leftRunning: readonly LeftProcess[];
  /** Processes that a timeout or abort could not end. */
  readonly survivors: readonly LeftProcess[];
  /** Background process that the command became, when it was yielded. */
  readonly processId: string | null;
  /** What the caller should know: a lost cwd, a recreated container, a variable too large to keep. */
  readonly notes: readonly string[];
}

/**
 * A shell whose cwd, exported variables (also unset ones), functions and aliases (bash) live on between calls.
 *
 * Not kept: options, traps, jobs, unexported variables. Calls in one session queue in order of arrival; a
 * call's `exit`, `exec`, syntax error or death never breaks the session. What a call that was killed, or that
 * replaced the EXIT trap and then exited, had changed is not kept.
 */
export interface ShellSession extends AsyncDisposable {
  readonly id: string;
  /** Absolute; starts at the workspace. When the folder is gone, the next call starts in its nearest ancestor. */
  readonly cwd: string;
  /** @throws {MoorageError} SESSION_CLOSED, ENVIRONMENT_*, EXECUTION_UNKNOWN, EXECUTION_REFUSED, WORKDIR_MISSING */
  exec(command: Command, options?: ExecOptions): Promise<ExecResult>;
  /** Idempotent; a running call is aborted. */
  close(): Promise<void>;
}

export interface PtySize {
  readonly columns: number;
  readonly rows: number;
}

export interface ProcessOptions {
  /** Absolute, or relative to the workspace. */
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Runs on a terminal of this size, `true` for 80 by 24. @default false */
  readonly pty?: boolean | PtySize;
  /** Starts with the cwd and variables of this session. */
  readonly session?: ShellSession;
  /** A line for lists. @default the command */
  readonly title?: string;
  /** `closed` gives it an empty stdin, so that `write` is refused; a terminal's stays open. @default "open" */
  readonly stdin?: "open" | "closed";
}

export type ProcessStatus = "running" | "exited" | "killed" | "lost";

export interface ProcessInfo {
  /** Stable, unique in the environment, not a pid; survives a restarted orchestrator. */
  readonly id: string;
  readonly command: string;
  readonly cwd: string;
  readonly pid: number | null;
  readonly status: ProcessStatus;
  /** Null while it runs, and when it is lost. */
  readonly exitCode: number | null;
  /** ISO 8601. */
  readonly startedAt: string;
  readonly endedAt: string | null;
  readonly pty: boolean;
  readonly stdinOpen: boolean;
  /** Bytes in the log so far. */
  readonly logBytes: number;
  /** Whether output beyond `limits.processLogMaxBytes` was dropped. */
  readonly logTruncated: boolean;
}

export interface LogSlice {
  /** Decoded UTF-8, never cut inside a code point. */
  readonly text: string;
  /** Byte offset of the slice's start. */
  readonly offset: number;
  /** Byte offset to continue from. */
  readonly nextOffset: number;
  readonly totalBytes: number;
}

export interface WaitCondition {
  /** Until it has ended. This is the default when no other condition is given. */
  readonly exit?: boolean;
  /** Until the log holds a match. A string is searched literally. */
  readonly logPattern?: RegExp | string;
  /** Until something inside the environment listens on this TCP port. */
  readonly port?: number;
  readonly timeoutMs?: number;
  readonly abortSignal?: AbortSignal;
}

export interface WaitOutcome {
  /** `exit` also answers a log or port wait whose process ended first. */
  readonly reason: "exit" | "log" | "port" | "timeout" | "aborted";
  readonly info: ProcessInfo;
  /** The matched text, for `log`. */
  readonly match: string | null;
}

/** A background process: log, stdin, signals, exit status. It has no timeout of its own. */
export interface EnvironmentProcess {
  readonly id: string;
  info(): Promise<ProcessInfo>;
  /** Reads the log by bytes. A negative offset counts from the end. @param maxBytes @default 65_536 */
  log(options?: { readonly offset?: number; readonly maxBytes?: number }): Promise<LogSlice>;
  /** Writes to its stdin. @throws {MoorageError} PROCESS_NOT_RUNNING, PROCESS_NO_STDIN */
  write(data: string | Uint8Array): Promise<void>;
  /** Ends its stdin (EOF). Idempotent. */
  closeStdin(): Promise<void>;
  /** Sends a signal (`SIGINT`) to the process group. @throws {MoorageError} PROCESS_NOT_RUNNING */
  signal(signal: string): Promise<void>;
  /** Ends the whole tree, TERM then KILL, verified. Resolves with what survived. Idempotent. */
  kill(): Promise<{ readonly info: ProcessInfo; readonly survivors: readonly LeftProcess[] }>;
  wait(condition?: WaitCondition): Promise<WaitOutcome>;
}

export interface EnvironmentProcesses {
  /** @throws {MoorageError} ENVIRONMENT_*, UNSUPPORTED (pty), WORKDIR_MISSING, EXECUTION_REFUSED */
  start(command: Command, options?: ProcessOptions): Promise<EnvironmentProcess>;
  /** All known processes, those of an earlier orchestrator of the same environment too, oldest first. */
  list(): Promise<readonly ProcessInfo[]>;
  /** By id or a unique prefix of at least 4 characters. @throws {MoorageError} PROCESS_MISSING */
  get(id: string): Promise<EnvironmentProcess>;
}

export type FileKind = "file" | "directory" | "symlink" | "fifo" | "socket" | "device";

export interface FileStat {
  readonly kind: FileKind;
  readonly size: number;
  /** Permission bits, `0o7777` at most. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Milliseconds since the epoch. */
  readonly modifiedAt: number;
  readonly inode: string;
  readonly linkTarget?: string;
}

export interface FileEntry extends FileStat {
  readonly name: string;
}

export interface ReadOptions {
  /** First byte; negative counts from the end. @default 0 */
  readonly offset?: number;
  /** @default to the end, at most limits.fileWholeMaxBytes (FILE_TOO_LARGE beyond) */
  readonly maxBytes?: number;
  /** Relative paths start here. @default the workspace */
  readonly cwd?: string;
  readonly abortSignal?: AbortSignal;
}

export interface FileContent {
  /** The path with every link resolved. */
  readonly realPath: string;
  readonly bytes: Buffer;
  /** Size of the whole file. */
  readonly size: number;
  readonly offset: number;
  /** `sha256:` and hex of the whole file; null when only a range was read. */
  readonly hash: string | null;
  readonly mode: number;
}

export interface LinesOptions {
  /** 1-based first line; negative counts from the last. @default 1 */
  readonly offset?: number;
  /** @default limits.readFileDefaultLines */
  readonly limit?: number;
  /** Bytes of text returned at most; cut at a line end where there is one. @default limits.resultMaxBytes */
  readonly maxBytes?: number;
  readonly cwd?: string;
  readonly abortSignal?: AbortSignal;
}

export interface FileLines {
  readonly realPath: string;
  /** The lines' raw bytes with their endings. */
  readonly bytes: Buffer;
  /** 1-based number of the first line in `bytes`. */
  readonly firstLine: number;
  /** Lines in the whole file; a missing final newline still ends a line. */
  readonly totalLines: number;
  readonly size: number;
  /** `sha256:` and hex of the whole file; null beyond limits.fileHashMaxBytes. */
  readonly hash: string | null;
  /** Whether `bytes` stops short of the asked range. */
  readonly truncated: boolean;
}

export interface WriteOptions {
  /** Refuses with FILE_CHANGED unless the present content has this hash; `absent` asks that there be no file. */
  readonly expectedHash?: string;
  /** Permission bits for a new file. @default 0o666 minus umask; an existing file keeps its own */
  readonly mode?: number;
  /** Asks for the replaced content too, when it has at most this many bytes, so that a caller can show the difference. */
  readonly previousMaxBytes?: number;
  readonly cwd?: string;
  readonly abortSignal?: AbortSignal;
}

export interface WriteReceipt {
  readonly realPath: string;
  readonly hash: string;
  readonly bytesWritten: number;
  /** Whether the file is new. */
  readonly created: boolean;
  /** The replaced content, when it was asked for; null when there was none or it is too large. */
  readonly previous?: Buffer | null;
}

/** One step of a set of changes that happen whole or not at all. */
export type FileChange =
  | {
      readonly kind: "write";
      readonly path: string;
      readonly bytes: Uint8Array;
      readonly options?: WriteOptions;
    }
  | { readonly kind: "remove"; readonly path: string; readonly expectedHash?: string }
  | { readonly kind: "rename"; readonly from: string; readonly to: string };

/**
 * Files of the environment, byte-exact. Relative paths start at `cwd` or else at the workspace; `~` alone or
 * before a slash is the environment's home. Missing, special and forbidden files are told by code: FILE_MISSING,
 * FILE_NOT_REGULAR, FILE_IS_DIRECTORY, NOT_A_DIRECTORY, FILE_PERMISSION, NAME_TOO_LONG, PATH_INVALID.
 */
export interface EnvironmentFiles {
  readFile(path: string, options?: ReadOptions): Promise<FileContent>;
  /**
   * Reads lines without loading the file, of any size; one of more than 256 MiB that begins as a binary is
   * FILE_BINARY.
   */
  readLines(path: string, options?: LinesOptions): Promise<FileLines>;
  /**
   * Replaces the whole content in one step seen by others: temporary file beside it, rename. Follows a link to
   * its target, keeps mode and owner of what is there, makes missing parents. Another hard link to the old file
   * keeps the old content.
   */
  writeFile(path: string, data: string | Uint8Array, options?: WriteOptions): Promise<WriteReceipt>;
  /**
   * Applies the changes in order; when one fails, those before it are taken back and the error is thrown.
   * @returns the receipts of the writes, in order
   */
  apply(
    changes: readonly FileChange[],
    options?: { readonly cwd?: string },
  ): Promise<readonly WriteReceipt[]>;
  /** @param options.follow whether a link is resolved first. @default true */
  stat(path: string, options?: { readonly follow?: boolean; readonly cwd?: string }): Promise<FileStat>;
  list(path: string, options?: { readonly cwd?: string }): Promise<readonly FileEntry[]>;
  /** @param options.recursive needed for a folder that is not empty */
  remove(path: string, options?: { readonly recursive?: boolean; readonly cwd?: string }): Promise<void>;
  /** Refuses with FILE_EXISTS when the target exists, unless `replace`. */
  rename(
    from: string,
    to: string,
    options?: { readonly replace?: boolean; readonly cwd?: string },
  ): Promise<void>;
  /** Makes parents too; an existing folder is fine. */
  mkdir(path: string, options?: { readonly mode?: number; readonly cwd?: string }): Promise<void>;
  /** Resolves links; a missing last part is allowed, so that a policy can judge a file before it exists. */
  realPath(path: string, options?: { readonly cwd?: string }): Promise<string>;
}

/**
 * What a scan tells of one entry. Names are bytes: `path` and `linkTarget` hold one character per byte (latin1), so
 * that names that are no UTF-8 survive.
 */
export interface TreeEntry {
  /** Relative to the root, without a leading `./`; the root itself is not listed. */
  readonly path: string;
  readonly kind: FileKind;
  /** Permission bits, `0o7777` at most. */
  readonly mode: number;
  readonly size: number;
  readonly uid: number;
  readonly gid: number;
  /** Whole seconds since the epoch. */
  readonly modifiedAt: number;
  /** Changes with size, times and inode; compares with the stamps of the same root only. */
  readonly stamp: string;
  /** False when it changed within the clock's grain before the scan: an equal stamp then proves nothing. */
  readonly settled: boolean;
  readonly linkTarget?: string;
}

export interface TreeScan {
  /** Real path of the root, UTF-8. */
  readonly root: string;
  /** Parents before what is in them. Entries named `.moorage-…` are ours and left out. */
  readonly entries: readonly TreeEntry[];
  /** Folders that could not be looked into, and mount points, which are not entered; both are also entries. */
  readonly closed: readonly string[];
  /** Of contents, taken after the entries; some of those that were asked for. */
  readonly hashes?: ReadonlyMap<string, string>;
}

export interface TreeScanOptions {
  /** Only these entries, by path, without what is in them; those that are not there are left out. @default all */
  readonly paths?: readonly string[];
  /** Files whose hashes are wanted with a scan of everything, where that saves a request. @default none */
  readonly hashed?: readonly string[];
  /**
   * Whether two programs may look at once, each at one half: sooner where a second core is idle, for somewhat more of the
   * processor's time in all. @default false
   */
  readonly sideBySide?: boolean;
  readonly timeoutMs?: number;
  readonly abortSignal?: AbortSignal;
}

/** A file's content on its way. */
export interface TreeFile {
  readonly path: string;
  readonly size: number;
  readonly mode: number;
  /** To be read before the consumer's promise resolves; what is left is dropped. */
  readonly content: AsyncIterable<Buffer>;
  /** The same at once, where the source has it so; others' bytes by the time that the next file comes. */
  readonly bytes?: Buffer;
}

/** One file as it was before a change, by the path that a caller named. */
export interface CapturedFile {
  /** As it was asked for. */
  readonly path: string;
  /** Absolute, links in its folders resolved; UTF-8. What a write would replace, or where it would make a file. */
  readonly realPath: string;
  /** The link in the last place and where it leads, when there is one. */
  readonly link: { readonly path: string; readonly target: string } | null;
  /** `absent`: nothing is there. `other`: a folder, a device, or not readable. `large`: beyond `maxBytes`. */
  readonly state: "file" | "absent" | "other" | "large";
  /** Only for a file. */
  readonly bytes: Buffer | null;
  readonly status: Pick<FileStat, "mode" | "uid" | "gid"> | null;
  /** For what is absent: the topmost folder on its way that is not there either, or null. */
  readonly missingFolder: string | null;
}

/** Whose an entry of a tree is to be: only root can give one away, and only from root it may be asked. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** What `finish` makes of a folder beside the staged files. Paths are relative to the root. */
export interface TreeChanges {
  /** Removed, deepest first; a folder only when it is empty by then. */
  readonly remove?: readonly string[];
  /** Made when missing, parents first, and given their mode when everything else is done. */
  readonly folders?: readonly { readonly path: string; readonly mode: number; readonly owner?: Owner }[];
  readonly links?: readonly { readonly path: string; readonly target: string; readonly owner?: Owner }[];
  /** Files whose mode, or owner, alone changes. */
  readonly modes?: readonly { readonly path: string; readonly mode: number; readonly owner?: Owner }[];
  /**
   * What a scan saw at paths that are staged or removed, null for nothing. Where something else stands just before it
   * would be replaced, it stays. One folder is as good as another. @default nobody else writes there
   */
  readonly expected?: ReadonlyMap<string, TreeEntry | null>;
}

export interface TreeOutcome {
  /** Paths at which something else stood than was expected; they are neither done nor failed. @default none */
  readonly changed?: ReadonlySet<string>;
  /** Paths that are as asked for. */
  readonly done: readonly string[];
  readonly failed: readonly { readonly path: string; readonly reason: string }[];
}

/** Replaces parts of a folder: contents are staged, then everything is put in place by rename. */
export interface TreeWriter {
  /** Name of the folder in the root in which contents are gathered; a writer that dies leaves it there. */
  readonly stageName: string;
  /**
   * Nothing shows in the folder before `finish`. Files come one after the other, each when there is no promise to
   * wait for.
   */
  stage(
    file: {
      readonly path: string;
      readonly size: number;
      readonly mode: number;
      readonly modifiedAt: number;
      readonly owner?: Owner;
    },
    content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<void> | void;
  /** Takes a staged file back. */
  unstage(path: string): void;
  /**
   * Puts everything in place, follows no link on the way, and looks at what came of it. A folder in the place of a
   * file must be among what is removed.
   */
  finish(changes: TreeChanges): Promise<TreeOutcome>;
  /** Removes what was staged. Idempotent; does nothing after `finish`. */
  discard(): Promise<void>;
}

/**
 * Folders as a whole: what sync and checkpoints stand on. Roots are absolute.
 *
 * @throws {MoorageError} FILE_MISSING, NOT_A_DIRECTORY, FILE_PERMISSION for the root; FILE_TOO_LARGE beyond
 * limits.treeMaxEntries; UNSUPPORTED where a program is missing that the environment would need
 */
export interface EnvironmentTree {
  /** One request, whatever the number of entries. Looks at no content and follows no link. */
  scan(root: string, options?: TreeScanOptions): Promise<TreeScan>;
  /** SHA-256 in hex of regular files, by path; those that cannot be read are left out. */
  hash(
    root: string,
    paths: readonly string[],
    options?: { readonly timeoutMs?: number; readonly abortSignal?: AbortSignal },
  ): Promise<ReadonlyMap<string, string>>;
  /**
   * Gives the contents of regular files, one after the other, with back pressure. What cannot be read is left out.
   * A file that changes meanwhile may come torn: whoever needs to know compares hashes.
   *
   * @param options.onFilledUp called in the end for each file whose content is none that it ever had: it became shorter
   * while it was read, and what was missing are zeros
   */
  pack(
    root: string,
    paths: readonly string[],
    take: (file: TreeFile) => Promise<void> | void,
    options?: {
      readonly timeoutMs?: number;
      readonly abortSignal?: AbortSignal;
      readonly onFilledUp?: (path: string) => void;
    },
  ): Promise<void>;
  /** What is at these paths, in one request, before they are written to. Paths are taken as `files` takes them. */
  capture(
    paths: readonly string[],
    options: { readonly maxBytes: number; readonly cwd?: string; readonly timeoutMs?: number },
  ): Promise<readonly CapturedFile[]>;
  writer(root: string): TreeWriter;
  /**
   * Names the place: the same word for as long as the place lives, also for another orchestrator, and another one for
   * every other place. Kept in the environment's home folder; the environment's `id` where that cannot be written.
   */
  identity(): Promise<string>;
}

export type Health =
  | { readonly healthy: true; readonly detail?: string }
  | {
      readonly healthy: false;
      readonly code: ErrorCode;
      readonly reason: string;
      readonly suggestion?: string;
      /** Its own start failed, and none has succeeded: what worked before was only what it stands on. */
      readonly neverStarted?: true;
    };

/** Full outputs of commands whose captured text was cut, kept on the host for `limits.spillMaxAgeMs`. */
export interface EnvironmentOutputs {
  /** @throws {MoorageError} PROCESS_MISSING when there is no such output */
  read(id: string, options?: { readonly offset?: number; readonly maxBytes?: number }): Promise<LogSlice>;
}

export interface EnvironmentInfo {
  readonly id: string;
  readonly backend: string;
  readonly workspace: string;
  readonly isolation: Isolation;
  /** `user@host`, an image or a container, for people. */
  readonly description: string;
  /** The shell that runs commands: `bash` or `sh`. Null before the start. */
  readonly shell: "bash" | "sh" | null;
  /** Paths of the host that a command in the environment can change, absolute; the host's root for `local`. */
  readonly exposedHostPaths: readonly string[];
  /** The folder of the host that the workspace of an isolated environment is; missing where it is none. */
  readonly sharedFolder?: string;
  /** What its egress policy decided so far; missing where there is no policy. */
  readonly egress?: EgressReport;
  /** Defences that it lacks, such as in a container that someone else made; missing where there is nothing to say. */
  readonly warnings?: readonly string[];
}

/** What may be reached: everything, nothing, or what is listed. Deny wins, and `!` in front of an entry denies too. */
export type EgressPolicy =
  | "open"
  | "none"
  | { readonly allow: readonly string[]; readonly deny?: readonly string[] };

/**
 * A credential that the environment never holds. It is put into requests that the proxy reads, those of plain HTTP,
 * since TLS is not opened. The value is never logged.
 */
export interface EgressCredential {
  /** A rule, as in an allow-list. */
  readonly host: string;
  /** Replaces whatever the request has under this name. */
  readonly header: string;
  readonly value: string;
  /**
   * Whether a request for `http://host` is sent to port 443 over TLS, so that the credential never travels in the
   * clear. The program asks in the clear, inside; nothing but the proxy hears it. @default false
   */
  readonly tls?: boolean;
}

/** Decisions of an egress policy. Without a way out at all nobody asks, and the counts stay 0. */
export interface EgressReport {
  readonly policy: "none" | "allow-list";
  readonly allowed: number;
  readonly denied: number;
  /** The last refusals, oldest first, each with the host, the rule, and what would allow it. */
  readonly refusals: readonly string[];
}

/** Progress of slow steps: an image pull, a container start. `fraction` is between 0 and 1 when it is known. */
export interface EnvironmentProgress {
  readonly message: string;
  readonly fraction?: number;
}

/** What every backend takes, whatever else its own options name. */
export interface CommonOptions {
  /** Stable name; a kept environment of that name is found again. @default a random id */
  readonly id?: string;
  /** Absolute folder inside the environment. */
  readonly workspace?: string;
  /** Folder on the host for records that outlive the process, mode 0700. */
  readonly stateDir: string;
  /** Host variables by name and value that reach the environment; nothing else of the host's does. */
  readonly env?: Readonly<Record<string, string>>;
  /** `stop` leaves the environment and its background processes for the next orchestrator of that `id`. @default false */
  readonly keep?: boolean;
  readonly onProgress?: (progress: EnvironmentProgress) => void;
  /** Milliseconds from an arbitrary start, never going back. @default performance.now */
  readonly now?: () => number;
}

/**
 * A place where commands run. Made by a backend's `create…` function, which checks its options and touches
 * nothing; `start` brings it up, and every member that needs it does so by itself.
 */
export abstract class BaseEnvironment implements AsyncDisposable {
  abstract readonly id: string;
  abstract readonly backend: string;
  /** Absolute folder inside the environment in which the agent works. */
  abstract readonly workspace: string;
  abstract readonly isolation: Isolation;
  abstract readonly capabilities: ReadonlySet<Capability>;
  abstract readonly files: EnvironmentFiles;
  abstract readonly tree: EnvironmentTree;
  abstract readonly processes: EnvironmentProcesses;
  abstract readonly outputs: EnvironmentOutputs;

  /**
   * Brings the environment up. Idempotent; concurrent callers share one start; a failed start can be tried again.
   * @throws {MoorageError} ENVIRONMENT_UNAVAILABLE or a backend's own code when it cannot be had
   */
  abstract start(): Promise<void>;

  /**
   * Ends every command, session and background process and leaves no container, process, socket, temporary
   * file or network. Idempotent; works on an environment that never started. With `keep`, background
   * processes and the place itself stay for the next orchestrator of the same `id`.
   * @throws {MoorageError} CLEANUP_FAILED naming what could not be removed
   */
  abstract stop(): Promise<void>;

  /**
   * Runs one command with no memory of earlier ones, in the workspace. Calls run side by side.
   * @throws {MoorageError} ENVIRONMENT_*, EXECUTION_UNKNOWN, EXECUTION_REFUSED, WORKDIR_MISSING
   */
  abstract exec(command: Command, options?: ExecOptions): Promise<ExecResult>;

  abstract openSession(options?: {
    readonly cwd?: string;
    readonly env?: Readonly<Record<string, string>>;
  }): Promise<ShellSession>;

  /** Answers within `limits.probeTimeoutMs`, changes nothing, never throws for a sick backend. */
  abstract health(): Promise<Health>;

  abstract info(): EnvironmentInfo;

  /**
   * Changes the egress policy while the environment lives; connections that the new one denies are closed. Only what
   * was made with an allow-list has a door whose rules can change: to other rules, or to `none` and back. Where an API
   * enforces the policy, it says which changes it takes.
   * @throws {MoorageError} INVALID_SPEC, and the old policy stays; UNSUPPORTED where the network cannot be changed
   */
  async setEgress(_policy: EgressPolicy): Promise<void> {
    throw new MoorageError(
      "UNSUPPORTED",
      `Cannot change the egress policy: the ${this.backend} backend enforces none that could change here`,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}
