/** What the caller says about an SSH environment, and what is wrong with it. */
import { MoorageError } from "../../src/errors.ts";
import type { HostKeyPolicy } from "./config.ts";

export interface SshOptions {
  /** A host, or an alias of `~/.ssh/config`. */
  readonly host: string;
  /** @default as ssh_config says, else the local user's name */
  readonly user?: string | null;
  /** @default as ssh_config says, else 22 */
  readonly port?: number | null;
  /** Absolute, or `~` and what is below it. @default "~" */
  readonly workspace?: string;
  /** Read instead of the user's and the system's configuration; null reads none. */
  readonly configFile?: string | null;
  /**
   * `accept-new` records the key of a host that no file knows; a changed key is refused all the same.
   * @default as ssh_config says, else "strict"
   */
  readonly knownHosts?: HostKeyPolicy;
  /** Files instead of the configured ones; the first takes new keys. */
  readonly knownHostsFiles?: readonly string[];
  /** Private keys instead of the configured ones; with them, of an agent's keys only these are shown. */
  readonly identityFiles?: readonly string[];
  /** Socket of an agent instead of the configured one; null for none. */
  readonly agent?: string | null;
  /** Opens encrypted key files. */
  readonly passphrase?: string;
  /** Tried after all keys, when the server takes passwords. Nothing is ever asked of a terminal. */
  readonly password?: string;
  /**
   * Connections at most; further ones serve servers that allow few sessions on each.
   * @default limits.sshMaxConnections
   */
  readonly maxConnections?: number;
}

const KERNEL_FOLDERS = /^\/(?:proc|sys|dev\/fd)(?:\/|$)/;

/** @throws {MoorageError} INVALID_SPEC naming the option */
export function checkSshOptions(options: SshOptions): void {
  const refuse = (reason: string): never => {
    throw new MoorageError("INVALID_SPEC", `Cannot use ssh://${options.host}: ${reason}`);
  };
  for (const [what, name] of [
    ["host", options.host],
    ["user", options.user ?? "x"],
  ] as const) {
    if (name === "" || name.startsWith("-") || /[\s\p{Cc}]/u.test(name))
      refuse(`${JSON.stringify(name)} is no ${what} name`);
  }
  const { port, workspace, maxConnections } = options;
  if (port !== undefined && port !== null && !(Number.isInteger(port) && port >= 1 && port <= 65_535))
    refuse(`"${port}" is no port`);
  if (workspace !== undefined && !/^(?:\/|~$|~\/)/.test(workspace))
    refuse(`the workspace "${workspace}" is neither absolute nor below ~`);
  if (workspace?.includes("\0")) refuse("the workspace holds a NUL byte");
  if (workspace !== undefined && KERNEL_FOLDERS.test(workspace))
    refuse(`the workspace "${workspace}" is a folder of the kernel's`);
  if (maxConnections !== undefined && !(Number.isInteger(maxConnections) && maxConnections >= 1))
    refuse(`${maxConnections} is no number of connections`);
}
