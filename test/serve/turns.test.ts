/** What clients ask of one served sandbox, or of the whole server, at the same time. */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { limits } from "../../src/limits.ts";
import type { Place } from "../../src/serve/place.ts";
import { createSandboxServer, type SandboxServer } from "../../src/serve/server.ts";
import { EmptyEnvironment } from "../src/fake-environment.ts";

/** Places that are started and not stopped. */
let running: Set<EmptyEnvironment>;
/** What a place that starts waits for. */
let gate: Promise<void>;
let starting: number;
let server: SandboxServer;
let address: string;
let root: string;

class CountedEnvironment extends EmptyEnvironment {
  override async start(): Promise<void> {
    starting += 1;
    await gate;
    running.add(this);
  }

  override async stop(): Promise<void> {
    running.delete(this);
  }
}

beforeEach(async () => {
  running = new Set();
  gate = Promise.resolve();
  starting = 0;
  root = await mkdtemp(join(tmpdir(), "moorage-turns-"));
  server = createSandboxServer({
    makePlace: async (): Promise<Place> => ({ environment: new CountedEnvironment() }),
    grants: [{ token: "t" }],
    stateDir: root,
  });
  address = await server.listen();
});
afterEach(async () => {
  vi.useRealTimers();
  await server.close();
  await rm(root, { recursive: true, force: true });
});

const QUERY = "teamId=team&projectId=project";
const HEADERS = { authorization: "Bearer t" };

async function ask(method: string, path: string, body?: object): Promise<{ status: number; body: unknown }> {
  const response = await fetch(`${address}/v2/sandboxes${path}${path.includes("?") ? "&" : "?"}${QUERY}`, {
    method,
    headers: HEADERS,
    ...(body && { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: await response.json() };
}

function create(name: string, more: object = {}): ReturnType<typeof ask> {
  return ask("POST", "", { projectId: "project", name, persistent: false, ...more });
}

/** Id of the session of an answer. */
function sessionOf({ body }: { body: unknown }): string {
  return (body as { session: { id: string } }).session.id; // the API's form
}

async function stopped(name: string, more?: object): Promise<void> {
  const made = await create(name, more);
  expect((await ask("POST", `/sessions/${sessionOf(made)}/stop`)).status).toBe(200);
}

describe("a sandbox", () => {
  it("that is resumed while it is deleted leaves no place behind", async () => {
    await stopped("gone");
    const open = Promise.withResolvers<void>();
    gate = open.promise;
    // All wait for the first, and go on at once.
    const first = ask("GET", "/gone?resume=true");
    await expect.poll(() => starting).toBe(2);
    const others = [
      ask("DELETE", "/gone"),
      ...Array.from({ length: 4 }, () => ask("GET", "/gone?resume=true")),
    ];
    await ask("GET", "");
    open.resolve();
    await Promise.all([first, ...others]);
    expect(await ask("GET", "/gone")).toMatchObject({ status: 404 });
    expect(running.size).toBe(0);
  });

  it("counts among those that run while it is resumed, however many are at once", async () => {
    const count = limits.serveMaxSandboxes + 3;
    for (let at = 0; at < count; at += 1) await stopped(`s${at}`);
    const open = Promise.withResolvers<void>();
    gate = open.promise;
    const before = starting;
    const answers = Array.from({ length: count }, (_, at) => ask("GET", `/s${at}?resume=true`));
    await expect.poll(() => starting).toBe(before + limits.serveMaxSandboxes);
    open.resolve();
    const refused = (await Promise.all(answers)).filter(({ status }) => status !== 200);
    expect(refused).toEqual(
      Array.from({ length: 3 }, () => ({
        status: 400,
        body: { error: { code: "too_many_sandboxes", message: expect.any(String) } },
      })),
    );
    expect(running.size).toBe(limits.serveMaxSandboxes);
  });

  it("that is asked for while the server is closed is not started", async () => {
    const request = httpRequest(`${address}/v2/sandboxes?${QUERY}`, { method: "POST", headers: HEADERS });
    const ended = new Promise<void>((resolve) => {
      request.on("error", () => resolve()).on("response", (response) => response.resume().on("end", resolve));
    });
    const body = JSON.stringify({ projectId: "project", name: "late" });
    request.write(body.slice(0, 5));
    await once(request, "socket");
    // Something else ends only after the rest has come.
    const open = Promise.withResolvers<void>();
    gate = open.promise;
    const other = create("other").catch(() => null);
    await expect.poll(() => starting).toBe(1);
    const closing = server.close();
    request.end(body.slice(5));
    await new Promise((resolve) => setTimeout(resolve, 100));
    open.resolve();
    await closing;
    await Promise.all([ended, other]);
    expect({ starting, running: running.size }).toEqual({ starting: 1, running: 0 });
  });

  it("lives on when the clock is set while its time is prolonged", async () => {
    const made = await create("clock", { timeout: 60_000 });
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 3_600_000 });
    const path = `/sessions/${sessionOf(made)}`;
    expect(await ask("POST", `${path}/extend-timeout`, { duration: 1_000 })).toMatchObject({ status: 200 });
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(await ask("GET", path)).toMatchObject({ body: { session: { status: "running" } } });
  });
});

describe("an address that is none", () => {
  it.each(["//", "http://[bad/"])("as %s is refused as malformed", async (path) => {
    const { port } = new URL(address);
    const request = httpRequest({ port, path, headers: HEADERS });
    request.end();
    const [response] = await once(request, "response");
    response.resume();
    expect(response.statusCode).toBe(400);
  });
});
