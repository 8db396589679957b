/** Sandboxes that outlive their owner: who lists them, who removes them, and who is never sent a token. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Sandbox } from "@vercel/sandbox";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ownerLabel, thisProcessTable } from "../../environments/owner.ts";
import {
  checkVercel,
  createVercelEnvironment,
  listVercel,
  reapVercel,
} from "../../environments/vercel/index.ts";
import { Account, reapAccount } from "../../environments/vercel/reap.ts";
import { VERCEL_TAGS } from "../../environments/vercel/tags.ts";
import { CREDENTIALS, type Served, serveLocal } from "../serve/served.ts";
import { moor, outcome, privateHome, startMoor } from "../surfaces/moor.ts";

let served: Served;
beforeAll(async () => {
  served = await serveLocal();
});
afterAll(() => served?.[Symbol.asyncDispose]());

const VARIABLES = {
  VERCEL_TOKEN: CREDENTIALS.token,
  // None of Vercel's own is to be asked from here.
  VERCEL_TEAM_ID: "",
  VERCEL_PROJECT_ID: "",
};
const NO_ENGINE = { DOCKER_HOST: "unix:///nowhere/engine.sock" };

function sandboxesOf(name: string): Promise<readonly string[]> {
  return Sandbox.list({ ...served.client, namePrefix: name }).then(({ sandboxes }) =>
    sandboxes.map((sandbox) => sandbox.name),
  );
}

describe("sandboxes", () => {
  it("are listed while their owner lives, and leave no record when they are stopped", async () => {
    const stateDir = privateHome().MOORAGE_HOME ?? "";
    const options = { stateDir, env: VARIABLES };
    const environment = createVercelEnvironment({
      baseUrl: `${served.address}/api`,
      credentials: CREDENTIALS,
      stateDir,
      id: "mine",
    });
    await environment.start();
    const mine = { id: "mine", owner: "self", keep: false, createdAt: expect.any(String) };
    expect(await listVercel(options)).toEqual([
      { ...mine, description: `sandbox moorage-mine (running) at ${served.address}/api` },
    ]);
    expect(await reapVercel(options)).toEqual([]);
    // Without its token, or with another, what the record says is all that is known, and no server is asked.
    for (const [token, why] of [
      ["", "VERCEL_TOKEN is not set"],
      ["other", "VERCEL_TOKEN is not the one that it was made with"],
    ]) {
      expect(await listVercel({ stateDir, env: { ...VARIABLES, VERCEL_TOKEN: token } })).toEqual([
        { ...mine, description: expect.stringContaining(`its server was not asked: ${why}`) },
      ]);
    }
    expect(await readFile(join(stateDir, "vercel", "mine.json"), "utf8")).not.toContain(CREDENTIALS.token);
    await environment.stop();
    expect(await listVercel(options)).toEqual([]);
  });

  it("of an owner that was killed are orphans of `moor ps`, and `moor reap` deletes them", {
    tags: ["slow"],
  }, async () => {
    const env = { ...privateHome(), ...NO_ENGINE, ...VARIABLES };
    const spec = `vercel?id=orphan&base_url=${served.address}/api`;
    const credentials = { VERCEL_TEAM_ID: CREDENTIALS.teamId, VERCEL_PROJECT_ID: CREDENTIALS.projectId };
    const child = startMoor(["exec", "-e", spec, "--shell", "echo up; sleep 600"], {
      env: { ...env, ...credentials },
    });
    let printed = "";
    child.stdout.on("data", (chunk: Buffer) => {
      printed += chunk.toString();
    });
    await expect.poll(() => printed, { timeout: 60_000 }).toContain("up");
    child.kill("SIGKILL");
    await outcome(child);
    const listed = JSON.parse((await moor(["ps", "--json"], { env })).stdout);
    expect(listed.environments).toMatchObject([
      { id: "orphan", backend: "vercel", owner: "dead", keep: false, processes: [] },
    ]);
    const wrong = await moor(["reap", "--json"], { env: { ...env, VERCEL_TOKEN: "other" } });
    expect(wrong.exitCode).toBe(1);
    expect(wrong.stderr).toContain("VERCEL_TOKEN is not the one that it was made with");
    expect(await sandboxesOf("moorage-orphan")).toEqual(["moorage-orphan"]);
    const reaped = await moor(["reap", "--json"], { env });
    expect({ exitCode: reaped.exitCode, ...JSON.parse(reaped.stdout) }).toEqual({
      exitCode: 0,
      reaped: [{ id: "orphan", backend: "vercel", removed: ["sandbox moorage-orphan"], left: [] }],
    });
    expect(await sandboxesOf("moorage-orphan")).toEqual([]);
    expect(JSON.parse((await moor(["reap", "--json"], { env })).stdout)).toEqual({ reaped: [] });
  });
});

describe("a start", () => {
  it("removes what dead owners left in the project, and what they meant to stay, or an owner who lives, is left", {
    tags: ["slow"],
  }, async () => {
    const table = thisProcessTable();
    const owners = {
      dead: ownerLabel({ ...table, startTime: () => "1" }),
      live: ownerLabel({ ...table, pid: process.ppid }),
    };
    const make = (name: string, owner: string, keep: boolean) =>
      Sandbox.create({
        ...served.client,
        name,
        tags: { [VERCEL_TAGS.owner]: owner, [VERCEL_TAGS.id]: name, [VERCEL_TAGS.keep]: String(keep) },
      });
    await make("left-dead", owners.dead, false);
    await make("left-kept", owners.dead, true);
    await make("left-live", owners.live, false);
    await make("left-taken", owners.dead, false);
    await using environment = createVercelEnvironment({
      baseUrl: `${served.address}/api`,
      credentials: CREDENTIALS,
      stateDir: privateHome().MOORAGE_HOME ?? "",
      name: "left-taken",
    });
    await environment.start();
    await expect
      .poll(async () => (await sandboxesOf("left-")).toSorted(), { timeout: 30_000 })
      .toEqual(["left-kept", "left-live", "left-taken"]);
    const account = new Account(`${served.address}/api`, CREDENTIALS);
    expect(await reapAccount(account, [], { kept: ["left-kept", "left-live"] })).toEqual([
      { id: "left-kept", name: "left-kept", problem: null },
    ]);
    expect((await sandboxesOf("left-")).toSorted()).toEqual(["left-live", "left-taken"]);
    for (const name of await sandboxesOf("left-")) {
      await (await Sandbox.get({ ...served.client, name, resume: false })).delete();
    }
  });
});

describe("health", () => {
  it("names the variables that are missing", async () => {
    await expect(checkVercel({ VERCEL_TOKEN: "x" })).rejects.toMatchObject({
      code: "VERCEL_CREDENTIALS_MISSING",
      message: expect.stringContaining("VERCEL_TEAM_ID, VERCEL_PROJECT_ID not set"),
    });
  });

  it.each([
    ["refuses the token", () => `${served.address}/api`, { code: "VERCEL_REFUSED" }],
    ["is not there", () => "http://127.0.0.1:9/api", { code: "ENVIRONMENT_UNAVAILABLE" }],
  ])(
    "of an environment whose server %s says so before a start, in bounded time",
    async (_, baseUrl, answer) => {
      const environment = createVercelEnvironment({
        baseUrl: baseUrl(),
        credentials: { ...CREDENTIALS, token: "guess" },
        stateDir: privateHome().MOORAGE_HOME ?? "",
      });
      expect(await environment.health()).toMatchObject({ healthy: false, ...answer });
    },
  );
});
