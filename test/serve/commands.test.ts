/** The served API as its official client sees it: commands and files of one sandbox. */
import { readFile, stat, symlink } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { Sandbox as Client, type Sandbox } from "@vercel/sandbox";
import { pack } from "tar-stream";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CREDENTIALS, localPlaces, type Served, serve, serveLocal } from "./served.ts";

let served: Served;
let sandbox: Sandbox;
beforeAll(async () => {
  served = await serveLocal();
  sandbox = await Client.create({ ...served.client, name: "commands", env: { FROM_SANDBOX: "yes" } });
});
afterAll(() => served[Symbol.asyncDispose]());

function workspace(): string {
  return sandbox.currentSession().cwd;
}

function ask(
  path: string,
  body?: string | Uint8Array<ArrayBuffer>,
  headers: Record<string, string> = {},
): Promise<Response> {
  return askOf(served.address, sandbox, path, body, headers);
}

function askOf(
  address: string,
  of: Sandbox,
  path: string,
  body?: string | Uint8Array<ArrayBuffer>,
  headers: Record<string, string> = {},
): Promise<Response> {
  const session = of.currentSession().sessionId;
  return fetch(`${address}/v2/sandboxes/sessions/${session}${path}?teamId=${CREDENTIALS.teamId}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${CREDENTIALS.token}`, ...headers },
    ...(body !== undefined && { body }),
  });
}

describe("commands", () => {
  it("tell their exit code and both outputs", async () => {
    const result = await sandbox.runCommand("sh", ["-c", 'echo "out $1"; echo err >&2; exit 3', "sh", "a b"]);
    expect({ code: result.exitCode, out: await result.stdout(), err: await result.stderr() }).toEqual({
      code: 3,
      out: "out a b\n",
      err: "err\n",
    });
  });

  it("start in the workspace, or where they are asked to, with the sandbox's variables", async () => {
    const plain = await sandbox.runCommand("sh", ["-c", "pwd; echo $FROM_SANDBOX$OWN"]);
    expect(await plain.stdout()).toBe(`${workspace()}\nyes\n`);
    const other = await sandbox.runCommand({
      cmd: "sh",
      args: ["-c", "pwd; echo $OWN"],
      cwd: "/",
      env: { OWN: "1" },
    });
    expect(await other.stdout()).toBe("/\n1\n");
  });

  it("that cannot start are told apart from those that failed", async () => {
    expect((await sandbox.runCommand("no-such-program")).exitCode).toBe(127);
    await expect(sandbox.runCommand({ cmd: "true", cwd: "/no/such" })).rejects.toMatchObject({
      response: { status: 400 },
      json: { error: { code: "workdir_missing" } },
    });
    await expect(sandbox.runCommand("-x")).rejects.toMatchObject({ response: { status: 400 } });
  });

  it("answer with lines under a content type that names no charset", async () => {
    const body = JSON.stringify({ command: "sh", args: ["-c", "printf ü"], wait: true, logs: true });
    const response = await ask("/cmd", body);
    expect(response.headers.get("content-type")).toBe("application/x-ndjson");
    const lines = (await response.text())
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines).toEqual([
      { command: expect.objectContaining({ name: "sh", exitCode: null }) },
      { stream: "stdout", data: "ü" },
      { command: expect.objectContaining({ exitCode: 0, durationMs: expect.any(Number) }) },
    ]);
  });

  it("that are slow to start are told of before a client takes the silence for a loss", async () => {
    const gate = Promise.withResolvers<void>();
    await using slow = await serve(({ root, places }) => async (request) => {
      const place = await localPlaces(root, places)(request);
      const exec = place.environment.exec.bind(place.environment);
      place.environment.exec = async (...call) => {
        await gate.promise;
        return exec(...call);
      };
      return place;
    });
    const late = await Client.create({ ...slow.client, name: "late" });
    const [command, waited] = await Promise.all([
      late.runCommand({ cmd: "sh", args: ["-c", "echo out; exit 3"], detached: true }),
      askOf(slow.address, late, "/cmd", JSON.stringify({ command: "true", wait: true })),
    ]);
    const answer = waited.body?.getReader();
    const heard = Buffer.from((await answer?.read())?.value ?? []).toString();
    expect(JSON.parse(heard)).toEqual({ command: expect.objectContaining({ name: "true", exitCode: null }) });
    gate.resolve();
    const ended = Buffer.from((await answer?.read())?.value ?? []).toString();
    expect(JSON.parse(ended)).toEqual({ command: expect.objectContaining({ name: "true", exitCode: 0 }) });
    const done = await command.wait();
    expect([done.exitCode, await done.stdout()]).toEqual([3, "out\n"]);
  });

  it("that are detached replay their log to any reader, and follow it", async () => {
    const command = await sandbox.runCommand({
      cmd: "sh",
      args: ["-c", "echo one; until [ -e go ]; do sleep 0.05; done; echo two >&2"],
      detached: true,
    });
    const read: string[] = [];
    for await (const log of command.logs()) {
      read.push(`${log.stream} ${log.data}`);
      if (read.length === 1) await sandbox.runCommand("touch", ["go"]);
    }
    expect(read).toEqual(["stdout one\n", "stderr two\n"]);
    const done = await command.wait();
    expect([done.exitCode, await done.stdout(), await done.stderr()]).toEqual([0, "one\n", "two\n"]);
    const again = await sandbox.getCommand(command.cmdId);
    expect(again.exitCode).toBe(0);
  });

  it("get signals by number; KILL ends what they started", async () => {
    const trapping = await sandbox.runCommand({
      cmd: "sh",
      args: ["-c", "trap 'echo got; exit 4' INT; echo ready; while :; do sleep 0.05; done"],
      detached: true,
    });
    for await (const { data } of trapping.logs()) if (data.includes("ready")) break;
    await trapping.kill("SIGINT");
    expect((await trapping.wait()).exitCode).toBe(4);

    const parent = await sandbox.runCommand({
      cmd: "sh",
      args: ["-c", "sleep 98765 & echo $!; wait"],
      detached: true,
    });
    let child = 0;
    for await (const { data } of parent.logs()) {
      child = Number(data);
      break;
    }
    await parent.kill("SIGKILL");
    expect((await parent.wait()).exitCode).toBe(137);
    await expect
      .poll(() => readFile(`/proc/${child}/cmdline`, "utf8").catch(() => "gone"))
      .not.toContain("98765");
  });

  it("end with 137 when their time is up", async () => {
    const result = await sandbox.runCommand({
      cmd: "sh",
      args: ["-c", "echo begun; sleep 60"],
      timeoutMs: 500,
    });
    expect([result.exitCode, await result.stdout()]).toEqual([137, "begun\n"]);
  });

  it("go on when their client goes away", async () => {
    const leaving = new AbortController();
    const running = sandbox.runCommand({
      cmd: "sh",
      args: ["-c", "touch up; until [ -e left ]; do sleep 0.05; done; touch finished"],
      signal: leaving.signal,
    });
    const isThere = (name: string) =>
      stat(join(workspace(), name)).then(
        () => true,
        () => false,
      );
    await expect.poll(() => isThere("up"), { timeout: 15_000 }).toBe(true);
    const left = expect(running).rejects.toThrow();
    leaving.abort(new DOMException("Left", "AbortError"));
    await left;
    await sandbox.runCommand("touch", ["left"]);
    await expect.poll(() => isThere("finished"), { timeout: 15_000 }).toBe(true);
  });

  it("deliver much output whole, in order", async () => {
    const result = await sandbox.runCommand("seq", ["400000"]);
    const text = await result.stdout();
    expect(text.length).toBe(2_688_895);
    expect(text.endsWith("\n399999\n400000\n")).toBe(true);
  });

  it("run side by side", async () => {
    const outputs = await Promise.all(
      Array.from({ length: 12 }, async (_, at) => (await sandbox.runCommand("echo", [String(at)])).stdout()),
    );
    expect(outputs).toEqual(Array.from({ length: 12 }, (_, at) => `${at}\n`));
  });
});

describe("files", () => {
  it("are written and read byte by byte, with their modes", async () => {
    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, at) => (at * 7) % 256));
    await sandbox.writeFiles([
      { path: "deep/er/bytes", content: bytes },
      { path: "tool.sh", content: "#!/bin/sh\necho ran", mode: 0o755 },
    ]);
    expect(await sandbox.readFileToBuffer({ path: "deep/er/bytes" })).toEqual(bytes);
    expect(await (await sandbox.runCommand("./tool.sh")).stdout()).toBe("ran\n");
    await sandbox.writeFiles([{ path: "tool.sh", content: "x", mode: 0o600 }]);
    expect((await stat(join(workspace(), "tool.sh"))).mode & 0o777).toBe(0o600);
  });

  it("larger than a piece are read whole", async () => {
    await sandbox.runCommand("sh", ["-c", "head -c 9000001 /dev/zero >large"]);
    expect((await sandbox.readFileToBuffer({ path: "large" }))?.length).toBe(9_000_001);
  });

  it("that are missing are null; folders are made", async () => {
    expect(await sandbox.readFileToBuffer({ path: "missing" })).toBeNull();
    await sandbox.mkDir("made");
    expect((await stat(join(workspace(), "made"))).isDirectory()).toBe(true);
    await expect(sandbox.readFileToBuffer({ path: "made" })).rejects.toMatchObject({
      response: { status: 400 },
    });
  });

  it("of an archive stay below its root, and nothing but files and folders is taken", async () => {
    const archive = (entries: readonly Parameters<ReturnType<typeof pack>["entry"]>[0][]) => {
      const tar = pack();
      for (const entry of entries) tar.entry(entry, entry.type === undefined ? "x" : "");
      tar.finalize();
      return new Promise<Buffer>((resolve) => {
        const chunks: Buffer[] = [];
        tar
          .on("data", (chunk) => chunks.push(Buffer.from(chunk as Uint8Array)))
          .on("end", () => resolve(gzipSync(Buffer.concat(chunks))));
      });
    };
    const send = async (entries: Parameters<typeof archive>[0], root = workspace()) =>
      (await ask("/fs/write", new Uint8Array(await archive(entries)), { "x-cwd": root })).status;
    expect(await send([{ name: "good" }, { name: "folder", type: "directory" }])).toBe(200);
    // As `tar -cf - .` names what it begins with.
    expect(await send([{ name: "./", type: "directory" }, { name: "./good" }])).toBe(200);
    expect(await send([{ name: "./" }])).toBe(400);
    expect(await send([{ name: "first" }, { name: "../evil" }])).toBe(400);
    expect(await send([{ name: "a/../../evil" }])).toBe(400);
    expect(await send([{ name: "link", type: "symlink", linkname: "/etc/passwd" }])).toBe(400);
    expect(await send([{ name: "device", type: "character-device" }])).toBe(400);
    expect(await send([{ name: "good" }], "relative")).toBe(400);
    expect((await ask("/fs/write", "no archive", { "x-cwd": "/" })).status).toBe(400);
    await expect(stat(join(workspace(), "first"))).rejects.toMatchObject({ code: "ENOENT" });
    expect(await readFile(join(workspace(), "good"), "utf8")).toBe("x");
    await symlink("good", join(workspace(), "to-good"));
    expect((await sandbox.readFileToBuffer({ path: "to-good" }))?.toString()).toBe("x");
  });
});
