/** The host's side of a place with an allow-list: a proxy, and the listener by which the place reaches it. */
import { mkdtemp, rm } from "node:fs/promises";
import type { Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EgressReport } from "../base.ts";
import type { CredentialOptions } from "./credentials.ts";
import { denialText } from "./decisions.ts";
import { DOOR_SOCKET } from "./door.ts";
import type { EgressPolicy } from "./policy.ts";
import { createEgressProxy, type EgressProxy } from "./proxy.ts";

export interface GateOptions {
  readonly policy: EgressPolicy;
  readonly credentials?: readonly CredentialOptions[];
}

interface Denial {
  /** performance.now() */
  readonly at: number;
  readonly text: string;
}

/** Refusals of a report. */
const REFUSALS_MAX = 20;
/** Different refusals that one result tells. */
const NOTES_MAX = 5;

/** Of a place with this policy; null where it is open. */
export function reportOf(policy: EgressPolicy, gate: EgressGate | null): EgressReport | null {
  if (policy === "open") return null;
  return (
    gate?.report() ?? {
      policy: policy === "none" ? "none" : "allow-list",
      allowed: 0,
      denied: 0,
      refusals: [],
    }
  );
}

export class EgressGate {
  #folder: string | null = null;
  readonly #proxy: EgressProxy;
  readonly #denials: readonly Denial[];

  private constructor(proxy: EgressProxy, denials: readonly Denial[]) {
    this.#proxy = proxy;
    this.#denials = denials;
  }

  /** @throws {MoorageError} INVALID_SPEC */
  static async open({ policy, credentials = [] }: GateOptions): Promise<EgressGate> {
    const denials: Denial[] = [];
    const proxy = await createEgressProxy({
      policy,
      credentials,
      onDecision: (decision) => {
        if (decision.allowed) return;
        denials.push({ at: performance.now(), text: denialText(decision) });
        if (denials.length > 200) denials.shift();
      },
    });
    return new EgressGate(proxy, denials);
  }

  /**
   * Listens on a unix socket, `DOOR_SOCKET` in a new folder that holds nothing else. Once.
   * @returns the folder, mode 0700
   */
  async openSocket(): Promise<string> {
    this.#folder ??= await mkdtemp(join(tmpdir(), "moorage-egress-"));
    await this.#proxy.listen({ path: join(this.#folder, DOOR_SOCKET) });
    return this.#folder;
  }

  /** Listens on a port that was opened inside the place. */
  adopt(listener: Server): void {
    this.#proxy.adopt(listener);
  }

  report(): EgressReport {
    const refusals = this.#proxy.decisions.filter(({ allowed }) => !allowed).map(denialText);
    return { policy: "allow-list", ...this.#proxy.counts, refusals: refusals.slice(-REFUSALS_MAX) };
  }

  /** Changes the policy while running; see `EgressProxy`. @throws {MoorageError} INVALID_SPEC */
  setPolicy(policy: EgressPolicy): void {
    this.#proxy.setPolicy(policy);
  }

  /** One sentence for each different refusal since then. */
  refusalsSince(startedAt: number): readonly string[] {
    const texts = new Set(this.#denials.filter(({ at }) => at >= startedAt).map(({ text }) => text));
    const told = [...texts].slice(0, NOTES_MAX);
    return texts.size > NOTES_MAX
      ? [...told, `${texts.size - NOTES_MAX} more refusals of the egress policy`]
      : told;
  }

  /** Nothing gets out after this. Idempotent. */
  async close(): Promise<void> {
    await this.#proxy.close();
    if (this.#folder !== null) await rm(this.#folder, { recursive: true, force: true });
  }
}
