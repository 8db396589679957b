/** Routes of sessions: commands, files, time, end. */
import { constants } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";
import { toMoorageError } from "../errors.ts";
import { limits } from "../limits.ts";
import { badRequest, notFound, toApiError, unsupported } from "./api-error.ts";
import type { ServedCommand } from "./command.ts";
import { readPieces, writeArchive } from "./files.ts";
import { readBody, readJson, sendJson, startLines, whenGone, write } from "./http.ts";
import type { LogLine } from "./log.ts";
import { paginate } from "./paging.ts";
import { toEgress } from "./policy.ts";
import { describeSnapshot, type Sandbox } from "./sandbox.ts";
import { type Exchange, mayUse, type Route, type ServerState } from "./server.ts";
import type { ServedSession } from "./session.ts";

const Environment = z.record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/), z.string());

const CommandBody = z.looseObject({
  command: z.string(),
  args: z.array(z.string()).default([]),
  cwd: z.string().optional(),
  env: Environment.default({}),
  sudo: z.boolean().default(false),
  wait: z.boolean().default(false),
  logs: z.boolean().default(false),
  timeout: z.number().int().positive().max(limits.serveMaxTimeoutMs).optional(),
});

const PathBody = z.looseObject({ path: z.string().min(1), cwd: z.string().optional() });

interface Found {
  readonly sandbox: Sandbox;
  readonly session: ServedSession;
}

/** @throws {ApiError} 404, also for a session of a team or project that the token does not open */
function find({ parts, query, grant }: Exchange, { sandboxes }: ServerState): Found {
  for (const sandbox of sandboxes.values()) {
    if (sandbox.owner.teamId !== (query.get("teamId") ?? "") || !mayUse(grant, sandbox.owner)) continue;
    const session = sandbox.sessions.find(({ id }) => id === parts[0]);
    if (session) return { sandbox, session };
  }
  throw notFound("session");
}

async function runCommand(exchange: Exchange, state: ServerState): Promise<void> {
  const { request, response } = exchange;
  const { sandbox, session } = find(exchange, state);
  session.requireRunning();
  const { wait, timeout, env, ...asked } = await readJson(request, CommandBody);
  const command = session.start({
    command: asked.command,
    args: asked.args,
    cwd: asked.cwd,
    env: { ...sandbox.settings.env, ...env },
    sudo: asked.sudo,
    timeoutMs: timeout,
  });
  await told(command);
  if (!wait) return sendJson(response, 200, { command: command.describe(session.id) });
  startLines(response);
  const isHeard = await write(
    response,
    line({ command: { ...command.describe(session.id), exitCode: null } }),
  );
  // A client that is gone has not asked for the command's end.
  if (isHeard) await sendLog(exchange, command, asked.logs);
  await command.ended.then(
    () => write(response, line({ command: command.describe(session.id) })),
    (error: unknown) => write(response, line(streamError(error))),
  );
  response.end();
}

/**
 * Waits until it is known whether the command runs, so that a refusal is told by a status; not for long, since a client
 * takes silence for a loss.
 *
 * @throws what kept it from running
 */
async function told(command: ServedCommand): Promise<void> {
  const patience = new AbortController();
  const late = delay(limits.serveFirstWordMs, undefined, { signal: patience.signal }).catch(() => {});
  await Promise.race([command.started, late]).finally(() => patience.abort());
}

function line(value: unknown): string {
  return `${JSON.stringify(value)}\n`;
}

function streamError(error: unknown): Readonly<Record<string, unknown>> {
  const { code, message } = toApiError(toMoorageError(error), false);
  return { stream: "error", data: { code, message } };
}

async function sendLog({ response }: Exchange, command: ServedCommand, isWanted: boolean): Promise<void> {
  if (!isWanted) return;
  for await (const lines of command.log.follow(whenGone(response))) {
    if (!(await write(response, lines.map((each: LogLine) => line(each)).join("")))) return;
  }
}

async function getCommand(exchange: Exchange, state: ServerState): Promise<void> {
  const { session } = find(exchange, state);
  const command = session.command(exchange.parts[1] ?? "");
  if (exchange.query.get("wait") === "true") await command.ended;
  sendJson(exchange.response, 200, { command: command.describe(session.id) });
}

async function getLogs(exchange: Exchange, state: ServerState): Promise<void> {
  const { session } = find(exchange, state);
  const command = session.command(exchange.parts[1] ?? "");
  startLines(exchange.response);
  exchange.response.flushHeaders();
  await sendLog(exchange, command, true);
  await command.ended.catch((error: unknown) => write(exchange.response, line(streamError(error))));
  exchange.response.end();
}

async function kill(exchange: Exchange, state: ServerState): Promise<void> {
  const { session } = find(exchange, state);
  session.requireRunning();
  const command = session.command(exchange.parts[1] ?? "");
  const { signal } = await readJson(
    exchange.request,
    z.looseObject({ signal: z.number().default(constants.signals.SIGTERM) }),
  );
  if (!Object.values(constants.signals).some((number) => number === signal)) {
    throw badRequest(`There is no signal ${signal}`);
  }
  await command.signal(signal);
  sendJson(exchange.response, 200, { command: command.describe(session.id) });
}

async function makeFolder(exchange: Exchange, state: ServerState): Promise<void> {
  const { session } = find(exchange, state);
  const { path, cwd } = await readJson(exchange.request, PathBody);
  await session.environment.files.mkdir(path, cwd === undefined ? {} : { cwd });
  sendJson(exchange.response, 200, {});
}

async function writeFiles(exchange: Exchange, state: ServerState): Promise<void> {
  const { request, response } = exchange;
  const { session } = find(exchange, state);
  session.requireRunning();
  const root = request.headers["x-cwd"];
  if (typeof root !== "string") throw badRequest("x-cwd is missing");
  const archive = await readBody(request, limits.serveArchiveMaxBytes);
  await writeArchive(session.environment, root, archive);
  sendJson(response, 200, {});
}

async function readFile(exchange: Exchange, state: ServerState): Promise<void> {
  const { request, response } = exchange;
  const { session } = find(exchange, state);
  const { path, cwd } = await readJson(request, PathBody);
  const pieces = await readPieces(session.environment, path, cwd);
  if (pieces === null) throw notFound("file");
  response.writeHead(200, { "content-type": "application/octet-stream" });
  try {
    for await (const piece of pieces) if (!(await write(response, piece))) return;
    response.end();
  } catch (error) {
    // The status is out already: a cut connection is the only way to tell that this is not the whole file.
    response.destroy();
    throw error;
  }
}

async function setPolicy(exchange: Exchange, state: ServerState): Promise<void> {
  const { session } = find(exchange, state);
  session.requireRunning();
  const egress = toEgress(await readJson(exchange.request, z.unknown()));
  await session.setEgress(egress);
  sendJson(exchange.response, 200, { session: session.describe() });
}

async function extend(exchange: Exchange, state: ServerState): Promise<void> {
  const { session } = find(exchange, state);
  session.requireRunning();
  const { duration } = await readJson(
    exchange.request,
    z.looseObject({ duration: z.number().int().positive() }),
  );
  session.extend(duration);
  sendJson(exchange.response, 200, { session: session.describe() });
}

async function stop(exchange: Exchange, state: ServerState): Promise<void> {
  const { sandbox, session } = find(exchange, state);
  const snapshot = await sandbox.stop(session);
  sendJson(exchange.response, 200, {
    session: session.describe(),
    sandbox: sandbox.describe(),
    ...(snapshot && { snapshot: describeSnapshot(snapshot) }),
  });
}

async function makeSnapshot(exchange: Exchange, state: ServerState): Promise<void> {
  const { sandbox, session } = find(exchange, state);
  session.requireRunning();
  const { expiration = sandbox.settings.snapshotExpirationMs } = await readJson(
    exchange.request,
    z.looseObject({ expiration: z.number().int().min(0).optional() }),
  );
  const snapshot = await sandbox.snapshot(session, expiration);
  sendJson(exchange.response, 200, { snapshot: describeSnapshot(snapshot), session: session.describe() });
}

async function listSessions(exchange: Exchange, { sandboxes }: ServerState): Promise<void> {
  const { query, grant, response } = exchange;
  const project = query.get("project") ?? "";
  const name = query.get("name");
  const sessions = [...sandboxes.values()]
    .filter(
      (sandbox) =>
        mayUse(grant, sandbox.owner) &&
        sandbox.owner.teamId === (query.get("teamId") ?? "") &&
        sandbox.owner.projectId === project &&
        (name === null || sandbox.name === name),
    )
    .flatMap((sandbox) => sandbox.sessions);
  const { items, pagination } = paginate(sessions, query, ({ startedAt, id }) => [startedAt, id]);
  sendJson(response, 200, { sessions: items.map((session) => session.describe()), pagination });
}

export const sessionRoutes: readonly Route[] = [
  { method: "GET", path: ["sessions"], handle: listSessions },
  {
    method: "GET",
    path: ["sessions", "*"],
    handle: async (exchange, state) => {
      const { session } = find(exchange, state);
      sendJson(exchange.response, 200, { session: session.describe(), routes: [] });
    },
  },
  { method: "POST", path: ["sessions", "*", "cmd"], isOnce: true, handle: runCommand },
  { method: "GET", path: ["sessions", "*", "cmd", "*"], handle: getCommand },
  { method: "GET", path: ["sessions", "*", "cmd", "*", "logs"], handle: getLogs },
  { method: "POST", path: ["sessions", "*", "cmd", "*", "kill"], isOnce: true, handle: kill },
  { method: "POST", path: ["sessions", "*", "fs", "mkdir"], handle: makeFolder },
  { method: "POST", path: ["sessions", "*", "fs", "write"], handle: writeFiles },
  { method: "POST", path: ["sessions", "*", "fs", "read"], handle: readFile },
  { method: "POST", path: ["sessions", "*", "network-policy"], handle: setPolicy },
  { method: "POST", path: ["sessions", "*", "extend-timeout"], isOnce: true, handle: extend },
  { method: "POST", path: ["sessions", "*", "stop"], isOnce: true, handle: stop },
  { method: "POST", path: ["sessions", "*", "snapshot"], isOnce: true, handle: makeSnapshot },
  {
    method: "POST",
    path: ["sessions", "*", "interactive"],
    handle: () => Promise.reject(unsupported("terminals")),
  },
];
