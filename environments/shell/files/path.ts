/** From the path that a caller names to the absolute path that the environment is asked for. */
import { posix } from "node:path";
import { type ErrorCode, MoorageError } from "../../../src/errors.ts";

/** Longest name of one file on every file system in use, bytes. */
const NAME_MAX_BYTES = 255;
/** Linux PATH_MAX without its final NUL, bytes. */
const PATH_MAX_BYTES = 4095;

export interface PathFacts {
  readonly home: string;
  readonly workspace: string;
  readonly cwd: string | undefined;
}

/**
 * Makes `path` absolute without looking at the environment; `..` stays, because what it means depends on links.
 *
 * `~` alone or before a slash is the home folder; `./~` and `~user` are names. A final slash is kept as `/.`.
 *
 * @param verb what the caller is about to do, for messages: `read`
 * @throws {MoorageError} PATH_INVALID for empty text, NUL, lone surrogates and URLs; NAME_TOO_LONG
 */
export function absolutePath(path: string, facts: PathFacts, verb: string): string {
  const invalid = (reason: string): MoorageError => fileError("PATH_INVALID", verb, path, reason);
  if (path === "") throw invalid("the path is empty");
  if (path.includes("\0")) throw invalid("the path holds a NUL byte");
  if (!path.isWellFormed()) throw invalid("the path holds half of a surrogate pair");
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(path)) throw invalid("the path is a URL");
  let base = facts.workspace;
  if (facts.cwd !== undefined) base = joinPath(facts.workspace, expandHome(facts.cwd, facts.home));
  const absolute = joinPath(base, expandHome(path, facts.home));
  if (absolute.split("/").some((name) => Buffer.byteLength(name) > NAME_MAX_BYTES)) {
    throw fileError("NAME_TOO_LONG", verb, path, `a name in it is longer than ${NAME_MAX_BYTES} bytes`);
  }
  if (Buffer.byteLength(absolute) > PATH_MAX_BYTES) {
    throw fileError("NAME_TOO_LONG", verb, path, `the path is longer than ${PATH_MAX_BYTES} bytes`);
  }
  return absolute;
}

/** `Cannot read "/x": reason`, with the path as the caller named it, and a second one if there is one. */
export function fileError(
  code: ErrorCode,
  verb: string,
  path: string,
  reason: string,
  options: { readonly to?: string; readonly cause?: unknown; readonly suggestion?: string } = {},
): MoorageError {
  const { to, ...rest } = options;
  const shown = to === undefined ? showPath(path) : `${showPath(path)} to ${showPath(to)}`;
  return new MoorageError(code, `Cannot ${verb} ${shown}: ${reason}`, {
    ...rest,
    details: { path, ...(to !== undefined && { to }) },
  });
}

function showPath(path: string): string {
  return JSON.stringify(path.length > 400 ? `${path.slice(0, 400)}…` : path);
}

/** Resolves `..` by text alone, for the part of a path that does not exist. */
export function withoutDots(path: string): string {
  return posix.normalize(path);
}

function expandHome(path: string, home: string): string {
  if (path === "~") return home;
  return path.startsWith("~/") ? `${home}/${path.slice(2)}` : path;
}

function joinPath(base: string, path: string): string {
  const joined = path.startsWith("/") ? path : `${base}/${path}`;
  const names = joined.split("/").filter((name) => name !== "" && name !== ".");
  const folder = /(^|\/)\.?$/.test(path) && names.length > 0 ? "/." : "";
  return `/${names.join("/")}${folder}`;
}
