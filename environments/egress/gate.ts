/** The host's side of a place with an allow-list: a proxy on a unix socket in a folder of its own. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { CredentialOptions } from "./credentials.ts";
import { type Decision, type DecisionCounts, denialText } from "./decisions.ts";
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

/** Different refusals that one result tells. */
const NOTES_MAX = 5;

export class EgressGate {
  /** Holds the socket and nothing else. */
  readonly folder: string;
  readonly socketPath: string;
  readonly #proxy: EgressProxy;
  readonly #denials: readonly Denial[];

  private constructor(folder: string, socketPath: string, proxy: EgressProxy, denials: readonly Denial[]) {
    this.folder = folder;
    this.socketPath = socketPath;
    this.#proxy = proxy;
    this.#denials = denials;
  }

  /** @throws {MoorageError} INVALID_SPEC */
  static async open({ policy, credentials = [] }: GateOptions): Promise<EgressGate> {
    const folder = await mkdtemp(join(tmpdir(), "moorage-egress-"));
    const socketPath = join(folder, "door");
    const denials: Denial[] = [];
    try {
      const proxy = await createEgressProxy({
        policy,
        credentials,
        listen: { path: socketPath },
        onDecision: (decision) => {
          if (decision.allowed) return;
          denials.push({ at: performance.now(), text: denialText(decision) });
          if (denials.length > 200) denials.shift();
        },
      });
      return new EgressGate(folder, socketPath, proxy, denials);
    } catch (error) {
      await rm(folder, { recursive: true, force: true });
      throw error;
    }
  }

  get counts(): DecisionCounts {
    return this.#proxy.counts;
  }

  get decisions(): readonly Decision[] {
    return this.#proxy.decisions;
  }

  /** @throws {MoorageError} INVALID_SPEC */
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
    await rm(this.folder, { recursive: true, force: true });
  }
}
