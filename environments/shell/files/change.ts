/** Changes other than a write: remove, rename, mkdir. */
import { posix } from "node:path";
import { type FileContext, resolvePath, runFile, takeField } from "./run.ts";
import { realPathOf } from "./stat.ts";

export async function removeFile(
  context: FileContext,
  path: string,
  options: { readonly recursive?: boolean; readonly cwd?: string } = {},
): Promise<void> {
  await runFile(context, {
    verb: "remove",
    path,
    cwd: options.cwd,
    command: "__moor_remove",
    args: [options.recursive ? 1 : 0, "-", "-"],
  });
}

export interface Renamed {
  readonly realPath: string;
  /** The first folder that had to be made, absolute; empty when none was. */
  readonly madeFolder: string;
}

/** Makes missing folders of the new path too. */
export async function renameFile(
  context: FileContext,
  from: string,
  to: string,
  options: { readonly replace?: boolean; readonly cwd?: string } = {},
): Promise<Renamed> {
  let target = await resolvePath(context, to, options.cwd, "rename to");
  if (target.split("/").includes("..")) {
    const cut = target.replace(/\/\.$/, "").lastIndexOf("/");
    target = posix.join(await realPathOf(context, target.slice(0, cut) || "/"), target.slice(cut));
  }
  const output = await runFile(context, {
    verb: "rename",
    path: from,
    to,
    cwd: options.cwd,
    command: "__moor_rename",
    args: [target, options.replace ? 1 : 0],
  });
  const [realPath, madeFolder] = takeField(output);
  return { realPath, madeFolder: madeFolder.toString() };
}

export async function makeFolder(
  context: FileContext,
  path: string,
  options: { readonly mode?: number; readonly cwd?: string } = {},
): Promise<void> {
  await runFile(context, {
    verb: "make folder",
    path: path.replace(/(?<=[^/])\/+$/, ""),
    cwd: options.cwd,
    command: "__moor_mkdir",
    args: [options.mode === undefined ? "-" : (options.mode & 0o7777).toString(8)],
  });
}
