/** Routes of sandboxes and snapshots: what has a name, a project and tags. */
import { z } from "zod";
import { limits } from "../limits.ts";
import { ApiError, badRequest, notFound, unsupported } from "./api-error.ts";
import { readJson, sendJson } from "./http.ts";
import { paginate } from "./paging.ts";
import { toEgress } from "./policy.ts";
import {
  checkTags,
  describeSnapshot,
  findSnapshot,
  type Owner,
  removeExpired,
  removeSnapshot,
  Sandbox,
  type SandboxSettings,
  type Snapshot,
} from "./sandbox.ts";
import { type Exchange, mayUse, type Route, type ServerState } from "./server.ts";
import { randomId } from "./session.ts";

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
/** Words that stand where a name does in addresses. */
const TAKEN: ReadonlySet<string> = new Set(["sessions", "snapshots", "drives"]);
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;

const Settings = z.looseObject({
  timeout: z.number().int().positive().max(limits.serveMaxTimeoutMs).optional(),
  resources: z.looseObject({ vcpus: z.number().positive().optional() }).optional(),
  persistent: z.boolean().optional(),
  networkPolicy: z.unknown().optional(),
  tags: z.record(z.string(), z.string()).optional(),
  ports: z.array(z.number()).optional(),
  snapshotExpiration: z.number().int().min(0).optional(),
  keepLastSnapshots: z.unknown().optional(),
  networkId: z.unknown().optional(),
  mounts: z.record(z.string(), z.unknown()).optional(),
});

const Creation = Settings.extend({
  projectId: z.string().optional(),
  name: z.string().regex(NAME).optional(),
  runtime: z.string().optional(),
  image: z.string().optional(),
  source: z.looseObject({ type: z.string(), snapshotId: z.string().optional() }).optional(),
  env: z.record(z.string().regex(VARIABLE), z.string()).optional(),
});

const Change = Settings.extend({ currentSnapshotId: z.string().optional() });

/** What this server has none of is refused rather than left out in silence. */
function refuseUnsupported(asked: z.output<typeof Settings>): void {
  if ((asked.ports?.length ?? 0) > 0) throw unsupported("public ports");
  if (asked.networkId !== undefined) throw unsupported("private networks");
  if (Object.keys(asked.mounts ?? {}).length > 0) throw unsupported("drives");
  if (asked.keepLastSnapshots !== undefined) throw unsupported("keepLastSnapshots");
  checkTags(asked.tags ?? {});
}

/** @throws {ApiError} 403 */
function ownerOf({ query, grant }: Exchange, projectId: string | null | undefined): Owner {
  const owner = { teamId: query.get("teamId") ?? "", projectId: projectId ?? "" };
  if (mayUse(grant, owner)) return owner;
  throw new ApiError(403, "forbidden", "The token is not for this team and project");
}

function keyOf({ teamId, projectId }: Owner, name: string): string {
  return JSON.stringify([teamId, projectId, name]);
}

/** @throws {ApiError} 404, also for a sandbox of another project */
async function find(exchange: Exchange, { sandboxes }: ServerState): Promise<Sandbox> {
  const owner = ownerOf(exchange, exchange.query.get("projectId"));
  const sandbox = sandboxes.get(keyOf(owner, exchange.parts[0] ?? ""));
  if (!sandbox) throw notFound("sandbox");
  await sandbox.settled();
  if (sandboxes.get(keyOf(owner, sandbox.name)) !== sandbox) throw notFound("sandbox");
  return sandbox;
}

function describe(sandbox: Sandbox, resumed?: boolean): Readonly<Record<string, unknown>> {
  return {
    sandbox: sandbox.describe(),
    session: sandbox.session.describe(),
    routes: [],
    ...(resumed !== undefined && { resumed }),
  };
}

async function create(exchange: Exchange, state: ServerState): Promise<void> {
  const asked = await readJson(exchange.request, Creation);
  refuseUnsupported(asked);
  const owner = ownerOf(exchange, asked.projectId);
  const name = asked.name ?? randomId("sandbox");
  if (TAKEN.has(name)) throw badRequest(`A sandbox cannot be called "${name}"`);
  const key = keyOf(owner, name);
  if (state.sandboxes.has(key)) throw new ApiError(409, "conflict", `Sandbox "${name}" exists`);
  const snapshotId = startingSnapshot(asked, owner, state);
  const settings: SandboxSettings = {
    persistent: asked.persistent ?? true,
    timeoutMs: asked.timeout ?? limits.serveTimeoutMs,
    tags: asked.tags ?? {},
    env: asked.env ?? {},
    egress: asked.networkPolicy === undefined ? "open" : toEgress(asked.networkPolicy),
    vcpus: asked.resources?.vcpus ?? null,
    image: asked.image ?? null,
    runtime: asked.runtime ?? null,
    snapshotExpirationMs: asked.snapshotExpiration ?? 0,
  };
  const sandbox = new Sandbox(state, { name, owner, settings, snapshotId });
  // From here on the name is taken, also while the place comes up.
  state.sandboxes.set(key, sandbox);
  try {
    await sandbox.resume();
  } catch (error) {
    // Whoever found it meanwhile must not start it any more.
    await sandbox.remove().catch(state.onProblem);
    state.sandboxes.delete(key);
    throw error;
  }
  sendJson(exchange.response, 200, describe(sandbox));
}

function startingSnapshot(
  { source }: z.output<typeof Creation>,
  owner: Owner,
  { snapshots }: ServerState,
): string | null {
  if (!source) return null;
  if (source.type !== "snapshot" || source.snapshotId === undefined) {
    throw unsupported(`sources of type "${source.type}"`);
  }
  return findSnapshot(snapshots, owner, source.snapshotId).id;
}

async function get(exchange: Exchange, state: ServerState): Promise<void> {
  const sandbox = await find(exchange, state);
  const isWanted = exchange.query.get("resume") === "true";
  const resumed = isWanted ? await sandbox.resume() : undefined;
  sendJson(exchange.response, 200, describe(sandbox, resumed));
}

async function list(exchange: Exchange, { sandboxes }: ServerState): Promise<void> {
  const { query, response } = exchange;
  const owner = ownerOf(exchange, query.get("project") ?? query.get("projectId"));
  const prefix = query.get("namePrefix") ?? "";
  const tags = query.getAll("tags").map((tag) => {
    const [key = "", ...value] = tag.split(":");
    return [key, value.join(":")] as const;
  });
  const sortBy = query.get("sortBy") ?? "createdAt";
  const own = [...sandboxes.values()].filter(
    (sandbox) =>
      keyOf(sandbox.owner, "") === keyOf(owner, "") &&
      sandbox.sessions.length > 0 &&
      sandbox.name.startsWith(prefix) &&
      tags.every(([key, value]) => sandbox.settings.tags[key] === value),
  );
  const { items, pagination } = paginate(own, query, (sandbox) => [sortValue(sandbox, sortBy), sandbox.name]);
  sendJson(response, 200, { sandboxes: items.map((sandbox) => sandbox.describe()), pagination });
}

function sortValue(sandbox: Sandbox, sortBy: string): string | number {
  if (sortBy === "name") return sandbox.name;
  if (sortBy === "createdAt") return sandbox.createdAt;
  if (sortBy === "updatedAt" || sortBy === "statusUpdatedAt") return sandbox.updatedAt;
  throw badRequest(`Lists are not sorted by "${sortBy}"`);
}

async function patch(exchange: Exchange, state: ServerState): Promise<void> {
  const sandbox = await find(exchange, state);
  const asked = await readJson(exchange.request, Change);
  refuseUnsupported(asked);
  const { settings } = sandbox;
  const snapshot =
    asked.currentSnapshotId === undefined
      ? null
      : findSnapshot(state.snapshots, sandbox.owner, asked.currentSnapshotId);
  if (asked.networkPolicy !== undefined) {
    const egress = toEgress(asked.networkPolicy);
    if (sandbox.hasSession) await sandbox.session.setEgress(egress);
    settings.egress = egress;
  }
  if (snapshot) sandbox.snapshotId = snapshot.id;
  if (asked.persistent !== undefined) settings.persistent = asked.persistent;
  if (asked.timeout !== undefined) settings.timeoutMs = asked.timeout;
  if (asked.tags !== undefined) settings.tags = asked.tags;
  if (asked.resources?.vcpus !== undefined) settings.vcpus = asked.resources.vcpus;
  if (asked.snapshotExpiration !== undefined) settings.snapshotExpirationMs = asked.snapshotExpiration;
  sandbox.updatedAt = Date.now();
  sendJson(exchange.response, 200, { sandbox: sandbox.describe(), routes: [] });
}

async function remove(exchange: Exchange, state: ServerState): Promise<void> {
  const sandbox = await find(exchange, state);
  await sandbox.remove();
  // Its name and its place are free only now.
  state.sandboxes.delete(keyOf(sandbox.owner, sandbox.name));
  if (exchange.query.get("deleteOrphanSnapshots") === "true") await sandbox.removeSnapshots();
  sendJson(exchange.response, 200, { sandbox: sandbox.describe() });
}

/** @throws {ApiError} 404, also for a snapshot of a project that the token does not open */
function snapshotOf({ parts, query, grant }: Exchange, { snapshots }: ServerState): Snapshot {
  const snapshot = snapshots.get(parts[0] ?? "");
  const isVisible =
    snapshot && mayUse(grant, snapshot.owner) && snapshot.owner.teamId === (query.get("teamId") ?? "");
  if (!isVisible) throw notFound("snapshot");
  return snapshot;
}

async function listSnapshots(exchange: Exchange, { snapshots }: ServerState): Promise<void> {
  const { query, response } = exchange;
  const owner = ownerOf(exchange, query.get("project"));
  const name = query.get("name");
  await removeExpired(snapshots);
  const own = [...snapshots.values()].filter(
    (snapshot) =>
      keyOf(snapshot.owner, "") === keyOf(owner, "") && (name === null || snapshot.sandboxName === name),
  );
  const { items, pagination } = paginate(own, query, ({ createdAt, id }) => [createdAt, id]);
  sendJson(response, 200, { snapshots: items.map((snapshot) => describeSnapshot(snapshot)), pagination });
}

export const sandboxRoutes: readonly Route[] = [
  { method: "POST", path: [], isOnce: true, handle: create },
  { method: "GET", path: [], handle: list },
  { method: "GET", path: ["snapshots"], handle: listSnapshots },
  {
    method: "GET",
    path: ["snapshots", "*"],
    handle: async (exchange, state) => {
      await removeExpired(state.snapshots);
      sendJson(exchange.response, 200, { snapshot: describeSnapshot(snapshotOf(exchange, state)) });
    },
  },
  {
    method: "DELETE",
    path: ["snapshots", "*"],
    handle: async (exchange, state) => {
      const snapshot = snapshotOf(exchange, state);
      await removeSnapshot(state.snapshots, snapshot);
      sendJson(exchange.response, 200, { snapshot: describeSnapshot(snapshot, "deleted") });
    },
  },
  {
    method: "GET",
    path: ["drives"],
    handle: () => Promise.reject(unsupported("drives")),
  },
  { method: "GET", path: ["*"], handle: get },
  { method: "PATCH", path: ["*"], handle: patch },
  { method: "DELETE", path: ["*"], handle: remove },
  { method: "POST", path: ["*", "fork"], handle: () => Promise.reject(unsupported("forks")) },
  { method: "POST", path: ["drives", "*"], handle: () => Promise.reject(unsupported("drives")) },
];
