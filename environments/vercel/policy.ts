/** An egress policy in the words of the API: what they can say, and whether a server reports what it was asked for. */
import { isIP } from "node:net";
import type { NetworkPolicy } from "@vercel/sandbox";
import { MoorageError } from "../../src/errors.ts";
import type { EgressPolicy } from "../base.ts";
import { compilePolicy } from "../egress/policy.ts";

/** A policy as it is sent: hosts, `*.` hosts and address ranges, each without a port. */
export type SentPolicy =
  | "allow-all"
  | "deny-all"
  | {
      readonly allow: string[];
      readonly subnets?: { readonly allow?: string[]; readonly deny?: string[] };
    };

/**
 * The API knows no ports: what it allows it allows on each.
 *
 * @throws {MoorageError} INVALID_SPEC for what is no rule; UNSUPPORTED for a rule that the API has no words for
 */
export function toNetworkPolicy(egress: EgressPolicy): SentPolicy {
  const { kind, allow, deny } = compilePolicy(egress);
  if (kind === "open") return "allow-all";
  const allowed = allow.map((rule) => readRule(rule, rule));
  const denied = deny.map((rule) => readRule(rule, `!${rule}`));
  const deniedHost = denied.find(({ isRange }) => !isRange);
  if (deniedHost) throw unsupported(deniedHost.written, "denies addresses only, no names");
  const hosts = allowed.filter(({ isRange }) => !isRange).map(({ text }) => text);
  const ranges = allowed.filter(({ isRange }) => isRange).map(({ text }) => text);
  // An empty list allows nothing, whatever it denies beside.
  if (hosts.length + ranges.length === 0) return "deny-all";
  const subnets = {
    ...(ranges.length > 0 && { allow: ranges }),
    ...(denied.length > 0 && { deny: denied.map(({ text }) => text) }),
  };
  return { allow: hosts, ...(Object.keys(subnets).length > 0 && { subnets }) };
}

interface ReadRule {
  readonly written: string;
  readonly text: string;
  readonly isRange: boolean;
}

function readRule(rule: string, written: string): ReadRule {
  if (rule === "*") throw unsupported(written, "would open more than names; say open instead");
  const bare = rule.replace(/^\[(.*)\]$/, "$1");
  const [address = "", width] = bare.split("/");
  const version = isIP(address);
  if (version !== 0 && !width?.includes(":")) {
    return { written, text: `${address}/${width ?? (version === 4 ? 32 : 128)}`, isRange: true };
  }
  if (bare.includes(":")) throw unsupported(written, "allows and denies on every port");
  return { written, text: rule.toLowerCase().replace(/\.$/, ""), isRange: false };
}

function unsupported(rule: string, why: string): MoorageError {
  return new MoorageError(
    "UNSUPPORTED",
    `Cannot use "${rule}" as an egress rule of a sandbox: its API ${why}`,
    {
      suggestion: "Write hosts, *. hosts and address ranges without ports.",
    },
  );
}

/** Whether the policy that a server reports says the same. One that changes or forwards requests says more. */
export function isSamePolicy(sent: SentPolicy, reported: NetworkPolicy | undefined): boolean {
  return reported !== undefined && canonical(sent) === canonical(reported);
}

function canonical(policy: NetworkPolicy | SentPolicy): string {
  if (typeof policy === "string") return policy;
  const { allow = [], subnets } = policy;
  const hosts = Array.isArray(allow)
    ? allow
    : Object.entries(allow).map(([host, rules]) => (rules.length === 0 ? host : `${host} with rules`));
  const lists = [hosts, subnets?.allow ?? [], subnets?.deny ?? []].map((list) =>
    [...new Set(list.map((entry) => entry.toLowerCase()))].sort(),
  );
  const [names = [], ranges = []] = lists;
  return names.length + ranges.length === 0 ? "deny-all" : JSON.stringify(lists);
}
