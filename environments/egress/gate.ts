/** The host's side of a place with an allow-list: a proxy, and the listener by which the place reaches it. */
import { mkdtemp, rm } from "node:fs/promises";
import type { Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { MoorageError } from "../../src/errors.ts";
import type { EgressCredential, EgressPolicy, EgressReport } from "../base.ts";
import { type Decision, denialText } from "./decisions.ts";
import { DOOR_SOCKET, GATE_FOLDER } from "./door.ts";
import { compilePolicy } from "./policy.ts";
import { createEgressProxy, type EgressProxy } from "./proxy.ts";
import { removeGate, sweepGates, writeGate } from "./record.ts";

export interface GateOptions {
  readonly policy: EgressPolicy;
  readonly credentials?: readonly EgressCredential[];
  /** Where another program finds what was decided. @default no record */
  readonly record?: { readonly stateDir: string; readonly id: string };
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
/** Decisions in a record. */
const RECORDED_MAX = 20;
/** A record is written at most this often, milliseconds. */
const RECORD_EVERY_MS = 500;

/** Of a place with this policy; null where it is open. */
export function reportOf(policy: EgressPolicy, gate: EgressGate | null): EgressReport | null {
  if (policy === "open") return null;
  return gate?.report() ?? { policy: kindOf(policy), allowed: 0, denied: 0, refusals: [] };
}

/**
 * Checks that a place that was made with one policy can have another.
 *
 * @throws {MoorageError} INVALID_SPEC, UNSUPPORTED
 */
export function requireChangeable(made: EgressPolicy, policy: EgressPolicy): void {
  const { kind } = compilePolicy(policy);
  if (typeof made === "string" ? made === kind : kind !== "open") return;
  throw new MoorageError(
    "UNSUPPORTED",
    typeof made === "string"
      ? `Cannot change the egress policy: the environment was made with "${made}", and so without a door`
      : "Cannot open the network: the environment has a door and nothing else",
    {
      suggestion:
        'Make the environment with an allow-list, an empty one if need be; its rules can change, "*" among them.',
    },
  );
}

export class EgressGate {
  #folder: string | null = null;
  #policy: EgressPolicy;
  #recording: NodeJS.Timeout | null = null;
  #recorded: Promise<void> = Promise.resolve();
  #closed = false;
  readonly #proxy: EgressProxy;
  readonly #denials: Denial[] = [];
  readonly #record: NonNullable<GateOptions["record"]> | null;

  private constructor({ policy, record }: GateOptions, proxy: EgressProxy) {
    this.#policy = policy;
    this.#record = record ?? null;
    this.#proxy = proxy;
  }

  /** @throws {MoorageError} INVALID_SPEC */
  static async open(options: GateOptions): Promise<EgressGate> {
    const { policy, credentials = [], record } = options;
    if (record) await sweepGates(record.stateDir);
    let hear: (decision: Decision) => void = () => {};
    const onDecision = (decision: Decision) => hear(decision);
    const gate = new EgressGate(options, await createEgressProxy({ policy, credentials, onDecision }));
    hear = (decision) => gate.#hear(decision);
    await gate.#writeRecord();
    return gate;
  }

  /**
   * Listens on a unix socket, `DOOR_SOCKET` in a new folder that holds nothing else. Once.
   * @returns the folder, mode 0700
   */
  async openSocket(): Promise<string> {
    this.#folder ??= await mkdtemp(join(tmpdir(), GATE_FOLDER));
    await this.#writeRecord();
    await this.#proxy.listen({ path: join(this.#folder, DOOR_SOCKET) });
    return this.#folder;
  }

  /** Listens on a port that was opened inside the place. */
  adopt(listener: Server): void {
    this.#proxy.adopt(listener);
  }

  report(): EgressReport {
    const refusals = this.#proxy.decisions.filter(({ allowed }) => !allowed).map(denialText);
    return { policy: kindOf(this.#policy), ...this.#proxy.counts, refusals: refusals.slice(-REFUSALS_MAX) };
  }

  /** Changes the policy while running; see `EgressProxy`. @throws {MoorageError} INVALID_SPEC */
  setPolicy(policy: EgressPolicy): void {
    this.#proxy.setPolicy(policy);
    this.#policy = policy;
    this.#recordSoon();
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
    this.#closed = true;
    if (this.#recording) clearTimeout(this.#recording);
    await this.#proxy.close();
    await this.#recorded;
    if (this.#folder !== null) await rm(this.#folder, { recursive: true, force: true });
    if (this.#record) await removeGate(this.#record.stateDir, this.#record.id);
  }

  #hear(decision: Decision): void {
    this.#recordSoon();
    if (decision.allowed) return;
    this.#denials.push({ at: performance.now(), text: denialText(decision) });
    if (this.#denials.length > 200) this.#denials.shift();
  }

  #recordSoon(): void {
    if (!this.#record || this.#recording || this.#closed) return;
    this.#recording = setTimeout(() => {
      this.#recording = null;
      // A list for people that is late is no reason to stop what it tells of.
      this.#writeRecord().catch(() => {});
    }, RECORD_EVERY_MS);
    this.#recording.unref();
  }

  /** One after the other, as they share a file. */
  #writeRecord(): Promise<void> {
    const written = this.#recorded.then(() => this.#writeNow());
    this.#recorded = written.catch(() => {}); // its own caller is told
    return written;
  }

  async #writeNow(): Promise<void> {
    if (!this.#record || this.#closed) return;
    const { stateDir, id } = this.#record;
    await writeGate(stateDir, {
      id,
      policy: kindOf(this.#policy),
      ...this.#proxy.counts,
      decisions: [...this.#proxy.decisions.slice(-RECORDED_MAX)],
      folder: this.#folder,
    });
  }
}

function kindOf(policy: EgressPolicy): EgressReport["policy"] {
  return policy === "none" ? "none" : "allow-list";
}
