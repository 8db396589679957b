/** `moor serve` as an operator starts it and a client of the API uses it. */
import { readdir } from "node:fs/promises";
import { Sandbox } from "@vercel/sandbox";
import { describe, expect, it } from "vitest";
import { fetchFrom } from "../serve/served.ts";
import { moor, outcome, privateHome, startMoor, until } from "./moor.ts";

describe("moor serve", () => {
  it("serves sandboxes on loopback until a signal, and leaves nothing of them", async () => {
    const home = privateHome();
    const env = { ...home, MOORAGE_SERVE_TOKEN: "secret" };
    const child = startMoor(["serve", "-e", "local", "--port", "0", "--json"], { env });
    let printed = "";
    child.stdout.on("data", (chunk: Buffer) => {
      printed += chunk.toString();
    });
    const end = outcome(child);
    await until("the address is printed", () => printed.includes("\n"));
    const { address } = JSON.parse(printed) as { address: string }; // printed by us
    expect(address).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    const client = { token: "secret", teamId: "t", projectId: "p", fetch: fetchFrom(address) };
    const sandbox = await Sandbox.create({ ...client, name: "box" });
    expect(await (await sandbox.runCommand("sh", ["-c", "echo hello; pwd"])).stdout()).toMatch(
      /^hello\n.*\/sandboxes-/,
    );
    child.kill("SIGTERM");
    expect((await end).exitCode).toBe(143);
    const left = await readdir(home.MOORAGE_HOME ?? "");
    expect(left.filter((name) => /^(?:sandboxes|serve)-/.test(name))).toEqual([]);
  });

  it("does not start without a token or an environment", async () => {
    const env = privateHome();
    expect(await moor(["serve", "-e", "local"], { env })).toMatchObject({
      exitCode: 125,
      stderr: expect.stringContaining("The variable MOORAGE_SERVE_TOKEN holds no token"),
    });
    expect(await moor(["serve"], { env: { ...env, MOORAGE_SERVE_TOKEN: "x" } })).toMatchObject({
      exitCode: 125,
      stderr: expect.stringContaining("No environment is named"),
    });
  });
});
