/** The served API as its official client sees it: sandboxes, sessions, snapshots, who may do what. */
import { APIError, Sandbox, Snapshot } from "@vercel/sandbox";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { CREDENTIALS, fetchFrom, type Served, serveLocal } from "./served.ts";

let served: Served;
beforeAll(async () => {
  served = await serveLocal({
    grants: [
      CREDENTIALS,
      { token: "other", teamId: "team_b" },
      { token: "narrow", teamId: "team_a", projectIds: ["project_b"] },
    ],
  });
});
afterAll(() => served[Symbol.asyncDispose]());

/** The API's error of a call that must fail. */
async function refusal(promise: Promise<unknown>): Promise<{ status: number; code: string }> {
  const error = await promise.then(
    () => new Error("It was not refused"),
    (reason: unknown) => reason,
  );
  if (!(error instanceof APIError)) throw error;
  const { error: body } = error.json as { error: { code: string; message: string } }; // the API's own form
  expect(body.message).not.toBe("");
  return { status: error.response.status, code: body.code };
}

async function output(sandbox: Sandbox, line: string): Promise<string> {
  return (await sandbox.runCommand("sh", ["-c", line])).stdout();
}

describe("sandboxes", () => {
  it("are made, found by name, changed and deleted", async () => {
    const made = await Sandbox.create({ ...served.client, name: "life", tags: { a: "1" } });
    expect({ name: made.name, status: made.status, tags: made.tags }).toEqual({
      name: "life",
      status: "running",
      tags: { a: "1" },
    });
    const found = await Sandbox.get({ ...served.client, name: "life" });
    expect(found.currentSession().sessionId).toBe(made.currentSession().sessionId);
    await found.update({ tags: { b: "2" } });
    expect((await Sandbox.get({ ...served.client, name: "life" })).tags).toEqual({ b: "2" });
    expect(await refusal(Sandbox.create({ ...served.client, name: "life" }))).toEqual({
      status: 409,
      code: "conflict",
    });
    await found.delete();
    expect(await refusal(Sandbox.get({ ...served.client, name: "life" }))).toEqual({
      status: 404,
      code: "not_found",
    });
  });

  it("are listed by page, prefix and tag", async () => {
    const names = ["page-a", "page-b", "page-c"];
    for (const name of names) {
      await Sandbox.create({ ...served.client, name, tags: { last: String(name === "page-c") } });
    }
    const seen: string[] = [];
    const first = await Sandbox.list({ ...served.client, namePrefix: "page-", sortBy: "name", limit: 2 });
    for await (const { name } of first) seen.push(name);
    expect(seen).toEqual(["page-c", "page-b", "page-a"]);
    const tagged = await Sandbox.list({ ...served.client, tags: { last: "true" } });
    expect(tagged.sandboxes.map(({ name }) => name)).toEqual(["page-c"]);
    for (const name of names) await (await Sandbox.get({ ...served.client, name })).delete();
  });

  it("of a persistent kind keep their files over a stop, and resume by themselves", {
    tags: ["slow"],
  }, async () => {
    const sandbox = await Sandbox.create({ ...served.client, name: "lasting" });
    const before = sandbox.currentSession().sessionId;
    await sandbox.runCommand("sh", ["-c", "mkdir d && echo kept >d/file && chmod 750 d"]);
    await sandbox.stop();
    expect((await Sandbox.get({ ...served.client, name: "lasting" })).status).toBe("stopped");
    expect(await output(sandbox, "cat d/file; stat -c %a d; ls -A")).toBe("kept\n750\nd\n");
    expect(sandbox.currentSession().sessionId).not.toBe(before);
    await sandbox.delete();
  });

  it("of another kind begin anew after a stop", async () => {
    const sandbox = await Sandbox.create({ ...served.client, name: "fleeting", persistent: false });
    await sandbox.runCommand("touch", ["file"]);
    await sandbox.stop();
    expect(await output(sandbox, "ls -A")).toBe("");
    await sandbox.delete();
  });

  it("begin from a snapshot, whose loss is told", async () => {
    const source = await Sandbox.create({ ...served.client, name: "source" });
    await source.runCommand("sh", ["-c", "echo from source >file"]);
    const snapshot = await source.snapshot();
    const copy = await Sandbox.create({
      ...served.client,
      name: "copy",
      source: { type: "snapshot", snapshotId: snapshot.snapshotId },
    });
    expect(await output(copy, "cat file")).toBe("from source\n");
    await copy.delete();
    const listed = await Snapshot.list({ ...served.client, name: "source" });
    expect(listed.snapshots.map(({ id }) => id)).toEqual([snapshot.snapshotId]);
    await snapshot.delete();
    expect(await refusal(source.runCommand("true"))).toEqual({ status: 410, code: "snapshot_not_found" });
    await source.delete();
  });

  it("leave no snapshot that is past its time", async () => {
    const source = await Sandbox.create({
      ...served.client,
      name: "expiring",
      snapshotExpiration: 86_400_000,
    });
    const { snapshotId } = await source.snapshot({ expiration: 86_400_000 });
    const listed = async () =>
      (await Snapshot.list({ ...served.client, name: "expiring" })).snapshots.map(({ id }) => id);
    expect(await listed()).toEqual([snapshotId]);
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 86_400_001 });
    try {
      expect(await listed()).toEqual([]);
      expect(await refusal(Snapshot.get({ ...served.client, snapshotId }))).toMatchObject({ status: 404 });
    } finally {
      vi.useRealTimers();
    }
    await source.delete();
  });

  it("end when their time is up, unless it is extended", { tags: ["slow"] }, async () => {
    const sandbox = await Sandbox.create({ ...served.client, name: "timed", timeout: 1_500 });
    const session = sandbox.currentSession();
    await sandbox.extendTimeout(600_000);
    expect(sandbox.currentSession().timeout).toBe(601_500);
    await sandbox.delete();
    expect(session.sessionId).toMatch(/^sbx_/);

    const short = await Sandbox.create({ ...served.client, name: "short", timeout: 700 });
    const old = short.currentSession();
    const command = await short.runCommand({ cmd: "sleep", args: ["60"], detached: true });
    expect((await command.wait()).exitCode).toBe(137);
    await expect
      .poll(async () => (await Sandbox.get({ ...served.client, name: "short" })).status, { timeout: 15_000 })
      .toBe("stopped");
    expect(await refusal(old.runCommand("true"))).toEqual({ status: 410, code: "sandbox_stopped" });
    await short.update({ timeout: 60_000 });
    expect(await output(short, "echo again")).toBe("again\n");
    await short.delete();
  });

  it("cost one place each, which is removed with them", async () => {
    const before = served.places.size;
    const sandbox = await Sandbox.create({ ...served.client, name: "place" });
    expect(served.places.size).toBe(before + 1);
    await sandbox.delete();
    expect(served.places.size).toBe(before);
  });

  it("refuse what the server has none of, in the API's own form", async () => {
    const refused = { status: 400, code: "unsupported" };
    const create = (params: object) => Sandbox.create({ ...served.client, name: "refused", ...params });
    expect(await refusal(create({ ports: [3000] }))).toEqual(refused);
    expect(await refusal(create({ networkPolicy: "deny-all" }))).toEqual(refused);
    expect(await refusal(create({ source: { type: "git", url: "https://example.com/x.git" } }))).toEqual(
      refused,
    );
    expect(await refusal(create({ networkPolicy: { subnets: { deny: ["10.0.0.0/8"] } } }))).toEqual(refused);
    // Nothing of a refused creation stays.
    const sandbox = await create({ networkPolicy: "allow-all" });
    await sandbox.update({ networkPolicy: "allow-all" });
    expect(await refusal(sandbox.update({ networkPolicy: "deny-all" }))).toEqual(refused);
    expect(await refusal(create({ tags: { a: "", b: "", c: "", d: "", e: "", f: "" } }))).toEqual({
      status: 400,
      code: "bad_request",
    });
    await sandbox.delete();
  });
});

describe("access", () => {
  it("needs a token that is known", async () => {
    const stranger = { ...served.client, token: "guess" };
    expect(await refusal(Sandbox.list(stranger))).toEqual({ status: 401, code: "unauthorized" });
    expect((await fetch(`${served.address}/v2/sandboxes`)).status).toBe(401);
  });

  it("ends at the team and the project", async () => {
    const sandbox = await Sandbox.create({ ...served.client, name: "mine" });
    const elsewhere = { ...served.client, projectId: "project_b" };
    expect(await refusal(Sandbox.get({ ...elsewhere, name: "mine" }))).toEqual({
      status: 404,
      code: "not_found",
    });
    expect((await Sandbox.list(elsewhere)).sandboxes).toEqual([]);
    const narrow = { ...served.client, token: "narrow" };
    expect(await refusal(Sandbox.get({ ...narrow, name: "mine" }))).toEqual({
      status: 403,
      code: "forbidden",
    });
    const { sessionId } = sandbox.currentSession();
    for (const [token, teamId] of [
      ["narrow", "team_a"],
      ["other", "team_b"],
      ["other", "team_a"],
    ]) {
      const response = await fetchFrom(served.address)(
        `https://vercel.com/api/v2/sandboxes/sessions/${sessionId}?teamId=${teamId}`,
        { headers: { authorization: `Bearer ${token}` } },
      );
      expect(response.status).toBe(404);
    }
    await sandbox.delete();
  });

  it("does not reach another team's snapshots by the names of its own", async () => {
    const other = { ...served.client, token: "other", teamId: "team_b" };
    const [mine, theirs] = await Promise.all(
      [served.client, other].map((client) => Sandbox.create({ ...client, name: "namesake" })),
    );
    await mine?.runCommand("touch", ["kept"]);
    const snapshot = await mine?.snapshot();
    await theirs?.snapshot();
    const copy = await Sandbox.create({
      ...served.client,
      name: "user",
      source: { type: "snapshot", snapshotId: snapshot?.snapshotId ?? "" },
    });
    await copy.stop();
    await theirs?.delete({ deleteOrphanSnapshots: true });
    const listed = async (client: typeof served.client) =>
      (await Snapshot.list({ ...client, name: "namesake" })).snapshots.map(({ id }) => id);
    expect(await listed(other as typeof served.client)).toEqual([]);
    expect(await listed(served.client)).toEqual([snapshot?.snapshotId]);
    await mine?.delete();
    await copy.delete();
  });

  it("keeps the snapshots of a deleted sandbox that another one begins from, and no others", async () => {
    const source = await Sandbox.create({ ...served.client, name: "parent" });
    const first = await source.snapshot();
    const user = await Sandbox.create({
      ...served.client,
      name: "child",
      source: { type: "snapshot", snapshotId: first.snapshotId },
    });
    await source.snapshot();
    await source.delete({ deleteOrphanSnapshots: true });
    const { snapshots } = await Snapshot.list({ ...served.client, name: "parent" });
    expect(snapshots.map(({ id }) => id)).toEqual([first.snapshotId]);
    await user.delete();
  });

  it("to nonsense is refused without harm", async () => {
    const ask = (path: string, init: RequestInit = {}) =>
      fetch(`${served.address}${path}`, {
        headers: { authorization: `Bearer ${CREDENTIALS.token}` },
        ...init,
      });
    expect((await ask("/v2/sandboxes/%ff")).status).toBe(400);
    expect((await ask("/elsewhere")).status).toBe(404);
    expect((await ask("/v2/sandboxes", { method: "DELETE" })).status).toBe(405);
    expect((await ask("/v2/sandboxes?teamId=team_a&project=project_a&cursor=bm8")).status).toBe(400);
    expect((await ask("/v2/sandboxes", { method: "POST", body: "{" })).status).toBe(400);
    expect((await ask("/v2/sandboxes", { method: "POST", body: '{"name": "a b"}' })).status).toBe(400);
    expect((await ask("/v2/sandboxes/../../etc/passwd")).status).toBe(404);
  });
});
