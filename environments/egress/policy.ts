/**
 * The policy on outbound network: what it can say, how it is read, and the one judgement that every way out asks.
 *
 * An allow-list has rules of four forms, each with an optional port and an optional `!` in front, which denies:
 * `host`, `*.host` (names below it, not itself), `*` (any name), an address or a range such as `10.1.0.0/16`.
 * Deny wins over allow, in whatever order; an empty list allows nothing. Without a port a rule speaks of 80 and 443
 * when it allows, and of every port when it denies. An address that is nobody's on the public internet, or this machine's
 * own, is reached only when a rule names it by address, whatever name led to it.
 */
import { MoorageError } from "../../src/errors.ts";
import type { EgressPolicy } from "../base.ts";
import {
  type AddressRange,
  canonicalAddress,
  embeddedAddresses,
  isOwnAddress,
  makeRange,
  specialAddress,
} from "./addresses.ts";
import { formatHost, type Host, MalformedHost, parseAuthority, parseHost } from "./host.ts";

const DEFAULT_PORTS = [80, 443];

/** Names of credential services: no `*` means them. */
const METADATA_NAMES = new Set([
  "metadata.google.internal",
  "metadata",
  "instance-data",
  "instance-data.ec2.internal",
]);

interface Rule {
  /** As written, without `!`. */
  readonly text: string;
  readonly port: number | null;
  readonly matches: (host: Host) => boolean;
  /** Whether it names addresses. */
  readonly byAddress: boolean;
  /** Whether it is `*`. */
  readonly anyName: boolean;
}

/** A policy after reading. */
export interface CompiledPolicy {
  readonly kind: "open" | "none" | "allow-list";
  /** The rules as written. */
  readonly allow: readonly string[];
  readonly deny: readonly string[];
  /** Judges a name or address before anything is resolved. */
  judge(host: Host, port: number): Verdict;
  /** Judges the address that is about to be dialled for a host that was allowed. */
  judgeAddress(address: string, port: number): Verdict;
}

export interface Verdict {
  readonly allowed: boolean;
  /** The rule that decided, or why none did. */
  readonly rule: string;
  /** The entry that would allow it, null where no entry would. */
  readonly allowWith: string | null;
}

/**
 * Reads a policy.
 *
 * @param isOwn whether a public address is this machine's
 * @throws {MoorageError} INVALID_SPEC naming the entry that is no rule
 */
export function compilePolicy(
  policy: EgressPolicy,
  isOwn: (address: string) => boolean = isOwnAddress,
): CompiledPolicy {
  const listed = typeof policy === "string" ? [] : policy.allow;
  const denied = typeof policy === "string" ? [] : (policy.deny ?? []);
  const allow = listed.filter((text) => !text.startsWith("!")).map(parseRule);
  const deny = [...listed.filter((text) => text.startsWith("!")).map((text) => text.slice(1)), ...denied].map(
    parseRule,
  );
  const kind = typeof policy === "string" ? policy : "allow-list";
  if (kind !== "open" && kind !== "none" && kind !== "allow-list")
    throw invalid(String(policy), "it is no policy");
  const find = (rules: readonly Rule[], host: Host, port: number, ports: readonly number[] | null) =>
    rules.find(
      (rule) =>
        rule.matches(host) && (rule.port === null ? (ports?.includes(port) ?? true) : rule.port === port),
    );

  const judge = (host: Host, port: number): Verdict => {
    if (kind === "open") return yes("open");
    const denial = find(deny, host, port, null);
    if (denial) return no(`!${denial.text}`, null);
    if (kind === "none") return no("none", null);
    const metadata = host.kind === "name" && METADATA_NAMES.has(host.host);
    const rule = find(metadata ? allow.filter(({ anyName }) => !anyName) : allow, host, port, DEFAULT_PORTS);
    if (rule) return yes(rule.text);
    const entry = DEFAULT_PORTS.includes(port) ? formatHost(host) : `${formatHost(host)}:${port}`;
    const other = allow.find((candidate) => candidate.matches(host));
    if (metadata) return no("metadata service", null);
    return no(other ? `port ${port} is not in "${other.text}"` : "not in the allow-list", entry);
  };

  const judgeAddress = (text: string, port: number): Verdict => {
    if (kind === "open") return yes("open");
    const host = { kind: "address", host: canonicalAddress(text) } as const;
    // A denied IPv4 range is denied in whatever IPv6 carries it too: mapped, or through a NAT64.
    for (const spelling of [host.host, ...embeddedAddresses(host.host)]) {
      const denial = find(deny, { kind: "address", host: spelling }, port, null);
      if (denial) return no(`!${denial.text}`, null);
    }
    if (kind === "none") return no("none", null);
    const byAddress = find(
      allow.filter((rule) => rule.byAddress),
      host,
      port,
      DEFAULT_PORTS,
    );
    if (byAddress) return yes(byAddress.text);
    const special =
      specialAddress(host.host) ??
      ([host.host, ...embeddedAddresses(host.host)].some(isOwn) ? "this machine's own" : null);
    if (special === null) return yes("public address");
    const entry = special === "malformed" ? null : formatHost(host);
    return no(
      `${special} address`,
      entry === null || DEFAULT_PORTS.includes(port) ? entry : `${entry}:${port}`,
    );
  };

  return {
    kind,
    allow: allow.map(({ text }) => text),
    deny: deny.map(({ text }) => text),
    judge: (host, port) => {
      const verdict = judge(host, port);
      // A request for an address is judged as such at once.
      if (!verdict.allowed || host.kind === "name") return verdict;
      return judgeAddress(host.host, port);
    },
    judgeAddress,
  };
}

function yes(rule: string): Verdict {
  return { allowed: true, rule, allowWith: null };
}

function no(rule: string, allowWith: string | null): Verdict {
  return { allowed: false, rule, allowWith };
}

function parseRule(text: string): Rule {
  const range =
    /^(?:\[([0-9A-Fa-f:.]+(?:\/\d+)?)\]|([0-9.]+\/\d+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:\/\d+)?))(?::(\d{1,5}))?$/.exec(
      text,
    );
  const wild = /^(\*\.?)(.*)$/s.exec(text);
  try {
    if (range && !/^[0-9.]+\/\d+:/.test(text))
      return addressRule(text, makeRange(range[1] ?? range[2] ?? ""), range[3]);
    const cidr = /^([0-9.]+\/\d+):(\d{1,5})$/.exec(text);
    if (cidr) return addressRule(text, makeRange(cidr[1] ?? ""), cidr[2]);
    if (wild?.[1] === "*") {
      const port = /^(?::(\d{1,5}))?$/.exec(wild[2] ?? "");
      if (!port) throw new MalformedHost("* stands alone or before a dot");
      return {
        text,
        port: readPort(port[1]),
        matches: ({ kind }) => kind === "name",
        byAddress: false,
        anyName: true,
      };
    }
    const { host, port } = parseAuthority(wild ? (wild[2] ?? "") : text);
    if (host.kind === "address") {
      if (wild) throw new MalformedHost("a wildcard stands before a name");
      return addressRule(text, makeRange(host.host), port === null ? undefined : String(port));
    }
    const matches = wild
      ? ({ kind, host: asked }: Host) => kind === "name" && asked.endsWith(`.${host.host}`)
      : ({ kind, host: asked }: Host) => kind === "name" && asked === host.host;
    return { text, port, matches, byAddress: false, anyName: false };
  } catch (error) {
    if (error instanceof MalformedHost || error instanceof TypeError) throw invalid(text, error.message);
    throw error;
  }
}

function addressRule(text: string, range: AddressRange, port: string | undefined): Rule {
  return {
    text,
    port: readPort(port),
    matches: ({ kind, host }) => kind === "address" && range.contains(host),
    byAddress: true,
    anyName: false,
  };
}

function readPort(text: string | undefined): number | null {
  if (text === undefined) return null;
  const port = Number(text);
  if (port < 1 || port > 65_535) throw new MalformedHost(`${text} is no port`);
  return port;
}

function invalid(text: string, reason: string): MoorageError {
  return new MoorageError("INVALID_SPEC", `Cannot use ${JSON.stringify(text)} as an egress rule: ${reason}`, {
    suggestion:
      "Write a host, *.host, host:port, an address or a range such as 10.1.0.0/16; ! in front denies.",
  });
}

/** Reads and judges in one step; a host that is malformed is denied, never compared. */
export function judgeText(policy: CompiledPolicy, host: string, port: number): Verdict {
  try {
    return policy.judge(parseHost(host), port);
  } catch (error) {
    if (error instanceof MalformedHost) return no(`malformed host: ${error.message}`, null);
    throw error;
  }
}
