/** Facts about files: `stat`, `list`, `realPath`, and the status line that the library prints. */
import type { FileEntry, FileKind, FileStat } from "../../base.ts";
import { type FileContext, runFile, takeField } from "./run.ts";

/** Octal permissions, raw mode in hex, size, uid, gid, mtime in seconds, inode. */
const STATUS = /^([0-7]+) ([0-9a-f]+) (\d+) (\d+) (\d+) (-?[\d.]+) (\d+)/i;

/** The four bits of `st_mode` that tell the kind. */
const KINDS: ReadonlyMap<number, FileKind> = new Map([
  [0o01, "fifo"],
  [0o02, "device"],
  [0o04, "directory"],
  [0o06, "device"],
  [0o10, "file"],
  [0o12, "symlink"],
  [0o14, "socket"],
]);

/** @returns null when `line` does not begin with a status line */
export function parseStatus(line: string): FileStat | null {
  const match = STATUS.exec(line);
  if (!match) return null;
  const [, , raw = "", size, uid, gid, modified, inode = ""] = match;
  const mode = Number.parseInt(raw, 16);
  return {
    kind: KINDS.get((mode & 0o170000) >> 12) ?? "device",
    size: Number(size),
    mode: mode & 0o7777,
    uid: Number(uid),
    gid: Number(gid),
    modifiedAt: Math.floor(Number(modified) * 1000),
    inode,
  };
}

export function needStatus(line: string): FileStat {
  const status = parseStatus(line);
  if (!status) throw new TypeError(`Not a status line: ${JSON.stringify(line.slice(0, 200))}`);
  return status;
}

export async function statFile(
  context: FileContext,
  path: string,
  options: { readonly follow?: boolean; readonly cwd?: string } = {},
): Promise<FileStat> {
  const output = await runFile(context, {
    verb: "stat",
    path,
    cwd: options.cwd,
    command: "__moor_status",
    args: [options.follow === false ? "-" : "follow"],
    options: { repeatable: true },
  });
  const [, rest] = takeField(output);
  const end = rest.indexOf(10);
  const status = needStatus(rest.toString("latin1", 0, end));
  return status.kind === "symlink" ? { ...status, linkTarget: rest.toString("utf8", end + 1) } : status;
}

/** Entries in order of name, `.` and `..` left out, links not followed. */
export async function listFolder(
  context: FileContext,
  path: string,
  options: { readonly cwd?: string } = {},
): Promise<readonly FileEntry[]> {
  let rest = await runFile(context, {
    verb: "list",
    path,
    cwd: options.cwd,
    command: "__moor_list",
    args: [],
    options: { repeatable: true },
  });
  const names: string[] = [];
  const take = (): string => {
    const [field, remaining] = takeField(rest);
    rest = remaining;
    return field;
  };
  for (let name = take(); name !== ""; name = take()) names.push(name);
  const targets = new Map<string, string>();
  for (let name = take(); name !== ""; name = take()) targets.set(name, take());
  return parseEntries(names, targets, rest.toString());
}

/**
 * Joins names and status lines. A name can hold a newline, so the text after a status line is compared with the
 * next name; a name whose line does not come is of an entry that went away.
 */
function parseEntries(
  names: readonly string[],
  targets: ReadonlyMap<string, string>,
  text: string,
): readonly FileEntry[] {
  const entries: FileEntry[] = [];
  let position = 0;
  for (const name of names) {
    const head = text.slice(position, position + 200);
    const status = parseStatus(head);
    const length = STATUS.exec(head)?.[0].length ?? 0;
    const ending = ` ${name}\n`;
    if (!status || !text.startsWith(ending, position + length)) continue;
    position += length + ending.length;
    const linkTarget = status.kind === "symlink" ? targets.get(name) : undefined;
    entries.push({
      name: name.slice(2),
      ...status,
      ...(linkTarget !== undefined && { linkTarget }),
    });
  }
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
}

export async function realPathOf(
  context: FileContext,
  path: string,
  options: { readonly cwd?: string } = {},
): Promise<string> {
  const output = await runFile(context, {
    verb: "resolve",
    path,
    cwd: options.cwd,
    command: "__moor_real",
    args: ["follow"],
    options: { repeatable: true },
  });
  return output.toString().replace(/(?<=.)\/\.$/, "");
}
