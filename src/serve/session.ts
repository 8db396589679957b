/** One running place of a sandbox, from its start to a stop, a snapshot or its timeout. */
import { randomBytes } from "node:crypto";
import type { BaseEnvironment } from "../../environments/base.ts";
import type { Egress } from "../../environments/spec.ts";
import { limits } from "../limits.ts";
import { ApiError, badRequest, notFound } from "./api-error.ts";
import { type CommandRequest, ServedCommand } from "./command.ts";
import type { Place } from "./place.ts";
import { fromEgress, isSameEgress } from "./policy.ts";

export type SessionStatus = "running" | "stopping" | "snapshotting" | "stopped" | "failed";

export interface SessionOptions {
  readonly id: string;
  readonly place: Place;
  readonly timeoutMs: number;
  readonly egress: Egress;
  readonly vcpus: number | null;
  readonly sourceSnapshotId: string | null;
  /** The session's time is up. */
  readonly onTimeout: () => void;
}

const MIB_PER_VCPU = 2_048;

export function randomId(prefix: string): string {
  return `${prefix}_${randomBytes(12).toString("hex")}`;
}

export class ServedSession {
  readonly id: string;
  readonly startedAt = Date.now();
  /** On a clock that nobody sets. */
  readonly #begun = performance.now();
  readonly place: Place;
  status: SessionStatus = "running";
  #egress: Egress;
  #timeoutMs: number;
  #updatedAt = this.startedAt;
  #stoppedAt: number | null = null;
  #timer: NodeJS.Timeout | undefined;
  readonly #options: SessionOptions;
  readonly #commands = new Map<string, ServedCommand>();

  constructor(options: SessionOptions) {
    this.id = options.id;
    this.#egress = options.egress;
    this.place = options.place;
    this.#options = options;
    this.#timeoutMs = options.timeoutMs;
    this.#setTimer();
  }

  get expiresAt(): number {
    return this.startedAt + this.#timeoutMs;
  }

  /** @throws {ApiError} 410 once it has ended, 422 while it ends: the client's signs to resume the sandbox */
  requireRunning(): void {
    if (this.status === "stopping" || this.status === "snapshotting") {
      throw new ApiError(422, `sandbox_${this.status}`, `The session is ${this.status}`);
    }
    if (this.status !== "running") throw new ApiError(410, "sandbox_stopped", "The session has ended");
  }

  /** @throws {ApiError} as `requireRunning` */
  get environment(): BaseEnvironment {
    this.requireRunning();
    return this.place.environment;
  }

  /** Changes what may be reached. @throws {MoorageError} UNSUPPORTED where the environment cannot, and all stays as it was */
  async setEgress(egress: Egress): Promise<void> {
    if (isSameEgress(egress, this.#egress)) return;
    await this.environment.setEgress(egress);
    this.#egress = egress;
  }

  /** @throws {ApiError} 400 when the session would live too long */
  extend(durationMs: number): void {
    if (this.#timeoutMs + durationMs > limits.serveMaxTimeoutMs) {
      throw badRequest(`A session lives at most ${limits.serveMaxTimeoutMs} ms`);
    }
    this.#timeoutMs += durationMs;
    this.#updatedAt = Date.now();
    this.#setTimer();
  }

  start(request: CommandRequest): ServedCommand {
    const { environment } = this;
    const all = [...this.#commands.values()];
    if (all.filter(({ isRunning }) => isRunning).length >= limits.serveMaxCommands) {
      throw new ApiError(400, "too_many_commands", `${limits.serveMaxCommands} commands run already`);
    }
    const ended = all.filter(({ isRunning }) => !isRunning);
    for (const { id } of ended.slice(0, Math.max(0, ended.length - limits.serveKeptCommands + 1))) {
      this.#commands.delete(id);
    }
    const command = new ServedCommand(environment, request);
    this.#commands.set(command.id, command);
    return command;
  }

  /** @throws {ApiError} 404 when there is none, or its end was too many commands ago */
  command(id: string): ServedCommand {
    const command = this.#commands.get(id);
    if (!command) throw notFound("command");
    return command;
  }

  /** Ends every command; the place still stands. */
  async endCommands(): Promise<void> {
    const running = [...this.#commands.values()].filter(({ isRunning }) => isRunning);
    await Promise.allSettled(
      running.map(async (command) => {
        await command.cancel();
      }),
    );
  }

  /** Stops the environment. Idempotent. @throws {MoorageError} CLEANUP_FAILED naming what could not be removed */
  async end(status: "stopped" | "failed"): Promise<void> {
    clearTimeout(this.#timer);
    try {
      await this.place.environment.stop();
      await this.place.remove?.();
    } finally {
      this.status = status;
      this.#stoppedAt ??= Date.now();
      this.#updatedAt = Date.now();
    }
  }

  describe(): Readonly<Record<string, unknown>> {
    const vcpus = this.#options.vcpus ?? 1;
    const { sourceSnapshotId } = this.#options;
    return {
      id: this.id,
      vcpus,
      memory: vcpus * MIB_PER_VCPU,
      region: "local",
      timeout: this.#timeoutMs,
      status: this.status,
      requestedAt: this.startedAt,
      startedAt: this.startedAt,
      createdAt: this.startedAt,
      updatedAt: this.#updatedAt,
      cwd: this.place.environment.workspace,
      networkPolicy: fromEgress(this.#egress),
      ...(this.#stoppedAt !== null && {
        stoppedAt: this.#stoppedAt,
        duration: this.#stoppedAt - this.startedAt,
      }),
      ...(sourceSnapshotId !== null && { sourceSnapshotId }),
    };
  }

  #setTimer(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      this.#options.onTimeout,
      Math.max(0, this.#begun + this.#timeoutMs - performance.now()),
    );
    this.#timer.unref();
  }
}
