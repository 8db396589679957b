/** A sandbox's network policy: what the API has words for, and a server that does not do as it was asked. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Sandbox } from "@vercel/sandbox";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createVercelEnvironment, type VercelOptions } from "../../environments/vercel/index.ts";
import { toNetworkPolicy } from "../../environments/vercel/policy.ts";
import { CREDENTIALS, localPlaces, type Served, serve, serveLocal } from "../serve/served.ts";
import { type MisbehavingServer, misbehave } from "./misbehaving-server.ts";

let served: Served;
let server: MisbehavingServer;
let stateDir: string;
beforeAll(async () => {
  served = await serveLocal({ takesPolicies: true });
  server = await misbehave(served.address);
  stateDir = await mkdtemp(join(tmpdir(), "moorage-policy-"));
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  await served?.[Symbol.asyncDispose]();
  await rm(stateDir, { recursive: true, force: true });
});

function environmentOf(id: string, options: VercelOptions) {
  return createVercelEnvironment({
    baseUrl: `${server.address}/api`,
    credentials: CREDENTIALS,
    stateDir,
    id,
    ...options,
  });
}

describe("toNetworkPolicy()", () => {
  it.each([
    ["open", "allow-all"],
    ["none", "deny-all"],
    [{ allow: [] }, "deny-all"],
    [{ allow: ["!10.0.0.0/8"] }, "deny-all"],
    [
      { allow: ["API.example.com", "*.githubusercontent.com"] },
      { allow: ["api.example.com", "*.githubusercontent.com"] },
    ],
    [
      { allow: ["a.test", "10.1.0.0/16", "192.0.2.7", "[2001:db8::1]", "!10.1.2.0/24"] },
      {
        allow: ["a.test"],
        subnets: { allow: ["10.1.0.0/16", "192.0.2.7/32", "2001:db8::1/128"], deny: ["10.1.2.0/24"] },
      },
    ],
  ] as const)("says %j as %j", (egress, policy) => {
    expect(toNetworkPolicy(egress)).toEqual(policy);
  });

  it.each(["a.test:8080", "10.0.0.0/8:443", "[2001:db8::1]:443", "*", "*:443", "!evil.test"])(
    "refuses %s, for which the API has no words",
    (rule) => {
      const egress = { allow: ["a.test", rule] };
      expect(() => toNetworkPolicy(egress)).toThrow(
        expect.objectContaining({ code: "UNSUPPORTED", message: expect.stringContaining(`"${rule}"`) }),
      );
      // As early as that: nothing is started, nobody is asked.
      expect(() => environmentOf("never", { egress })).toThrow();
    },
  );

  it("refuses what is no rule", () => {
    expect(() => toNetworkPolicy({ allow: ["a b"] })).toThrow(
      expect.objectContaining({ code: "INVALID_SPEC" }),
    );
  });
});

describe("a policy", () => {
  it("is passed on at creation, and to a sandbox that is found", async () => {
    const rules = ["a.test", "10.0.0.0/8", "!10.1.0.0/16"];
    await using environment = environmentOf("kept", { egress: { allow: rules }, name: "found" });
    await environment.start();
    const reported = async () =>
      (await Sandbox.get({ ...served.client, name: "found" })).currentSession().networkPolicy;
    const policy = { allow: ["a.test"], subnets: { allow: ["10.0.0.0/8"], deny: ["10.1.0.0/16"] } };
    expect(await reported()).toEqual(policy);
    await using same = environmentOf("second", { egress: { allow: rules.toReversed() }, name: "found" });
    expect((await same.exec("echo in")).output).toBe("in\n");
    // This server changes no policy while a session runs, and nothing may run under another one than asked for.
    await using other = environmentOf("third", { egress: "none", name: "found" });
    await expect(other.start()).rejects.toMatchObject({ code: "VERCEL_REFUSED" });
    expect(await reported()).toEqual(policy);
  });

  it.each([
    ["another one", { mode: "allow-all" }],
    ["a wider one", { mode: "custom", allowedDomains: ["a.test", "b.test"] }],
    [
      "one that forwards",
      {
        mode: "custom",
        allowedDomains: ["a.test"],
        forwardRules: [{ domain: "a.test", forwardURL: "https://b.test" }],
      },
    ],
    ["none at all", undefined],
  ])("of which the server reports %s is an error, and the sandbox is deleted", async (_, networkPolicy) => {
    server.watch('"moorage-lied"', [
      async (response, forward) => {
        const made = (await (await forward()).json()) as { sandbox: object; session: object }; // the API's form
        const lie = { ...made, session: { ...made.session, networkPolicy } };
        const isMissing = networkPolicy === undefined;
        const sandbox = isMissing ? { ...made.sandbox, networkPolicy } : made.sandbox;
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify({ ...lie, sandbox }));
      },
    ]);
    await using environment = environmentOf("lied", { egress: { allow: ["a.test"] } });
    await expect(environment.start()).rejects.toMatchObject({
      code: "UNSUPPORTED",
      message: expect.stringContaining("the server reports"),
    });
    await expect(Sandbox.get({ ...served.client, name: "moorage-lied" })).rejects.toMatchObject({
      response: { status: 404 },
    });
  });

  it("changes while the sandbox runs, is there at the next session, and the last one asked for counts", async () => {
    await using willing = await serve(({ root, places }) => async (request) => {
      const place = await localPlaces(root, places, true)(request);
      place.environment.setEgress = async () => {};
      return place;
    });
    await using environment = environmentOf("changing", { baseUrl: `${willing.address}/api` });
    await environment.setEgress({ allow: ["a.test"] });
    await environment.start();
    const found = () => Sandbox.get({ ...willing.client, name: "moorage-changing", resume: false });
    const reported = async () => {
      const sandbox = await found();
      return [sandbox.networkPolicy, sandbox.currentSession().networkPolicy];
    };
    const listing = (allow: string[]) => [
      expect.objectContaining({ allow }),
      expect.objectContaining({ allow }),
    ];
    expect(await reported()).toEqual(listing(["a.test"]));
    await Promise.all([environment.setEgress("open"), environment.setEgress("none")]);
    expect(await reported()).toEqual(["deny-all", "deny-all"]);
    await expect(environment.setEgress({ allow: ["b.test:8080"] })).rejects.toMatchObject({
      code: "UNSUPPORTED",
    });
    await expect(environment.setEgress({ allow: ["a b"] })).rejects.toMatchObject({ code: "INVALID_SPEC" });
    expect(await reported()).toEqual(["deny-all", "deny-all"]);
    await (await found()).stop();
    await environment.setEgress({ allow: ["b.test"] });
    const { output, notes } = await environment.exec("echo in");
    expect({ output, notes }).toEqual({ output: "in\n", notes: [expect.stringContaining("was resumed")] });
    expect(await reported()).toEqual(listing(["b.test"]));
  });

  it("that the server does not change stays as it was", async () => {
    await using environment = environmentOf("unchanged", { egress: "none" });
    await environment.start();
    await expect(environment.setEgress({ allow: ["a.test"] })).rejects.toMatchObject({
      code: "VERCEL_REFUSED",
    });
    expect((await Sandbox.get({ ...served.client, name: "moorage-unchanged" })).networkPolicy).toBe(
      "deny-all",
    );
    expect((await environment.exec("echo in")).output).toBe("in\n");
  });

  it("that the server cannot enforce is refused with its reason", async () => {
    await using strict = await serveLocal();
    await using environment = environmentOf("refused", { egress: "none", baseUrl: `${strict.address}/api` });
    await expect(environment.start()).rejects.toMatchObject({ code: "VERCEL_REFUSED" });
    expect(strict.places.size).toBe(0);
  });
});
