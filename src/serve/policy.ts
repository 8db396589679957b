/** Network policies between the API's shapes and an environment's egress. */
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
  if ((subnets.deny ?? []).length > 0) throw unsupported("denied subnets");
  const rules = [...domains, ...(subnets.allow ?? [])];
  if (rules.includes("*")) return "open";
  return rules.length === 0 ? "none" : { allow: rules };
}

export function fromEgress(egress: Egress): Readonly<Record<string, unknown>> {
  if (egress === "open") return { mode: "allow-all" };
  if (egress === "none") return { mode: "deny-all" };
  const isRange = (rule: string): boolean => rule.includes("/");
  return {
    mode: "custom",
    allowedDomains: egress.allow.filter((rule) => !isRange(rule)),
    allowedCIDRs: egress.allow.filter(isRange),
  };
}

export function isSameEgress(one: Egress, other: Egress): boolean {
  return JSON.stringify(fromEgress(one)) === JSON.stringify(fromEgress(other));
}
