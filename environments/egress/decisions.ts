/** What the proxy decided: counted for ever, the last ones kept. */
import { limits } from "../../src/limits.ts";

export interface Decision {
  /** ISO 8601. */
  readonly at: string;
  readonly way: "http" | "connect" | "socks5";
  /** As asked for, at most 300 characters. */
  readonly host: string;
  /** 0 when none could be read. */
  readonly port: number;
  /** The address that was judged; null when it did not come to that. */
  readonly address: string | null;
  readonly allowed: boolean;
  /** The rule that decided, or why none did. */
  readonly rule: string;
  /** The entry of an allow-list that would allow it; null where none would. */
  readonly allowWith: string | null;
}

export interface DecisionCounts {
  readonly allowed: number;
  readonly denied: number;
}

export class DecisionLog {
  readonly #kept: Decision[] = [];
  readonly #onDecision: ((decision: Decision) => void) | undefined;
  #allowed = 0;
  #denied = 0;

  constructor(onDecision?: (decision: Decision) => void) {
    this.#onDecision = onDecision;
  }

  add(entry: Omit<Decision, "at">): void {
    const decision = { at: new Date().toISOString(), ...entry, host: entry.host.slice(0, 300) };
    if (decision.allowed) this.#allowed += 1;
    else this.#denied += 1;
    this.#kept.push(decision);
    if (this.#kept.length > limits.egressDecisionsKept) this.#kept.shift();
    this.#onDecision?.(decision);
  }

  get counts(): DecisionCounts {
    return { allowed: this.#allowed, denied: this.#denied };
  }

  /** The last ones, oldest first. */
  get kept(): readonly Decision[] {
    return [...this.#kept];
  }
}

/** One sentence for whoever was refused, which says that trying again is of no use. */
export function denialText({
  host,
  port,
  address,
  rule,
  allowWith,
}: Pick<Decision, "host" | "port" | "address" | "rule" | "allowWith">): string {
  // The host may be anything that a hostile client sent.
  const shown = JSON.stringify(`${host}:${port}`.slice(0, 310));
  // The name passed, and what it stands for did not.
  const isOfName = address !== null && allowWith !== null && ADDRESS_RULE.test(allowWith);
  const why = isOfName ? `the name resolved to ${address}, ${rule}` : rule;
  const beside = isOfName ? " beside the one that allows the name: both are needed" : "";
  const remedy =
    allowWith === null ? "" : `; the operator could allow it with the egress rule "${allowWith}"${beside}`;
  return `Blocked by policy: ${shown} (${why}). Do not retry and do not look for another way${remedy}`;
}

/** An address as a rule has it, with or without a port. */
const ADDRESS_RULE = /^(?:\[[^\]]+\]|\d+(?:\.\d+){3})(?::\d+)?$/;
