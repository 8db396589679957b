/** Runs one function of the file library and turns its failures into errors that name the caller's path. */
import type { ErrorCode, MoorageError } from "../../../src/errors.ts";
import { isUnder } from "../../tree/names.ts";
import { quote } from "../quote.ts";
import type { SystemRunOptions, SystemShell } from "../stream.ts";
import { absolutePath, fileError, withoutDots } from "./path.ts";

/** What every member of `files` works with. */
export interface FileContext {
  readonly system: SystemShell;
  readonly workspace: () => string;
  /** What nobody inside can change, absolute. */
  readonly protectedPaths: () => readonly string[];
  /** Resolves when home and workspace are known, which they are once anything has run. */
  readonly ready: () => Promise<void>;
}

export interface FileRun {
  /** What is being done, for messages: `read`. */
  readonly verb: string;
  /** As the caller named it. */
  readonly path: string;
  /** A second path that messages name. */
  readonly to?: string;
  readonly cwd: string | undefined;
  /** Name of the library's function; its first argument is the absolute path. */
  readonly command: string;
  readonly args: readonly (string | number)[];
  readonly options?: SystemRunOptions;
}

/** @throws {MoorageError} FILE_*, NOT_A_DIRECTORY, NAME_TOO_LONG, PATH_INVALID, STORAGE_FULL, or what `run` throws */
export async function runFile(context: FileContext, request: FileRun): Promise<Buffer> {
  const absolute = await resolvePath(context, request.path, request.cwd, request.verb);
  return runAbsolute(context, request, absolute);
}

export async function resolvePath(
  context: FileContext,
  path: string,
  cwd: string | undefined,
  verb: string,
): Promise<string> {
  await context.ready();
  return absolutePath(path, { home: context.system.home, workspace: context.workspace(), cwd }, verb);
}

async function runAbsolute(context: FileContext, request: FileRun, absolute: string): Promise<Buffer> {
  const words = [absolute, ...request.args].map((word) => quote(String(word)));
  const { exitCode, stdout, stderr } = await context.system.run(`${request.command} ${words.join(" ")}`, {
    plain: true,
    ...request.options,
  });
  if (exitCode === 0) return stdout;
  const [, code = "", detail = ""] = /^moorage-file ([A-Z]+) (.*)$/m.exec(stderr) ?? [];
  if (code === "DOTS") {
    const plain = withoutDots(detail);
    if (plain !== absolute) return runAbsolute(context, request, plain);
  }
  const error = failure(request, code, detail, stderr);
  throw isProtected(context, request, absolute, error) ? refusal(request) : error;
}

/** What a change of a protected part fails with, by its kind and that of what holds its place. */
const CLOSED: ReadonlySet<ErrorCode> = new Set([
  "FILE_PERMISSION",
  "FILE_IS_DIRECTORY",
  "FILE_EXISTS",
  "NOT_A_DIRECTORY",
]);
const LOOKS: ReadonlySet<string> = new Set(["read", "stat", "list", "resolve"]);

/** Whether a change failed because its path, or the one it leads to, is protected. */
function isProtected(
  context: FileContext,
  { verb, args }: FileRun,
  absolute: string,
  { code }: MoorageError,
): boolean {
  if (!CLOSED.has(code) || LOOKS.has(verb)) return false;
  return [absolute, ...args].some((path) =>
    context.protectedPaths().some((part) => path === part || isUnder(String(path), part)),
  );
}

function refusal({ verb, path, to }: FileRun): MoorageError {
  const reason = "it is a protected part of the workspace, which programs outside of the sandbox act upon";
  return fileError("PATH_DENIED", verb, path, reason, {
    ...(to !== undefined && { to }),
    suggestion: "Leave it as it is, and tell the person what should be changed there.",
  });
}

/** Failures that the library tells by name. */
const FAILURES: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  MISSING: ["FILE_MISSING", "no such file or directory"],
  NOTDIR: ["NOT_A_DIRECTORY", "not a directory"],
  PERM: ["FILE_PERMISSION", "permission denied"],
  FOLDER: ["FILE_PERMISSION", "permission denied: its folder cannot be written to"],
  OWNER: ["FILE_PERMISSION", "permission denied: its owner or group could not be kept"],
  LOOP: ["PATH_INVALID", "too many levels of symbolic links"],
  UNREACHABLE: ["PATH_INVALID", "it lies outside the environment's root"],
  DOTS: ["FILE_MISSING", "no such file or directory"],
  DIR: ["FILE_IS_DIRECTORY", "is a directory"],
  BINARY: ["FILE_BINARY", "it is binary, and too large to count its lines"],
  SPECIAL: ["FILE_NOT_REGULAR", "not a regular file"],
  EXISTS: ["FILE_EXISTS", "it exists"],
  PRESENT: ["FILE_CHANGED", "it exists"],
  GONE: ["FILE_CHANGED", "the file was removed since it was read"],
  CHANGED: ["FILE_CHANGED", "the content is not what was read"],
  NOTEMPTY: ["FILE_IS_DIRECTORY", "the folder is not empty"],
  ROOT: ["PATH_INVALID", "the path ends in a folder reference"],
  FULL: ["STORAGE_FULL", "no space left on the device, or a limit was reached"],
  SHORT: ["STORAGE_FULL", "fewer bytes arrived than were sent"],
  NOSTAT: ["UNSUPPORTED", "the environment has no stat program"],
  NOHASH: ["UNSUPPORTED", "the environment has no program for SHA-256"],
};

/** Failures that a program tells in its own words, in the C locale. */
const MESSAGES: readonly (readonly [RegExp, ErrorCode, string])[] = [
  [/No space left on device/, "STORAGE_FULL", "no space left on device"],
  [/Disk quota exceeded/, "STORAGE_FULL", "disk quota exceeded"],
  [/File too large/, "STORAGE_FULL", "the file system or a limit allows no file of that size"],
  [/File name too long/, "NAME_TOO_LONG", "the name is too long for the file system"],
  [/Read-only file system/, "FILE_PERMISSION", "read-only file system"],
  [/Permission denied/, "FILE_PERMISSION", "permission denied"],
  [/Operation not permitted/, "FILE_PERMISSION", "operation not permitted"],
  [/Device or resource busy/, "FILE_PERMISSION", "it is a mount point and cannot be replaced"],
  [/Is a directory/, "FILE_IS_DIRECTORY", "is a directory"],
  [/Not a directory/, "NOT_A_DIRECTORY", "not a directory"],
  [/No such file or directory|nonexistent/, "FILE_MISSING", "no such file or directory"],
  [/File exists/, "FILE_EXISTS", "it exists"],
  [/Directory not empty/, "FILE_IS_DIRECTORY", "the folder is not empty"],
  [/Too many levels of symbolic links/, "PATH_INVALID", "too many levels of symbolic links"],
];

function failure(request: FileRun, code: string, detail: string, stderr: string): MoorageError {
  const { verb, path, to } = request;
  const fail = (errorCode: ErrorCode, reason: string): MoorageError =>
    fileError(errorCode, verb, path, reason, { ...(to !== undefined && { to }) });
  if (code === "BIG") {
    return fail("FILE_TOO_LARGE", `the file has ${detail} bytes`);
  }
  const known = FAILURES[code];
  if (known) return fail(known[0], known[1]);
  for (const [pattern, errorCode, reason] of MESSAGES) {
    if (pattern.test(stderr)) return fail(errorCode, reason);
  }
  const words = stderr.replaceAll(/\S*\.moorage-[0-9a-f]{32}\S*/g, "a temporary file").trim();
  return fail("INTERNAL", words === "" ? "the shell function failed without a word" : words);
}

/** Takes the text before the next NUL off the front. */
export function takeField(buffer: Buffer): readonly [string, Buffer] {
  const end = buffer.indexOf(0);
  if (end < 0) return [buffer.toString(), Buffer.alloc(0)];
  return [buffer.toString("utf8", 0, end), buffer.subarray(end + 1)];
}
