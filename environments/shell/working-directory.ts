/**
 * The folder that a command runs in: as it is asked for, why it cannot be entered, and where the command left its
 * shell.
 */
import { isAbsolute, normalize } from "node:path/posix";
import { MoorageError } from "../../src/errors.ts";
import { folderOf } from "./exports.ts";
import { fromBytes, type ShellState } from "./state.ts";
import type { CallEnd } from "./worker.ts";

/** Absolute form of a working directory as a caller may write it. */
export function resolveCwd(cwd: string, base: string, home: string): string {
  const expanded = cwd === "~" ? home : cwd.startsWith("~/") ? `${home}/${cwd.slice(2)}` : cwd;
  return isAbsolute(expanded) ? expanded : `${base === "/" ? "" : base}/${expanded}`;
}

const KERNEL_FOLDERS = /^\/(?:proc|sys|dev\/fd)(?:\/|$)/;

/** Whether a path names a folder of the kernel's; one that a link leads to is met by the shell that enters it. */
export function isKernelFolder(path: string): boolean {
  return KERNEL_FOLDERS.test(normalize(path));
}

/** @param cwd as the caller named it */
export function workdirError(problem: "missing" | "kernel", cwd: string): MoorageError {
  return problem === "kernel"
    ? new MoorageError("EXECUTION_REFUSED", `Cannot run the command: "${cwd}" is a folder of the kernel's`)
    : new MoorageError(
        "WORKDIR_MISSING",
        `Cannot enter "${cwd}": there is no such folder, or it may not be entered`,
      );
}

/** As the shell told it, else where the command began. */
export function cwdAfter(end: CallEnd, requiredCwd: string | null, state: ShellState): string {
  const told = (end.dump && folderOf(end.dump)) ?? end.movedTo;
  if (told) return fromBytes(told);
  return requiredCwd === null ? fromBytes(state.cwd) : normalize(requiredCwd).replace(/(?<=.)\/$/, "");
}
