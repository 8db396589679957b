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
  readonly knownHostsFiles: readonly string[];
  /** Takes new keys; null where there is none that is the user's own. */
  readonly newKeysFile: string | null;
  /** Keys by which no host is known, whoever shows them; null for no such file. */
  readonly revokedKeysFile: string | null;
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
    jump: value("proxyjump") ?? "",
  });
  const path = (text: string, keyword: string) => expandPath(text, tokens, home, keyword);
  const isYes = (keyword: string) => /^(?:yes|true)$/i.test(value(keyword) ?? "");

  const identities = config.values.get("identityfile") ?? DEFAULT_IDENTITIES.map((name) => `~/.ssh/${name}`);
  const knownHosts = (keyword: string, usual: readonly string[]) =>
    (config.values.get(keyword) ?? usual)
      .filter((file) => file.toLowerCase() !== "none")
      .map((file) => path(file, keyword));
  const userHosts = knownHosts("userknownhostsfile", ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]);
  const globalHosts = knownHosts("globalknownhostsfile", [
    "/etc/ssh/ssh_known_hosts",
    "/etc/ssh/ssh_known_hosts2",
  ]);
  const revoked = value("revokedhostkeys") ?? "none";
  const checking = value("stricthostkeychecking")?.toLowerCase();
  const skipped = [...config.notes];
  if (checking === "no" || checking === "off")
    skipped.push(
      `StrictHostKeyChecking ${checking} of ${to.host} is not followed: host keys are always checked`,
    );
  const ignored = UNFOLLOWED.filter(({ keyword }) => !/^(?:no|none)$/i.test(value(keyword) ?? "none"));
  skipped.push(...ignored.map(({ name }) => `${name} of ${to.host} is not followed`));
  const command = value("proxycommand");
  const jumpText = value("proxyjump");
  const hasJump = jumpText !== undefined && jumpText.toLowerCase() !== "none";
  if (command !== undefined && command.toLowerCase() !== "none" && !hasJump)
    throw new MoorageError(
      "UNSUPPORTED",
      `Cannot connect to ${to.host}: its configuration has a ProxyCommand, which is never run here`,
      { suggestion: "Use ProxyJump instead of ProxyCommand for this host." },
    );
  const settings: HostSettings = {
    name: to.host,
    host,
    port,
    user,
    hostKeyName: (alias ?? host).toLowerCase(),
    hostKeyPort: alias === undefined ? port : 22,
    identityFiles:
      own.identityFiles ??
      identities.filter((file) => file.toLowerCase() !== "none").map((file) => path(file, "IdentityFile")),
    identitiesOnly: own.identityFiles !== undefined || isYes("identitiesonly"),
    agent: own.agent === undefined ? agentSocket(value("identityagent"), path) : own.agent,
    knownHostsFiles: own.knownHostsFiles ?? [...userHosts, ...globalHosts],
    newKeysFile: (own.knownHostsFiles ?? userHosts)[0] ?? null,
    revokedKeysFile: revoked.toLowerCase() === "none" ? null : path(revoked, "RevokedHostKeys"),
    hostKeyPolicy: own.hostKeyPolicy ?? (checking === "accept-new" ? "accept-new" : "strict"),
    hashKnownHosts: isYes("hashknownhosts"),
    connectTimeoutMs: timeoutMs(value("connecttimeout") ?? "none", to.host),
  };
  const jump = hasJump
    ? expandTokens(jumpText, tokens, "ProxyJump")
        .split(",")
        .map((each) => each.trim())
    : [];
  return { settings, jump, skipped };
}

/** What changes who is trusted or shown, and is left out of account; a note tells. */
const UNFOLLOWED = [
  { keyword: "canonicalizehostname", name: "CanonicalizeHostname" },
  { keyword: "knownhostscommand", name: "KnownHostsCommand" },
  { keyword: "certificatefile", name: "CertificateFile" },
] as const;

const SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400, w: 604_800 };

/** A time as ssh writes it: seconds, or `1m30s`; null for none. @throws {MoorageError} INVALID_CONFIG */
function timeoutMs(text: string, host: string): number | null {
  if (text.toLowerCase() === "none") return null;
  if (!/^(?:\d+[smhdw]?)+$/i.test(text))
    throw new MoorageError(
      "INVALID_CONFIG",
      `Cannot connect to ${host}: ConnectTimeout "${text}" is no time`,
    );
  let seconds = 0;
  for (const [, count, unit = ""] of text.matchAll(/(\d+)([smhdw]?)/gi)) {
    seconds += Number(count) * (SECONDS[unit.toLowerCase()] ?? 1);
  }
  // A timer takes no more.
  return seconds === 0 ? null : Math.min(seconds * 1_000, 2 ** 31 - 1);
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
  readonly jump: string;
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
    j: of.jump,
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
