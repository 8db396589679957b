/** `moor serve` as an operator starts it and a client of the API uses it. */
import { readdir } from "node:fs/promises";
import { Writable } from "node:stream";
import { Sandbox } from "@vercel/sandbox";
import { describe, expect, it } from "vitest";
import { fetchFrom } from "../serve/served.ts";
import { moor, outcome, privateHome, startMoor, until } from "./moor.ts";

/** Starts a server and gives what every call of the official client needs. */
async function startServer() {
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
  const client = { token: "secret", teamId: "t", projectId: "p", fetch: fetchFrom(address) };
  return { home, child, end, address, client };
}

describe("moor serve", () => {
  it("serves sandboxes on loopback until a signal, and leaves nothing of them", async () => {
    const { home, child, end, address, client } = await startServer();
    expect(address).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    const sandbox = await Sandbox.create({ ...client, name: "box" });
    expect(await (await sandbox.runCommand("sh", ["-c", "echo hello; pwd"])).stdout()).toMatch(
      /^hello\n.*\/sandboxes-/,
    );
    child.kill("SIGTERM");
    expect((await end).exitCode).toBe(143);
    const left = await readdir(home.MOORAGE_HOME ?? "");
    expect(left.filter((name) => /^(?:sandboxes|serve)-/.test(name))).toEqual([]);
  });

  it("gives the official client all that it needs of a sandbox's life", async () => {
    const { client } = await startServer();
    const sandbox = await Sandbox.create({ ...client, name: "life", timeout: 60_000, tags: { of: "test" } });
    await sandbox.mkDir("made");
    await sandbox.writeFiles([{ path: "made/bytes", content: Buffer.from([0, 255, 10]), mode: 0o600 }]);
    expect(await sandbox.readFileToBuffer({ path: "made/bytes" })).toEqual(Buffer.from([0, 255, 10]));
    const heard: string[] = [];
    const listener = (name: string) =>
      new Writable({
        write: (chunk: Buffer, _encoding, done) => {
          heard.push(`${name} ${chunk}`);
          done();
        },
      });
    const { exitCode } = await sandbox.runCommand({
      cmd: "sh",
      args: ["-c", "echo out; echo err >&2; exit 4"],
      stdout: listener("1"),
      stderr: listener("2"),
    });
    expect({ exitCode, heard: heard.sort() }).toEqual({ exitCode: 4, heard: ["1 out\n", "2 err\n"] });

    const detached = await sandbox.runCommand({
      cmd: "sh",
      args: ["-c", "echo begun; sleep 600"],
      detached: true,
    });
    for await (const { data } of detached.logs()) if (data.includes("begun")) break;
    await detached.kill("SIGTERM");
    expect((await detached.wait()).exitCode).toBe(143);

    const before = sandbox.expiresAt?.getTime() ?? 0;
    await sandbox.extendTimeout(30_000);
    const found = await Sandbox.get({ ...client, name: "life" });
    expect({ status: found.status, longer: (found.expiresAt?.getTime() ?? 0) - before }).toEqual({
      status: "running",
      longer: 30_000,
    });
    const { snapshotId } = await sandbox.snapshot();
    const copy = await Sandbox.create({ ...client, name: "copy", source: { type: "snapshot", snapshotId } });
    expect(await copy.readFileToBuffer({ path: "made/bytes" })).toEqual(Buffer.from([0, 255, 10]));
    const { sandboxes } = await Sandbox.list({ ...client, sortBy: "name", sortOrder: "asc" });
    expect(sandboxes.map(({ name, status }) => `${name} ${status}`)).toEqual([
      "copy running",
      "life stopped",
    ]);
    await copy.stop();
    expect((await Sandbox.get({ ...client, name: "copy" })).status).toBe("stopped");
    await expect(Sandbox.list({ ...client, token: "guess" })).rejects.toMatchObject({
      response: { status: 401 },
      json: { error: { code: "unauthorized" } },
    });
    await expect(Sandbox.create({ ...client, networkPolicy: "deny-all" })).rejects.toMatchObject({
      response: { status: 400 },
      json: { error: { code: "unsupported" } },
    });
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
