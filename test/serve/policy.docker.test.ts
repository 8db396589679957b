/** Network policies of the API where something enforces them. */
import { Sandbox } from "@vercel/sandbox";
import { afterAll, beforeAll, expect, it } from "vitest";
import { describeWithEngine, WORKBENCH_IMAGE } from "../host/images.ts";
import type { Served } from "./served.ts";
import { serveDocker } from "./served-docker.ts";

describeWithEngine("a network policy, served over docker", () => {
  let served: Served;
  beforeAll(async () => {
    served = await serveDocker(WORKBENCH_IMAGE);
  });
  afterAll(() => served?.[Symbol.asyncDispose]());

  const output = async (sandbox: Sandbox, line: string) => {
    const result = await sandbox.runCommand("sh", ["-c", line]);
    return `${await result.stdout()}${await result.stderr()}`;
  };

  it("that denies all leaves no network, and none that is wider takes its place while it runs", {
    tags: ["slow"],
  }, async () => {
    const sandbox = await Sandbox.create({ ...served.client, name: "none", networkPolicy: "deny-all" });
    expect(sandbox.networkPolicy).toBe("deny-all");
    expect(await output(sandbox, "ls /sys/class/net")).toBe("lo\n");
    await expect(sandbox.update({ networkPolicy: "allow-all" })).rejects.toMatchObject({
      response: { status: 400 },
      json: { error: { code: "unsupported" } },
    });
    expect(await output(sandbox, "ls /sys/class/net")).toBe("lo\n");
    await sandbox.delete();
  });

  it("that lists hosts is enforced by the proxy, and stands over a stop", async () => {
    const networkPolicy = {
      allow: ["allowed.test", "*.below.test"],
      subnets: { allow: ["10.0.0.0/8"], deny: ["10.1.0.0/16"] },
    };
    const sandbox = await Sandbox.create({ ...served.client, name: "listed", networkPolicy });
    const ask = (host: string) => output(sandbox, `curl -sS -o /dev/null -w "%{http_code}" http://${host}/`);
    expect(sandbox.networkPolicy).toEqual(networkPolicy);
    expect(await ask("refused.test")).toBe("403");
    expect(await ask("10.1.2.3")).toBe("403");
    await sandbox.update({ networkPolicy: { ...networkPolicy, allow: ["other.test"] } });
    expect(sandbox.currentSession().networkPolicy).toEqual({ ...networkPolicy, allow: ["other.test"] });
    expect(await ask("allowed.test")).toBe("403");
    await sandbox.update({ networkPolicy });
    await sandbox.stop();
    expect(await ask("refused.test")).toBe("403");
    expect(sandbox.currentSession().networkPolicy).toEqual(networkPolicy);
    await sandbox.delete();
    expect(served.places.size).toBe(0);
  });
});
