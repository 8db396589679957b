/** A policy with credentials as an operator writes it: from the configuration file to the list of what it decided. */
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { probeBubblewrap } from "../../environments/local/bubblewrap/probe.ts";
import { createMoorage } from "../../src/moorage.ts";
import { portOf } from "../environments/egress/network.ts";
import { moor, outcome, privateHome, startMoor, until } from "./moor.ts";

const health = await probeBubblewrap();
const folder = await mkdtemp(join(tmpdir(), "moorage-policy-"));
afterAll(() => rm(folder, { recursive: true, force: true }));

describe.skipIf(!health.healthy)(
  `an egress policy of the configuration${health.healthy ? "" : ` (not tested: ${health.reason})`}`,
  () => {
    it("holds credentials back, changes while it runs, and is told by moor ps", async () => {
      const server = createServer(({ headers }, response) => response.end(`key ${headers["x-key"]}`));
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      const [host, stateDir, config] = [
        `127.0.0.1:${portOf(server)}`,
        join(folder, "state"),
        join(folder, "moorage.yaml"),
      ];
      await writeFile(
        config,
        `
environments:
  box:
    spec: local?isolation=bubblewrap
    passEnv: [SERVICE_CREDENTIAL]
    egress:
      allow: ["${host}"]
      deny: [denied.test]
      credentials: [{ host: "${host}", variable: SERVICE_CREDENTIAL, header: X-Key, format: "Token {}" }]
`,
      );
      process.env.SERVICE_CREDENTIAL = "real-value";
      try {
        await using moorage = await createMoorage({
          config,
          stateDir,
          workspace: await mkdtemp(join(folder, "w-")),
        });
        const environment = moorage.environment("box");
        const ask = `curl -sS --noproxy '' http://${host}/`;
        const first = await environment.exec(`${ask}; echo; echo $SERVICE_CREDENTIAL; env`);
        expect(first.output).toMatch(/^key Token real-value\nheld-by-the-egress-proxy\n/);
        expect(first.output.replace(/^.*\n/, "")).not.toContain("real-value");

        await expect(environment.setEgress({ allow: ["a b"] })).rejects.toMatchObject({
          code: "INVALID_SPEC",
        });
        await expect(environment.setEgress("open")).rejects.toMatchObject({ code: "UNSUPPORTED" });
        await environment.setEgress("none");
        const closed = await environment.exec(ask);
        expect(closed.output).toContain("EGRESS_DENIED");
        expect(closed.notes).toEqual([
          expect.stringMatching(/^Blocked by policy: .*\(none\)\. Do not retry/),
        ]);
        expect(environment.info().egress).toMatchObject({ policy: "none", allowed: 1, denied: 1 });
        await environment.setEgress({ allow: [host] });
        expect((await environment.exec(ask)).output).toContain("real-value");

        const listed = await until("the list knows the last decision", async () => {
          const { stdout } = await moor(["ps", "--json"], { env: { MOORAGE_HOME: stateDir } });
          const { environments } = JSON.parse(stdout);
          const found = environments.find(({ id }: { readonly id: string }) => id === environment.id);
          return found?.egress?.allowed === 2 && found;
        });
        expect(listed.egress).toMatchObject({ policy: "allow-list", allowed: 2, denied: 1 });
        expect(listed.egress.decisions.map(({ rule }: { readonly rule: string }) => rule)).toEqual([
          host,
          "none",
          host,
        ]);
        expect(JSON.stringify(listed)).not.toContain("real-value");
        const { stdout } = await moor(["ps"], { env: { MOORAGE_HOME: stateDir } });
        expect(stdout).toMatch(/egress {2}allow-list: 2 allowed, 1 denied\n[\s\S]* denied {3}"127/);
      } finally {
        delete process.env.SERVICE_CREDENTIAL;
        server.close();
      }
    });
  },
);

describe.skipIf(!health.healthy)("a proxy whose orchestrator was killed", () => {
  it("EG-20: leaves nothing once moor reap has looked", { tags: ["slow"] }, async () => {
    const home = privateHome();
    const env = { ...home, DOCKER_HOST: "unix:///nowhere/engine.sock" };
    const spec = "local?isolation=bubblewrap&egress=allowed.test";
    const child = startMoor(["exec", "-e", spec, "--", "sleep", "1000"], { env });
    const ended = outcome(child);
    const records = async (backend: string) =>
      (await readdir(join(home.MOORAGE_HOME ?? "", backend)).catch(() => [])).filter((name) =>
        name.endsWith(".json"),
      );
    await until("it has a proxy and a sandbox", async () => (await records("local")).length === 1);
    expect((await records("egress")).length).toBe(1);
    child.kill("SIGKILL");
    await ended;
    const { stdout } = await moor(["reap", "--json"], { env });
    const { reaped } = JSON.parse(stdout);
    const backends = reaped.map(({ backend }: { readonly backend: string }) => backend);
    expect(backends.toSorted()).toEqual(["egress", "local"]);
    expect([await records("egress"), await records("local")]).toEqual([[], []]);
  });
});

describe("a policy that cannot be had", () => {
  const egress = { allow: ["a.test"], credentials: [{ host: "a.test", variable: "NOT_SET_ANYWHERE" }] };
  it.each([
    [
      "a credential that is not set here",
      "local?isolation=bubblewrap",
      egress,
      /"NOT_SET_ANYWHERE" is not set/,
    ],
    ["a backend without one", "local", { allow: ["a.test"] }, /enforces no such policy/],
    ["a malformed rule", "local?isolation=bubblewrap", { allow: ["a.test", "b c"] }, /egress rule/],
  ])("is an error at construction: %s", async (_, spec, policy, message) => {
    const config = { environments: { box: { spec, egress: policy } } };
    await expect(createMoorage({ config, stateDir: join(folder, "other") })).rejects.toThrow(message);
  });

  it("is not changed where there is no door", async () => {
    await using moorage = await createMoorage({ environments: "local", stateDir: join(folder, "other") });
    await expect(moorage.environment().setEgress("none")).rejects.toMatchObject({ code: "UNSUPPORTED" });
  });
});
