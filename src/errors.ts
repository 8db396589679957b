/**
 * Every way in which Moorage itself can fail, in one table. A command that ran is a result, whatever its exit
 * code; only our own failures and refusals are errors. `docs/errors.md` is held to this table by a test.
 */

/**
 * What the caller should do about it:
 * `fix-input` change the arguments; `fix-setup` a person must change the machine or the configuration;
 * `retry` the same call may succeed later; `reconcile` the outcome is unknown, look before acting again;
 * `refused` a policy said no, do not retry; `bug` a fault of ours, report it.
 */
export type ErrorKind = "fix-input" | "fix-setup" | "retry" | "reconcile" | "refused" | "bug";

interface ErrorEntry {
  readonly kind: ErrorKind;
  readonly retryable: boolean;
  /** One imperative sentence, fit to show a model. */
  readonly suggestion: string;
}

export const ERRORS = {
  // Arguments and specifications
  INVALID_ARGUMENTS: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Correct the named argument and call again.",
  },
  INVALID_SPEC: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Correct the environment specification; `moor --help` lists the forms.",
  },
  INVALID_CONFIG: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Correct the named key in the configuration file.",
  },
  UNSUPPORTED: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Choose an environment that has this capability, or leave the option out.",
  },
  UNKNOWN_TOOL: { kind: "fix-input", retryable: false, suggestion: "Use one of the listed tools." },
  TOOL_UNAVAILABLE: {
    kind: "retry",
    retryable: true,
    suggestion: "The tool's environment is down; wait for it, or tell the user the reason.",
  },
  TOOL_FAILED: {
    kind: "bug",
    retryable: false,
    suggestion: "Report this fault of the tool to its author; try another way.",
  },
  TOOL_TIMEOUT: {
    kind: "retry",
    retryable: false,
    suggestion: "Raise the timeout, or do the work in smaller steps.",
  },
  ABORTED: {
    kind: "retry",
    retryable: false,
    suggestion: "The caller cancelled; continue only if asked to.",
  },
  REGISTRATION_INVALID: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Correct the tool's declaration.",
  },
  NAME_TAKEN: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Choose another name for the tool, or ask the operator to allow overriding.",
  },

  // Environments
  ENVIRONMENT_UNAVAILABLE: {
    kind: "fix-setup",
    retryable: true,
    suggestion: "Tell the user the reason; nothing was run.",
  },
  ENVIRONMENT_STOPPED: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Start a new environment; this one was stopped.",
  },
  ENVIRONMENT_LOST: {
    kind: "reconcile",
    retryable: false,
    suggestion: "The environment is gone with its state; check what is left before going on.",
  },
  EXECUTION_UNKNOWN: {
    kind: "reconcile",
    retryable: false,
    suggestion: "The connection broke while the command ran; check its effects before running it again.",
  },
  EXECUTION_REFUSED: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Correct the command or its options and run it again.",
  },
  SESSION_CLOSED: { kind: "fix-input", retryable: false, suggestion: "Open a new session." },
  WORKDIR_MISSING: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Create the folder first, or name one that exists.",
  },
  SHELL_MISSING: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Use an image or a host that has /bin/sh.",
  },
  CLEANUP_FAILED: {
    kind: "fix-setup",
    retryable: true,
    suggestion: "Run `moor reap`, and remove by hand what it names.",
  },

  // Docker
  DOCKER_UNREACHABLE: {
    kind: "fix-setup",
    retryable: true,
    suggestion: "Start the Docker engine, or point DOCKER_HOST at one that runs.",
  },
  DOCKER_PERMISSION: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Give this user access to the engine's socket (group docker), or use a rootless engine.",
  },
  DOCKER_CONTEXT_INVALID: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Choose a context that `docker context ls` lists.",
  },
  IMAGE_MISSING: {
    kind: "fix-setup",
    retryable: false,
    suggestion:
      "Correct the image name, or build or pull the image first; `moor images build` makes moorage/workbench.",
  },
  IMAGE_PULL_FAILED: {
    kind: "retry",
    retryable: true,
    suggestion:
      "Check the image's name and the way to its registry; without a registry `moor images build` makes moorage/workbench.",
  },
  IMAGE_BUILD_FAILED: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Correct what the message names, then build again.",
  },
  CONTAINER_MISSING: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Name a container that `docker ps` lists.",
  },
  CONTAINER_PAUSED: {
    kind: "fix-setup",
    retryable: true,
    suggestion: "Run `docker unpause` on the container, then call again.",
  },
  CONTAINER_START_FAILED: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Correct what the engine names, then start again.",
  },
  UNSAFE_MOUNT: {
    kind: "refused",
    retryable: false,
    suggestion: "Mount a folder that holds no engine socket and no kernel file system.",
  },
  UNSAFE_ENVIRONMENT: {
    kind: "refused",
    retryable: false,
    suggestion:
      "Use a container without these ways to the host, or have the operator name the rules in `unsafe`.",
  },

  // SSH
  SSH_UNREACHABLE: {
    kind: "fix-setup",
    retryable: true,
    suggestion: "Check the host, the port and the network between; nothing more was run.",
  },
  SSH_HANDSHAKE_FAILED: {
    kind: "fix-setup",
    retryable: true,
    suggestion: "Check that an SSH server answers on this host and port.",
  },
  SSH_HOST_KEY_UNKNOWN: {
    kind: "fix-setup",
    retryable: false,
    suggestion:
      "Compare the fingerprint with the host's own, then connect once with `ssh`, or with the option `known_hosts=accept-new`, to record the key.",
  },
  SSH_HOST_KEY_CHANGED: {
    kind: "refused",
    retryable: false,
    suggestion: "Do not go on: tell the user that this may be another machine or an attack.",
  },
  SSH_HOST_KEY_REVOKED: {
    kind: "refused",
    retryable: false,
    suggestion: "Do not go on: the user has marked this host key as revoked.",
  },
  SSH_KNOWN_HOSTS_UNREADABLE: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Make the named known_hosts file readable, or remove it.",
  },
  SSH_AUTHENTICATION_FAILED: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Give the account a key that the server accepts, or load one into the agent.",
  },
  SSH_PASSWORD_EXPIRED: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Log in with `ssh` once and set a new password.",
  },
  SSH_SESSION_REFUSED: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Let the server give this account sessions and commands (MaxSessions, ForceCommand, shell).",
  },

  // Remote sandboxes
  VERCEL_CREDENTIALS_MISSING: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Set VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID.",
  },
  VERCEL_REFUSED: {
    kind: "fix-setup",
    retryable: false,
    suggestion: "Correct what the server names: the credentials, the project or the option.",
  },

  // Processes
  PROCESS_MISSING: {
    kind: "fix-input",
    retryable: false,
    suggestion: "List the processes and use one of their ids.",
  },
  PROCESS_NOT_RUNNING: {
    kind: "fix-input",
    retryable: false,
    suggestion: "The process has ended; read its log and exit code.",
  },
  PROCESS_NO_STDIN: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Start the process again with stdin kept open.",
  },

  // Files
  FILE_MISSING: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Check the path; search_files finds files by name.",
  },
  FILE_EXISTS: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Choose another path, or change the existing file instead.",
  },
  FILE_NOT_REGULAR: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Name a regular file; pipes, sockets and devices cannot be read or written.",
  },
  FILE_IS_DIRECTORY: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Name a file; search_files lists a folder.",
  },
  NOT_A_DIRECTORY: {
    kind: "fix-input",
    retryable: false,
    suggestion: "A part of the path is a file; correct the path.",
  },
  FILE_PERMISSION: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Choose a path that the environment's user may use.",
  },
  FILE_CHANGED: {
    kind: "reconcile",
    retryable: false,
    suggestion: "The file changed since it was read; read it again and redo the change.",
  },
  FILE_BINARY: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Use a program in the terminal for binary files.",
  },
  FILE_TOO_LARGE: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Read a range with offset and limit, or use a program in the terminal.",
  },
  NAME_TOO_LONG: { kind: "fix-input", retryable: false, suggestion: "Use a shorter name." },
  PATH_INVALID: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Give a plain path without NUL bytes or URL schemes.",
  },
  PATH_DENIED: { kind: "refused", retryable: false, suggestion: "Choose a path inside the workspace." },
  STORAGE_FULL: { kind: "fix-setup", retryable: false, suggestion: "Free some space in the environment." },
  PATCH_INVALID: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Correct the patch text at the named line.",
  },
  PATCH_MISMATCH: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Read the file again and copy the old lines exactly.",
  },
  PATCH_AMBIGUOUS: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Add surrounding lines until the old text is unique, or set replace_all.",
  },

  // Checkpoints and sync
  CHECKPOINT_MISSING: {
    kind: "fix-input",
    retryable: false,
    suggestion: "Name a checkpoint that `moor checkpoints list` shows.",
  },
  CHECKPOINT_FAILED: {
    kind: "fix-setup",
    retryable: true,
    suggestion: "Tell the user the reason; without a checkpoint the change could not be undone.",
  },

  INTERNAL: { kind: "bug", retryable: false, suggestion: "Report this as a fault of Moorage." },
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof ERRORS;

export interface MoorageErrorOptions {
  /** Replaces the table's suggestion where the call knows better. */
  readonly suggestion?: string;
  /** Facts for machines: ids, limits, paths. Never secrets. */
  readonly details?: Readonly<Record<string, unknown>>;
  readonly cause?: unknown;
}

/** How a failure is told to a model and in machine output. */
export interface ErrorReport {
  readonly code: ErrorCode;
  readonly message: string;
  readonly suggestion: string;
  readonly retryable: boolean;
}

/** The one error class of Moorage. Match on `code`, not on the class or the message. */
export class MoorageError extends Error {
  override readonly name = "MoorageError";
  readonly code: ErrorCode;
  readonly kind: ErrorKind;
  readonly retryable: boolean;
  readonly suggestion: string;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(code: ErrorCode, message: string, options: MoorageErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    const entry: ErrorEntry = ERRORS[code];
    this.code = code;
    this.kind = entry.kind;
    this.retryable = entry.retryable;
    this.suggestion = options.suggestion ?? entry.suggestion;
    this.details = options.details ?? {};
  }

  report(): ErrorReport {
    return {
      code: this.code,
      message: this.message,
      suggestion: this.suggestion,
      retryable: this.retryable,
    };
  }
}

/** Whether `error` is a Moorage error, of `code` if one is given; holds across copies of this module. */
export function isMoorageError(error: unknown, code?: ErrorCode): error is MoorageError {
  return (
    error instanceof Error &&
    error.name === "MoorageError" &&
    "code" in error &&
    (code === undefined || error.code === code)
  );
}

/** What the system says of a disk that takes no more, and SQLite's code for it. */
const FULL: ReadonlySet<unknown> = new Set(["ENOSPC", "EDQUOT"]);
const SQLITE_FULL = 13;
/** SQLite's codes for a file that is damaged, or no database. */
export const SQLITE_DAMAGED: ReadonlySet<number> = new Set([11, 26]);
/** And for one that cannot be written to, read or opened. */
const SQLITE_UNUSABLE: ReadonlySet<number> = new Set([8, 10, 14, ...SQLITE_DAMAGED]);

/** The code of an error of SQLite's, 0 for any other. The lower byte is the code, the rest says more of it. */
export function sqliteCode(error: unknown): number {
  return error instanceof Error && "errcode" in error ? Number(error.errcode) & 0xff : 0;
}

/** Our own records on this host cannot be read or written: the machine's fault, and nobody's bug. */
export function unusableRecords(message: string, cause: unknown): MoorageError {
  const suggestion =
    "See whether the disk with Moorage's state folder is full, read-only or failing; MOORAGE_HOME names another folder.";
  return new MoorageError("INVALID_CONFIG", `Cannot use our own records: ${message}`, { suggestion, cause });
}

/**
 * Passes a Moorage error through and wraps anything else as `fallback`, keeping it as the cause. A disk of this host
 * that is full, or that our records cannot be used on, is nobody's fault, whoever met it.
 */
export function toMoorageError(
  error: unknown,
  fallback: ErrorCode = "INTERNAL",
  action?: string,
): MoorageError {
  if (isMoorageError(error)) return error;
  const text = error instanceof Error ? error.message : String(error);
  const message = action ? `${action}: ${text}` : text;
  const sqlite = sqliteCode(error);
  if (SQLITE_UNUSABLE.has(sqlite)) return unusableRecords(message, error);
  const isFull = error instanceof Error && "code" in error && FULL.has(error.code);
  if (isFull || sqlite === SQLITE_FULL) {
    const suggestion = "Free some space on this machine, where Moorage keeps its own records.";
    return new MoorageError("STORAGE_FULL", message, { suggestion, cause: error });
  }
  return new MoorageError(fallback, message, { cause: error });
}
