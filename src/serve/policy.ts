/** Network policies between the API's shapes and an environment's egress. */
import { isIP } from "node:net";
import { z } from "zod";
import type { Egress } from "../../environments/spec.ts";
import { badRequest, unsupported } from "./api-error.ts";

const Policy = z.union([
  z.looseObject({ mode: z.enum(["allow-all", "deny-all"]) }),
  z.strictObject({
    allow: z.union([z.array(z.string()), z.record(z.string(), z.array(z.unknown()))]).optional(),
    subnets: z
      .strictObject({ allow: z.array(z.string()).optional(), deny: z.array(z.string()).optional() })
      .optional(),
  }),
]);

/** A name, or names below one. What an environment's own rules say beside, such as `!` and ports, is not of the API. */
const DOMAIN = /^(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?$/;

/** @throws {ApiError} 400 for a policy that is malformed, or that says more than which hosts may be reached */
export function toEgress(policy: unknown): Egress {
  const parsed = Policy.safeParse(policy);
  if (!parsed.success) throw badRequest("The network policy is malformed");
  if ("mode" in parsed.data) return parsed.data.mode === "allow-all" ? "open" : "none";
  const { allow = [], subnets = {} } = parsed.data;
  const domains = Array.isArray(allow) ? allow : Object.keys(allow);
  if (!Array.isArray(allow) && Object.values(allow).some((rules) => rules.length > 0)) {
    throw unsupported("rules that change or answer requests");
  }
  const isOpen = domains.includes("*");
  const wrong =
    domains.find((domain) => domain !== "*" && (!DOMAIN.test(domain) || isIP(domain) !== 0)) ??
    [...(subnets.allow ?? []), ...(subnets.deny ?? [])].find((subnet) => !isRange(subnet));
  if (wrong !== undefined) throw badRequest(`The network policy names "${wrong}", no domain or subnet`);
  const denied = subnets.deny ?? [];
  const allowed = [...domains, ...(subnets.allow ?? [])];
  if (denied.length > 0 && (isOpen || allowed.length === 0)) {
    throw unsupported("denied subnets where everything else is allowed");
  }
  if (isOpen) return "open";
  return allowed.length === 0 ? "none" : { allow: [...allowed, ...denied.map((subnet) => `!${subnet}`)] };
}

function isRange(text: string): boolean {
  const [address = "", width = "", ...rest] = text.split("/");
  return isIP(address) !== 0 && /^\d{1,3}$/.test(width) && rest.length === 0;
}

export function fromEgress(egress: Egress): Readonly<Record<string, unknown>> {
  if (egress === "open") return { mode: "allow-all" };
  if (egress === "none") return { mode: "deny-all" };
  const allowed = egress.allow.filter((rule) => !rule.startsWith("!"));
  const denied = egress.allow.filter((rule) => rule.startsWith("!")).map((rule) => rule.slice(1));
  return {
    mode: "custom",
    allowedDomains: allowed.filter((rule) => !isRange(rule)),
    allowedCIDRs: allowed.filter(isRange),
    ...(denied.length > 0 && { deniedCIDRs: denied }),
  };
}

export function isSameEgress(one: Egress, other: Egress): boolean {
  return JSON.stringify(fromEgress(one)) === JSON.stringify(fromEgress(other));
}
