/** What to connect to and how, from what the caller names and from ssh_config, hop by hop. */
import { createHash } from "node:crypto";
import { hostname, userInfo } from "node:os";
import { join } from "node:path";
import { MoorageError } from "../../src/errors.ts";
import { homeFolder } from "../../src/folders.ts";
import { type ConfigFile, readConfig } from "./config-file.ts";

/** Where somebody wants to go: an alias or a host, and what overrides the configuration. */
export interface Destination {
  readonly host: string;
  readonly user: string | null;
  readonly port: number | null;
}

export type HostKeyPolicy = "strict" | "accept-new";

/** One hop, all settled. */
export interface HostSettings {
  /** As it was named. */
  readonly name: string;
  /** Address to connect to. */
  readonly host: string;
  readonly port: number;
  readonly user: string;
  /** Name under which known_hosts has it: the alias of its key, or the host. */
  readonly hostKeyName: string;
  /** Whether the port belongs to that name. An alias stands alone. */
  readonly hostKeyPort: number;
  /** Private keys to try, in order; a missing one is skipped. */
  readonly identityFiles: readonly string[];
  readonly identitiesOnly: boolean;
  /** Socket of the agent; null for none. */
  readonly agent: string | null;
  /** The first takes new keys. */
  readonly knownHostsFiles: readonly string[];
  readonly hostKeyPolicy: HostKeyPolicy;
  readonly hashKnownHosts: boolean;
  readonly connectTimeoutMs: number | null;
}

/** What the caller sets instead of the configuration. Keys and agent are for the last hop, the rest is for all. */
export interface Overrides {
  readonly identityFiles?: readonly string[];
  readonly agent?: string | null;
  readonly knownHostsFiles?: readonly string[];
  readonly hostKeyPolicy?: HostKeyPolicy;
}

export interface Route {
  /** From the first host to connect to until the last. */
  readonly hops: readonly HostSettings[];
  readonly notes: readonly string[];
}

const MAX_HOPS = 8;
const DEFAULT_IDENTITIES = ["id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"];

/**
 * Settles a destination and every hop before it.
 *
 * @param configFile read instead of the user's and the system's; null reads none. @default both of those
 * @throws {MoorageError} INVALID_CONFIG naming what is wrong, UNSUPPORTED for a ProxyCommand
 */
export function resolveRoute(
  destination: Destination,
  overrides: Overrides = {},
  configFile?: string | null,
): Route {
  const home = homeFolder();
  const notes: string[] = [];
  const files = configFiles(home, configFile);
  const visit = (to: Destination, jumps: readonly string[] | null, own: Overrides): HostSettings[] => {
    const { settings, jump, skipped } = resolveHost(to, own, files, home);
    for (const note of skipped) if (!notes.includes(note)) notes.push(note);
    const before = jumps ?? jump;
    const last = before.at(-1);
    if (last === undefined) return [settings];
    const next = parseDestination(last, `ProxyJump of ${to.host}`);
    // A pattern that names a bastion for all hosts names it for the bastion too.
    if (jumps === null && next.host === to.host && (next.port ?? settings.port) === settings.port)
      return [settings];
    depth += 1;
    if (depth > MAX_HOPS)
      throw new MoorageError(
        "INVALID_CONFIG",
        `Cannot find a way to ${destination.host}: ProxyJump goes in a circle, or over more than ${MAX_HOPS} hosts`,
      );
    const rest = before.slice(0, -1);
    const hopPolicy = own.hostKeyPolicy === undefined ? {} : { hostKeyPolicy: own.hostKeyPolicy };
    const hopFiles = own.knownHostsFiles === undefined ? {} : { knownHostsFiles: own.knownHostsFiles };
    return [...visit(next, rest.length > 0 ? rest : null, { ...hopPolicy, ...hopFiles }), settings];
  };
  let depth = 0;
  return { hops: visit(destination, null, overrides), notes };
}

function configFiles(home: string, configFile: string | null | undefined): ConfigFile[] {
  const base = join(home, ".ssh");
  if (configFile === null) return [];
  if (configFile !== undefined) return [{ path: configFile, optional: false, private: false, base }];
  return [
    { path: join(base, "config"), optional: true, private: true, base },
    { path: "/etc/ssh/ssh_config", optional: true, private: false, base: "/etc/ssh" },
  ];
}

function resolveHost(to: Destination, own: Overrides, files: readonly ConfigFile[], home: string) {
  checkName(to.host, "host");
  if (to.user !== null) checkName(to.user, "user");
  const config = readConfig(files, { originalHost: to.host, user: to.user, port: to.port, home });
  const value = (keyword: string) => config.values.get(keyword)?.[0];
  const host = checkName(
    expandTokens(value("hostname") ?? to.host, { "%": "%", h: to.host }, "HostName").toLowerCase(),
    "host",
  );
  const portText = value("port") ?? "22";
  const port = Number(portText);
  if (!/^\d+$/.test(portText) || port < 1 || port > 65_535)
    throw new MoorageError("INVALID_CONFIG", `Cannot connect to ${to.host}: "${portText}" is no port`);
  const localUser = userInfo().username;
  const user = checkName(value("user") ?? localUser, "user");
  const alias = value("hostkeyalias");
  const tokens = tokensOf({
    host,
    originalHost: to.host,
    port,
    user,
    home,
    localUser,
    keyAlias: alias ?? to.host,
  });
  const path = (text: string, keyword: string) => expandPath(text, tokens, home, keyword);
  const isYes = (keyword: string) => /^(?:yes|true)$/i.test(value(keyword) ?? "");

  const identities = config.values.get("identityfile") ?? DEFAULT_IDENTITIES.map((name) => `~/.ssh/${name}`);
  const knownHosts = [
    ...(config.values.get("userknownhostsfile") ?? ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]),
    ...(config.values.get("globalknownhostsfile") ?? [
      "/etc/ssh/ssh_known_hosts",
      "/etc/ssh/ssh_known_hosts2",
    ]),
  ].filter((file) => file.toLowerCase() !== "none");
  const checking = value("stricthostkeychecking")?.toLowerCase();
  const skipped = [...config.notes];
  if (checking === "no" || checking === "off")
    skipped.push(
      `StrictHostKeyChecking ${checking} of ${to.host} is not followed: host keys are always checked`,
    );
  const command = value("proxycommand");
  const jumpText = value("proxyjump");
  const hasJump = jumpText !== undefined && jumpText.toLowerCase() !== "none";
  if (command !== undefined && command.toLowerCase() !== "none" && !hasJump)
    throw new MoorageError(
      "UNSUPPORTED",
      `Cannot connect to ${to.host}: its configuration has a ProxyCommand, which is never run here`,
      { suggestion: "Use ProxyJump instead of ProxyCommand for this host." },
    );
  const timeout = Number(value("connecttimeout") ?? Number.NaN);
  const settings: HostSettings = {
    name: to.host,
    host,
    port,
    user,
    hostKeyName: (alias ?? host).toLowerCase(),
    hostKeyPort: alias === undefined ? port : 22,
    identityFiles:
      own.identityFiles ??
      identities.filter((file) => file !== "none").map((file) => path(file, "IdentityFile")),
    identitiesOnly: own.identityFiles !== undefined || isYes("identitiesonly"),
    agent: own.agent === undefined ? agentSocket(value("identityagent"), path) : own.agent,
    knownHostsFiles: own.knownHostsFiles ?? knownHosts.map((file) => path(file, "UserKnownHostsFile")),
    hostKeyPolicy: own.hostKeyPolicy ?? (checking === "accept-new" ? "accept-new" : "strict"),
    hashKnownHosts: isYes("hashknownhosts"),
    connectTimeoutMs: timeout > 0 ? timeout * 1_000 : null,
  };
  const jump = hasJump
    ? expandTokens(jumpText, tokens, "ProxyJump")
        .split(",")
        .map((each) => each.trim())
    : [];
  return { settings, jump, skipped };
}

function agentSocket(
  value: string | undefined,
  path: (text: string, keyword: string) => string,
): string | null {
  const inherited = process.env.SSH_AUTH_SOCK || null;
  if (value === undefined || value === "SSH_AUTH_SOCK") return inherited;
  if (value.toLowerCase() === "none") return null;
  if (value.startsWith("$")) return process.env[value.slice(1).replace(/^\{(.*)\}$/, "$1")] || null;
  return path(value, "IdentityAgent");
}

function tokensOf(of: {
  readonly host: string;
  readonly originalHost: string;
  readonly port: number;
  readonly user: string;
  readonly home: string;
  readonly localUser: string;
  readonly keyAlias: string;
}): Readonly<Record<string, string>> {
  const local = hostname();
  return {
    "%": "%",
    h: of.host,
    n: of.originalHost,
    p: String(of.port),
    r: of.user,
    u: of.localUser,
    d: of.home,
    l: local,
    L: local.replace(/\..*$/, ""),
    i: String(process.getuid?.() ?? 0),
    k: of.keyAlias,
    C: createHash("sha1").update(`${local}${of.host}${of.port}${of.user}`).digest("hex"),
  };
}

/** @throws {MoorageError} INVALID_CONFIG for a token that is not known there */
function expandTokens(text: string, tokens: Readonly<Record<string, string>>, keyword: string): string {
  return text.replace(/%(.?)/gs, (whole, letter: string) => {
    const value = Object.hasOwn(tokens, letter) ? tokens[letter] : undefined;
    if (value === undefined)
      throw new MoorageError(
        "INVALID_CONFIG",
        `Cannot use ${keyword} "${text}": "${whole}" has no meaning there`,
      );
    return value;
  });
}

function expandPath(
  text: string,
  tokens: Readonly<Record<string, string>>,
  home: string,
  keyword: string,
): string {
  const withVariables = text.replace(/\$\{([^}]*)\}/g, (_, name: string) => {
    const value = process.env[name];
    if (value === undefined)
      throw new MoorageError(
        "INVALID_CONFIG",
        `Cannot use ${keyword} "${text}": variable ${name} is not set`,
      );
    return value;
  });
  const expanded = expandTokens(withVariables, tokens, keyword);
  if (expanded === "~") return home;
  return expanded.startsWith("~/") ? join(home, expanded.slice(2)) : expanded;
}

/** Reads `[user@]host[:port]`, also with `ssh://` before it. @throws {MoorageError} INVALID_CONFIG */
function parseDestination(text: string, where: string): Destination {
  const bare = text.replace(/^ssh:\/\//i, "").replace(/\/$/, "");
  const at = bare.lastIndexOf("@");
  const [, bracketed, plain, portText] =
    /^(?:\[([^\]]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(bare.slice(at + 1)) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined || at === 0)
    throw new MoorageError("INVALID_CONFIG", `Cannot use the ${where}: "${text}" is no [user@]host[:port]`);
  return {
    host,
    user: at < 0 ? null : bare.slice(0, at),
    port: portText === undefined ? null : Number(portText),
  };
}

/** Names that could be taken for an option, or that hold what a shell would read, go no further. */
const NAMES = {
  host: /^[^\s\p{Cc}'"`$\\;&|<>(){}*?!-][^\s\p{Cc}'"`$\\;&|<>(){}*?!]*$/u,
  user: /^[^\s\p{Cc}'"`$;&|<>(){}*?!-][^\s\p{Cc}'"`$;&|<>(){}*?!]*$/u,
};

function checkName(name: string, what: "host" | "user"): string {
  if (NAMES[what].test(name)) return name;
  throw new MoorageError("INVALID_SPEC", `Cannot connect: ${JSON.stringify(name)} is no ${what} name`);
}
