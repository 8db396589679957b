/** What of the host a sandbox sees, as options of bwrap. */
import { existsSync, lstatSync, readFileSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, isAbsolute, join, normalize } from "node:path";
import { MoorageError } from "../../../src/errors.ts";
import { homeFolder } from "../../../src/folders.ts";
import { kindOf } from "./kinds.ts";

/** Where the folder with the named pipes is, inside. */
export const CHANNEL = "/run/moorage";

/** Fresh and empty inside: other people's files, and sockets of services. */
const PRIVATE = ["/tmp", "/var/tmp", "/run", "/home", "/root", "/mnt", "/media"];
/** Readable by root alone, and so by a sandbox whose user is root. */
const HIDDEN_FROM_ROOT = [
  "/etc/shadow",
  "/etc/shadow-",
  "/etc/gshadow",
  "/etc/gshadow-",
  "/etc/ssl/private",
  "/etc/ssh/ssh_host_dsa_key",
  "/etc/ssh/ssh_host_ecdsa_key",
  "/etc/ssh/ssh_host_ed25519_key",
  "/etc/ssh/ssh_host_rsa_key",
  "/etc/docker",
  "/etc/kubernetes",
  "/etc/letsencrypt",
  "/etc/wireguard",
  "/etc/NetworkManager/system-connections",
  "/etc/krb5.keytab",
  "/etc/security/opasswd",
  "/etc/sudoers.d",
  "/var/cache/debconf/passwords.dat",
  "/var/lib/kubelet",
  "/var/spool/cron",
  "/etc/sudoers",
  "/var/lib/docker",
  "/var/lib/containerd",
  "/var/lib/private",
  "/boot",
];

/**
 * Writable by root by its number alone, without any capability: what is written there changes the whole machine. bwrap
 * covers them only where the folder itself is writable, which it never is.
 */
const KERNEL_SETTINGS = [
  "/proc/sys",
  "/proc/sysrq-trigger",
  "/proc/irq",
  "/proc/bus",
  "/proc/fs",
  "/proc/acpi",
  "/proc/scsi",
  "/proc/mtrr",
  "/proc/pressure",
];

export interface Layout {
  /** Real path of the workspace. */
  readonly workspace: string;
  /** Host folder that is bound to `CHANNEL`. */
  readonly channel: string;
  /** Folders of ours that commands must not read. */
  readonly hidden: readonly string[];
  /** Whether its user is another than this process's, to whom root's files are closed anyway. */
  readonly foreign: boolean;
  /** Whether the sandbox resolves names itself. */
  readonly openNetwork: boolean;
  /** Whether commands cannot write to the workspace. @default false */
  readonly readonly?: boolean;
}

/**
 * Homes that another name than `HOME` leads to: this process's by its account, and the one of whom the workspace belongs
 * to, whose files commands may read where they run as them.
 */
function accountHomes(workspace: string): readonly string[] {
  const uids = [process.getuid?.(), statSync(workspace, { throwIfNoEntry: false })?.uid].map(String);
  const accounts = existsSync("/etc/passwd") ? readFileSync("/etc/passwd", "utf8").split("\n") : [];
  return accounts
    .map((line) => line.split(":"))
    .filter(([, , uid = "", , , home = ""]) => uids.includes(uid) && isAbsolute(home))
    .map(([, , , , , home = ""]) => normalize(home).replace(/(?<=.)\/$/, ""))
    .filter(
      (home) => home !== "/" && !SYSTEM.includes(home) && isFolder(home) && realpathSync(home) === home,
    );
}

/** Home inside: the user's own path, with nothing of theirs in it. */
export function sandboxHome(): string {
  const home = homeFolder();
  return isAbsolute(home) && home !== "/" ? home : "/tmp";
}

/**
 * The real path of a folder that a sandbox can have as its workspace.
 *
 * @throws {MoorageError} PATH_DENIED for the root, the home folder and what is above it, and kernel file systems
 */
export function checkWorkspace(path: string): string {
  const real = existsSync(path) ? realpathSync.native(path) : path;
  const home = existsSync(sandboxHome()) ? realpathSync.native(sandboxHome()) : sandboxHome();
  const refuse = (reason: string) =>
    new MoorageError("PATH_DENIED", `Cannot have "${path}" as the workspace of a sandbox: ${reason}`, {
      suggestion: "Choose a project's own folder.",
    });
  if (/^\/(proc|sys|dev|run)(\/|$)/.test(real)) throw refuse("it lies in a system folder");
  if (real === "/" || ["/usr", "/etc", "/bin", "/lib", "/sbin", "/var", "/boot", "/opt"].includes(real))
    throw refuse("it is a system folder");
  if (home === real || home.startsWith(`${real}/`)) throw refuse("it holds the home folder");
  if (PRIVATE.includes(real)) throw refuse("the sandbox has an own one");
  return real;
}

/** Homes of accounts that are nobody's, or that are not there. */
const SYSTEM = [
  "/usr",
  "/usr/sbin",
  "/usr/bin",
  "/etc",
  "/bin",
  "/lib",
  "/sbin",
  "/var",
  "/boot",
  "/opt",
  "/dev",
  "/proc",
  "/sys",
  "/srv",
];

/** Options for the file system; those of the workspace come last, so that it shows through what is private. */
export function layoutArgv({ workspace, channel, hidden, openNetwork, foreign, readonly }: Layout): string[] {
  const home = sandboxHome();
  const argv = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];
  for (const path of KERNEL_SETTINGS.filter((candidate) => existsSync(candidate))) {
    argv.push("--ro-bind", path, path);
  }
  for (const path of PRIVATE.filter(isFolder)) {
    argv.push("--perms", path.endsWith("tmp") ? "1777" : "0755", "--tmpfs", path);
  }
  const covered = PRIVATE.some((path) => home === path || home.startsWith(`${path}/`));
  if (covered) argv.push("--perms", "0700", "--dir", home);
  else if (isFolder(home)) argv.push("--perms", "0700", "--tmpfs", home);
  if (process.getuid?.() === 0 && !foreign) {
    for (const path of HIDDEN_FROM_ROOT) {
      const kind = kindOf(path);
      if (kind === "folder") argv.push("--perms", "0700", "--tmpfs", path);
      else if (kind === "other" || (kind === "link" && existsSync(path)))
        argv.push("--ro-bind", "/dev/null", path);
    }
  }
  for (const path of accountHomes(workspace).filter((path) => !isPrivate(path))) {
    argv.push("--perms", "0700", "--tmpfs", path);
  }
  for (const path of programFolders(process.env.PATH ?? "")) argv.push("--ro-bind", path, path);
  const covers = hidden.filter(isFolder).map((path) => realpathSync.native(path));
  for (const path of covers) {
    if (!isPrivate(path)) argv.push("--perms", "0700", "--tmpfs", path);
  }
  if (openNetwork) {
    // Often a link to a file of a service under /run.
    const resolver = existsSync("/etc/resolv.conf") ? realpathSync.native("/etc/resolv.conf") : "";
    if (isPrivate(resolver)) argv.push("--ro-bind", resolver, resolver);
  }
  // What this process opens there by name, commands must not be able to replace by a link.
  const bind = readonly ? "--ro-bind" : "--bind";
  argv.push("--ro-bind", channel, CHANNEL, bind, workspace, workspace);
  for (const path of covers.filter((cover) => isInside(cover, workspace))) {
    // A folder above it is a mount of its own, so that it cannot be renamed away and replaced.
    for (let above = dirname(path); isInside(above, workspace); above = dirname(above)) {
      argv.push(bind, above, above);
    }
    argv.push("--perms", "0700", "--tmpfs", path);
  }
  return argv;
}

/** Whether a path lies below a folder. */
export function isInside(path: string, folder: string): boolean {
  return path.startsWith(folder === "/" ? folder : `${folder}/`);
}

/**
 * A Node in the user's home would be hidden with it: the folder of its programs is wanted, and its modules. Other folders
 * of the search path stay hidden, since what they hold seldom works without the rest of the home.
 */
function programFolders(searchPath: string): readonly string[] {
  return searchPath
    .split(":")
    .filter((path) => isAbsolute(path) && normalize(path) === path && !path.startsWith("/tmp/"))
    .filter((path) => basename(path) === "bin" && isPrivate(path) && isFolder(path))
    .map((path) => [path, join(path, "../lib/node_modules")] as const)
    .filter(([path, modules]) => existsSync(join(path, "node")) && isFolder(modules))
    .flat()
    .filter((path, index, all) => realpathSync.native(path) === path && all.indexOf(path) === index);
}

/** Whether the first `bash` of the search path is one that the sandbox has too. */
export function seesBash(): boolean {
  const found = (process.env.PATH ?? "")
    .split(":")
    .map((folder) => join(folder, "bash"))
    .find((path) => isAbsolute(path) && existsSync(path));
  return found !== undefined && isSeen(found);
}

/** Whether a program of this machine's own is where it is inside too. */
export function isSeen(path: string): boolean {
  return !isPrivate(path);
}

function isFolder(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  } catch {
    // Below what is no folder, or closed to this user.
    return false;
  }
}

function isPrivate(path: string): boolean {
  return [...PRIVATE, sandboxHome()].some((folder) => path === folder || path.startsWith(join(folder, "/")));
}
