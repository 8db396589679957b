/**
 * Whether a sandbox came to have the mounts that it was to have. bwrap is told paths, and looks them up when it mounts:
 * where somebody who can write to the workspace, or above it, put a link in the place of one meanwhile, another folder of
 * the machine would be in the sandbox, writable, or a protected part would lie open. So what was mounted is compared with
 * what was meant before anything in the sandbox goes on.
 */
import { readFileSync } from "node:fs";
import { posix } from "node:path";

interface Mount {
  readonly id: string;
  /** Its file system, by number. */
  readonly device: string;
  /** Which folder of its file system is mounted. */
  readonly root: string;
  readonly path: string;
  readonly isReadonly: boolean;
  readonly type: string;
}

/** The mounts of one process. */
interface Mounts {
  /** The root's; null where the process's root is no mount. */
  readonly top: Mount | null;
  /** By the mount that each lies on. */
  readonly on: ReadonlyMap<string, readonly Mount[]>;
}

/** What a mount is to be. */
interface Expected {
  readonly isReadonly: boolean;
  /** Device and folder, `device root`; `tmpfs` for a fresh one; null where they cannot be told. */
  readonly source: string | null;
}

/** What the mounts at a workspace and below are to be. */
export interface ExpectedMounts {
  readonly workspace: string;
  readonly byPath: ReadonlyMap<string, Expected>;
}

/**
 * Those that bwrap's options make. Outside of the workspace nobody changes paths but the operator.
 *
 * @param layout bwrap's options for the file system
 */
export function expectedMounts(layout: readonly string[], workspace: string): ExpectedMounts {
  const own = mountsHere();
  const byPath = new Map<string, Expected>();
  for (const [at, option] of layout.entries()) {
    const isBind = option === "--bind" || option === "--ro-bind";
    const source = isBind ? layout[at + 1] : undefined;
    const path = isBind ? layout[at + 2] : option === "--tmpfs" ? layout[at + 1] : undefined;
    if (path === undefined || !isAtOrBelow(path, workspace)) continue;
    // What came before at it or below is covered.
    for (const earlier of byPath.keys()) if (isAtOrBelow(earlier, path)) byPath.delete(earlier);
    byPath.set(path, {
      isReadonly: option === "--ro-bind",
      source: source === undefined ? "tmpfs" : sourceOf(own, source),
    });
  }
  return { workspace, byPath };
}

/**
 * The first path at which a sandbox has another mount than it was to have; null when all are as they were meant.
 *
 * @param pid host number of a process in it
 * @throws the system's error when that is gone
 */
export function wrongMount(pid: number, { workspace, byPath }: ExpectedMounts): string | null {
  const found = new Map<string, Mount>();
  const at = ` ${escaped(workspace)}`;
  // The last one on a path is the one that is seen; bwrap mounts nothing over the folders above after these.
  for (const line of linesOf(pid)) {
    const mount = line.includes(at) ? parse(line) : null;
    if (mount) found.set(mount.path, mount);
  }
  for (const [path, { isReadonly, source }] of byPath) {
    const mount = found.get(path);
    if (!mount || (isReadonly && !mount.isReadonly)) return path;
    const actual = source === "tmpfs" ? mount.type : describe(mount, mount.root);
    if (source !== null && actual !== source) return path;
  }
  return null;
}

/** White space and backslashes in paths are written by number. */
function linesOf(pid: number | "self"): readonly string[] {
  return readFileSync(`/proc/${pid}/mountinfo`, "utf8").split("\n");
}

function parse(line: string): Mount & { readonly below: string } {
  const fields = line.split(" ");
  const [id = "", below = "", device = "", root = "", path = "", options = ""] = fields;
  const type = fields[fields.indexOf("-", 6) + 1] ?? "";
  const isReadonly = options === "ro" || options.startsWith("ro,");
  return { id, below, device, root: plain(root), path: plain(path), isReadonly, type };
}

function mountsHere(): Mounts {
  const on = new Map<string, Mount[]>();
  const ids = new Set<string>();
  for (const line of linesOf("self")) {
    if (line === "") continue;
    const mount = parse(line);
    ids.add(mount.id);
    // The kernel's first mount lies on itself.
    const below = mount.below === mount.id ? "" : mount.below;
    const siblings = on.get(below);
    if (siblings) siblings.push(mount);
    else on.set(below, [mount]);
  }
  const [top = null] = [...on].flatMap(([below, mounts]) => (ids.has(below) ? [] : mounts));
  return { top: top?.path === "/" ? top : null, on };
}

/** The mount that a path without links leads into. */
function mountAt({ top, on }: Mounts, path: string): Mount | null {
  let found = top;
  while (found) {
    // What lies nearest to the root is met first, and hides what else is below it.
    let next: Mount | null = null;
    for (const each of on.get(found.id) ?? [])
      if (isAtOrBelow(path, each.path) && (!next || each.path.length < next.path.length)) next = each;
    if (!next) break;
    found = next;
  }
  return found;
}

function sourceOf(mounts: Mounts, path: string): string | null {
  const mount = mountAt(mounts, path);
  return mount && describe(mount, posix.join(mount.root, posix.relative(mount.path, path)));
}

function describe({ device }: Mount, root: string): string {
  return `${device} ${root}`;
}

function isAtOrBelow(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder === "/" ? folder : `${folder}/`);
}

function escaped(path: string): string {
  return path.replaceAll(/[ \t\n\\]/g, (char) => `\\${char.charCodeAt(0).toString(8).padStart(3, "0")}`);
}

function plain(text: string): string {
  if (!text.includes("\\")) return text;
  return text.replaceAll(/\\([0-7]{3})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}
