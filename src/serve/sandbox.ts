/** A named sandbox: its settings, its sessions one after the other, and the snapshot that the next one begins from. */
import { createHash } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Egress } from "../../environments/spec.ts";
import { limits } from "../limits.ts";
import { ApiError, badRequest, notFound } from "./api-error.ts";
import type { PlaceFactory } from "./place.ts";
import { fromEgress } from "./policy.ts";
import { randomId, ServedSession } from "./session.ts";
import { packWorkspace, unpackWorkspace } from "./snapshots.ts";

/** Who may see a thing. */
export interface Owner {
  readonly teamId: string;
  readonly projectId: string;
}

export interface SandboxSettings {
  persistent: boolean;
  timeoutMs: number;
  tags: Readonly<Record<string, string>>;
  env: Readonly<Record<string, string>>;
  egress: Egress;
  vcpus: number | null;
  image: string | null;
  runtime: string | null;
  /** Milliseconds that a snapshot is kept; 0 for ever. */
  snapshotExpirationMs: number;
}

export interface Snapshot {
  readonly id: string;
  readonly owner: Owner;
  readonly sandboxName: string;
  readonly sourceSessionId: string;
  readonly file: string;
  readonly sizeBytes: number;
  readonly createdAt: number;
  readonly expiresAt: number | null;
}

export interface SandboxHost {
  readonly makePlace: PlaceFactory;
  readonly snapshotFolder: string;
  readonly snapshots: Map<string, Snapshot>;
  /** All there are, of every owner. */
  readonly sandboxes: ReadonlyMap<string, Sandbox>;
  /** Whether the server is being closed: nothing may start any more. */
  readonly isClosing: () => boolean;
  /** A place was lost or could not be removed; nobody waits for an answer. */
  readonly onProblem: (error: unknown) => void;
}

const KEPT_SESSIONS = 20;

export class Sandbox {
  readonly name: string;
  readonly owner: Owner;
  readonly settings: SandboxSettings;
  readonly createdAt = Date.now();
  readonly sessions: ServedSession[] = [];
  updatedAt = this.createdAt;
  snapshotId: string | null;
  readonly #host: SandboxHost;
  readonly #id: string;
  #turn: Promise<unknown> = Promise.resolve();
  /** Starts that were asked for and have not come to their end. */
  #starts = 0;
  #isRemoved = false;

  constructor(
    host: SandboxHost,
    { name, owner, settings, snapshotId }: Pick<Sandbox, "name" | "owner" | "settings" | "snapshotId">,
  ) {
    this.#host = host;
    const identity = JSON.stringify([owner.teamId, owner.projectId, name]);
    this.#id = createHash("sha256").update(identity).digest("hex").slice(0, 20);
    this.name = name;
    this.owner = owner;
    this.settings = settings;
    this.snapshotId = snapshotId;
  }

  /** @throws {ApiError} 410 when no session was ever started */
  get session(): ServedSession {
    const session = this.sessions.at(-1);
    if (!session) throw new ApiError(410, "sandbox_stopped", "The sandbox has no session");
    return session;
  }

  /** Whether a session runs, starts or ends. */
  get isRunning(): boolean {
    return this.#starts > 0 || this.hasSession;
  }

  /** Whether there is a session that has not ended. */
  get hasSession(): boolean {
    const status = this.sessions.at(-1)?.status;
    return status !== undefined && status !== "stopped" && status !== "failed";
  }

  /** Ends the session and keeps nothing of it; no other is started after that. */
  remove(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.hasSession) await this.session.end("stopped");
      this.#isRemoved = true;
    });
  }

  /**
   * Starts a session unless one runs.
   *
   * @returns whether it did
   * @throws {ApiError} 400 `too_many_sandboxes`; 404 when it was removed meanwhile; 503 when the server is being closed
   */
  async resume(): Promise<boolean> {
    if (!this.isRunning) requireRoom(this.#host.sandboxes);
    this.#starts += 1;
    try {
      return await this.#start();
    } finally {
      this.#starts -= 1;
    }
  }

  #start(): Promise<boolean> {
    return this.#inTurn(async () => {
      if (this.#isRemoved) throw notFound("sandbox");
      if (this.#host.isClosing()) throw new ApiError(503, "closing", "The server is closing");
      if (this.sessions.at(-1)?.status === "running") return false;
      const snapshot = this.#snapshot();
      const { egress, vcpus, image, timeoutMs } = this.settings;
      const id = randomId("sbx");
      const place = await this.#host.makePlace({ sandboxId: this.#id, egress, vcpus, image });
      try {
        await place.environment.start();
        if (snapshot) await unpackWorkspace(place.environment, snapshot.file);
      } catch (error) {
        await place.environment.stop();
        await place.remove?.();
        throw error;
      }
      const session = new ServedSession({
        id,
        place,
        timeoutMs,
        egress,
        vcpus,
        sourceSnapshotId: snapshot?.id ?? null,
        onTimeout: () => void this.#expire(session),
      });
      this.sessions.push(session);
      this.sessions.splice(0, this.sessions.length - KEPT_SESSIONS);
      this.updatedAt = Date.now();
      return true;
    });
  }

  /** Ends the session; a persistent sandbox keeps its workspace for the next one. @returns the snapshot that was made */
  stop(session: ServedSession): Promise<Snapshot | null> {
    return this.#inTurn(async () => {
      if (session.status !== "running") return null;
      session.status = "stopping";
      const snapshot = this.settings.persistent
        ? await this.#pack(session, this.settings.snapshotExpirationMs)
        : null;
      await session.end("stopped");
      this.updatedAt = Date.now();
      return snapshot;
    });
  }

  /** Makes a snapshot, which ends the session. */
  snapshot(session: ServedSession, expirationMs: number): Promise<Snapshot> {
    return this.#inTurn(async () => {
      session.requireRunning();
      session.status = "snapshotting";
      const snapshot = await this.#pack(session, expirationMs);
      await session.end("stopped");
      this.updatedAt = Date.now();
      return snapshot;
    });
  }

  /** Resolves when no start or stop is under way. */
  async settled(): Promise<void> {
    await this.#turn;
  }

  /** Removes its snapshots that no other sandbox begins from. */
  async removeSnapshots(): Promise<void> {
    const { snapshots, sandboxes } = this.#host;
    const others = [...sandboxes.values()].filter((sandbox) => sandbox !== this);
    const used = new Set(others.map(({ snapshotId }) => snapshotId));
    for (const snapshot of [...snapshots.values()]) {
      const isOwn = snapshot.sandboxName === this.name && isSameOwner(snapshot.owner, this.owner);
      if (isOwn && !used.has(snapshot.id)) await removeSnapshot(snapshots, snapshot);
    }
  }

  describe(): Readonly<Record<string, unknown>> {
    const { session, settings } = this;
    return {
      name: this.name,
      persistent: settings.persistent,
      region: "local",
      timeout: settings.timeoutMs,
      networkPolicy: fromEgress(settings.egress),
      ...(settings.vcpus !== null && { vcpus: settings.vcpus, memory: settings.vcpus * 2_048 }),
      ...(settings.image !== null && { image: settings.image }),
      ...(settings.runtime !== null && { runtime: settings.runtime }),
      createdAt: this.createdAt,
      updatedAt: this.updatedAt,
      ...(session.status === "running" && { expiresAt: session.expiresAt }),
      currentSessionId: session.id,
      ...(this.snapshotId !== null && { currentSnapshotId: this.snapshotId }),
      status: session.status,
      cwd: session.describe().cwd,
      tags: settings.tags,
      snapshotExpiration: settings.snapshotExpirationMs,
    };
  }

  /** One after the other: a resume must not meet a stop half-way. */
  #inTurn<Result>(step: () => Promise<Result>): Promise<Result> {
    const turn = this.#turn.then(step);
    this.#turn = turn.catch(() => {}); // told to whoever asked
    return turn;
  }

  /** @throws {ApiError} 410 `snapshot_not_found` when it was removed or has expired */
  #snapshot(): Snapshot | null {
    if (this.snapshotId === null) return null;
    return findSnapshot(this.#host.snapshots, this.owner, this.snapshotId);
  }

  /** On failure the session goes on, since it holds what could not be kept; its commands have ended. */
  async #pack(session: ServedSession, expirationMs: number): Promise<Snapshot> {
    try {
      await session.endCommands();
      await removeExpired(this.#host.snapshots);
      const id = randomId("snap");
      const file = join(this.#host.snapshotFolder, `${id}.tar`);
      const sizeBytes = await packWorkspace(session.place.environment, file);
      const createdAt = Date.now();
      const snapshot: Snapshot = {
        id,
        owner: this.owner,
        sandboxName: this.name,
        sourceSessionId: session.id,
        file,
        sizeBytes,
        createdAt,
        expiresAt: expirationMs > 0 ? createdAt + expirationMs : null,
      };
      this.#host.snapshots.set(id, snapshot);
      this.snapshotId = id;
      return snapshot;
    } catch (error) {
      session.status = "running";
      throw error;
    }
  }

  async #expire(session: ServedSession): Promise<void> {
    try {
      await this.stop(session);
    } catch (error) {
      this.#host.onProblem(error);
      // Its time is over all the same.
      await this.#inTurn(() => session.end("failed")).catch(this.#host.onProblem);
    }
  }
}

/** @throws {ApiError} 400 when as many run as may */
function requireRoom(sandboxes: ReadonlyMap<string, Sandbox>): void {
  const running = [...sandboxes.values()].filter(({ isRunning }) => isRunning);
  if (running.length >= limits.serveMaxSandboxes) {
    throw new ApiError(400, "too_many_sandboxes", `${limits.serveMaxSandboxes} sandboxes run already`);
  }
}

/** @throws {ApiError} 410 `snapshot_not_found` */
export function findSnapshot(snapshots: ReadonlyMap<string, Snapshot>, owner: Owner, id: string): Snapshot {
  const snapshot = snapshots.get(id);
  if (!snapshot || !isSameOwner(snapshot.owner, owner) || isExpired(snapshot)) {
    throw new ApiError(410, "snapshot_not_found", `Snapshot "${id}" is gone`);
  }
  return snapshot;
}

function isSameOwner(one: Owner, other: Owner): boolean {
  return one.teamId === other.teamId && one.projectId === other.projectId;
}

/** Removes what is past its time, from the disk too. */
export async function removeExpired(snapshots: Map<string, Snapshot>): Promise<void> {
  const expired = [...snapshots.values()].filter(isExpired);
  for (const snapshot of expired) await removeSnapshot(snapshots, snapshot);
}

function isExpired({ expiresAt }: Snapshot): boolean {
  return expiresAt !== null && expiresAt <= Date.now();
}

export async function removeSnapshot(snapshots: Map<string, Snapshot>, snapshot: Snapshot): Promise<void> {
  snapshots.delete(snapshot.id);
  await rm(snapshot.file, { force: true });
}

export function describeSnapshot(
  snapshot: Snapshot,
  status: "created" | "deleted" = "created",
): Readonly<Record<string, unknown>> {
  const { id, sourceSessionId, sizeBytes, createdAt, expiresAt } = snapshot;
  return {
    id,
    sourceSessionId,
    region: "local",
    status,
    sizeBytes,
    createdAt,
    updatedAt: createdAt,
    ...(expiresAt !== null && { expiresAt }),
  };
}

/** @throws {ApiError} 400 */
export function checkTags(tags: Readonly<Record<string, string>>): void {
  if (Object.keys(tags).length > 5) throw badRequest("A sandbox has at most 5 tags");
}
