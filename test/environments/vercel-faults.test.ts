/** What a sandbox server may do wrong: each has its own right outcome, and no command runs twice. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Sandbox, Snapshot } from "@vercel/sandbox";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { BaseEnvironment, ExecOptions } from "../../environments/base.ts";
import { createVercelEnvironment } from "../../environments/vercel/index.ts";
import { CREDENTIALS, type Served, serveLocal } from "../serve/served.ts";
import { type Fault, type MisbehavingServer, misbehave, passOn } from "./misbehaving-server.ts";

let served: Served;
let server: MisbehavingServer;
let stateDir: string;
let environment: BaseEnvironment;
let counter = 0;

beforeAll(async () => {
  served = await serveLocal();
  server = await misbehave(served.address);
  stateDir = await mkdtemp(join(tmpdir(), "moorage-faults-"));
  environment = createVercelEnvironment({
    baseUrl: `${server.address}/api`,
    credentials: CREDENTIALS,
    stateDir,
    id: "faulty",
    answerTimeoutMs: 3_000,
  });
  await environment.start();
});
afterAll(async () => {
  await environment?.stop();
  await server?.[Symbol.asyncDispose]();
  await served?.[Symbol.asyncDispose]();
  await rm(stateDir, { recursive: true, force: true });
});

/** A command that leaves a line at each run, sent to a server that answers it so. */
async function meet(...faults: readonly Fault[]) {
  return meetWithin({}, ...faults);
}

async function meetWithin(options: ExecOptions, ...faults: readonly Fault[]) {
  counter += 1;
  const file = join(stateDir, `runs-${counter}`);
  server.watch(file, faults);
  const outcome = await environment.exec(`echo ran >>${file}; echo done`, options).then(
    ({ output, exitCode, notes }) => ({ output, exitCode, notes }),
    (error: unknown) => {
      const { name, code } = error as { name: string; code: string }; // asserted by the caller
      return { name, code };
    },
  );
  const runs = await readFile(file, "utf8").then(
    (text) => text.split("\n").length - 1,
    () => 0,
  );
  return { outcome, runs, asked: server.asked };
}

const NEWS = ['{"stream":"heartbeat"}', '{"ping":1}', "null", "1", '{"stream":"metrics","data":{"cpu":1}}'];
const DONE = { output: "done\n", exitCode: 0, notes: [] };
const UNKNOWN = { name: "MoorageError", code: "EXECUTION_UNKNOWN" };

function refuse(status: number, code: string, headers: Record<string, string> = {}): Fault {
  return async (response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify({ error: { code, message: "Not now" } }));
  };
}

async function ranWhole(answer: Response): Promise<string> {
  return answer.text();
}

function lines(response: ServerResponse, text: string, type = "application/x-ndjson"): void {
  response.writeHead(200, { "content-type": type });
  response.end(text);
}

describe("a command whose server", () => {
  it("answers 503 is sent once, and its end is unknown", async () => {
    expect(await meet(refuse(503, "unavailable"))).toEqual({ outcome: UNKNOWN, runs: 0, asked: 1 });
  });

  it("drops the connection after it ran is not sent again", async () => {
    const drop: Fault = async (response, forward) => {
      await ranWhole(await forward());
      response.destroy();
    };
    expect(await meet(drop)).toEqual({ outcome: UNKNOWN, runs: 1, asked: 1 });
  });

  it("drops the connection in the middle of the output is not sent again", async () => {
    const drop: Fault = async (response, forward) => {
      const [first = ""] = (await ranWhole(await forward())).split("\n");
      response.writeHead(200, { "content-type": "application/x-ndjson" });
      response.write(`${first}\n`, () => response.destroy());
    };
    expect(await meet(drop)).toEqual({ outcome: UNKNOWN, runs: 1, asked: 1 });
  });

  it("ends the stream early is not sent again", async () => {
    const end: Fault = async (response, forward) => {
      const [first = ""] = (await ranWhole(await forward())).split("\n");
      lines(response, `${first}\n`);
    };
    expect(await meet(end)).toEqual({ outcome: UNKNOWN, runs: 1, asked: 1 });
  });

  it("sends no JSON is not sent again", async () => {
    const garble: Fault = async (response, forward) => {
      await ranWhole(await forward());
      lines(response, "<html>\n");
    };
    expect(await meet(garble)).toEqual({ outcome: UNKNOWN, runs: 1, asked: 1 });
  });

  it("stays silent is given up in time", { tags: ["slow"] }, async () => {
    expect(await meet(async () => {})).toEqual({ outcome: UNKNOWN, runs: 0, asked: 1 });
  });

  it("falls silent in the middle of the output is given up when the command's time is up", {
    tags: ["slow"],
  }, async () => {
    const silence: Fault = async (response, forward) => {
      const [first = ""] = (await ranWhole(await forward())).split("\n");
      response.writeHead(200, { "content-type": "application/x-ndjson" });
      response.write(`${first}\n${JSON.stringify({ stream: "stdout", data: "do" })}\n`);
    };
    const met = await meetWithin({ timeoutMs: 2_000 }, silence);
    expect(met).toEqual({
      outcome: { ...DONE, output: "do", exitCode: null },
      runs: 1,
      asked: 1,
    });
  });

  it("falls silent for good is given up when the server says that the command has ended", {
    tags: ["slow"],
  }, async () => {
    const silence: Fault = async (response, forward) => {
      const [first = ""] = (await ranWhole(await forward())).split("\n");
      response.writeHead(200, { "content-type": "application/x-ndjson" });
      response.write(`${first}\n`);
    };
    const [silent, patient] = await Promise.all([
      meet(silence),
      // Longer than it takes to ask twice: silence alone is no fault.
      environment.exec("sleep 8; echo done"),
    ]);
    expect(silent).toEqual({ outcome: UNKNOWN, runs: 1, asked: 1 });
    expect(patient).toMatchObject({ output: "done\n", exitCode: 0 });
  });

  it("answers 429 with Retry-After runs once, after that time", async () => {
    const begun = performance.now();
    const met = await meet(refuse(429, "rate_limited", { "retry-after": "1" }));
    expect(met).toEqual({ outcome: DONE, runs: 1, asked: 2 });
    expect(performance.now() - begun).toBeGreaterThan(1_000);
  });

  it.each([
    [410, "sandbox_stopped"],
    [422, "sandbox_stopping"],
  ])("answers %i runs once, in the resumed session", async (status, code) => {
    const { outcome, ...counts } = await meet(refuse(status, code));
    expect(outcome).toMatchObject({ output: "done\n", notes: [expect.stringContaining("was resumed")] });
    expect(counts).toEqual({ runs: 1, asked: 2 });
  });

  it("adds a charset to the content type is understood", async () => {
    const charset: Fault = async (response, forward) =>
      lines(response, await ranWhole(await forward()), "application/x-ndjson; charset=utf-8");
    expect(await meet(charset)).toEqual({ outcome: DONE, runs: 1, asked: 1 });
  });

  it("sends its lines byte by byte is understood", async () => {
    const trickle: Fault = async (response, forward) => {
      const text = await ranWhole(await forward());
      response.writeHead(200, { "content-type": "application/x-ndjson" });
      for (const byte of Buffer.from(text)) {
        response.write(Buffer.from([byte]));
        await new Promise((resolve) => setImmediate(resolve));
      }
      response.end();
    };
    expect(await meet(trickle)).toEqual({ outcome: DONE, runs: 1, asked: 1 });
  });

  it.each([
    ["blank lines between", (all: readonly string[]) => all.flatMap((line) => [line, "\r", "  "])],
    ["lines that end as on Windows", (all: readonly string[]) => all.map((line) => `${line}\r`)],
    ["news that nobody knows", (all: readonly string[]) => all.flatMap((line) => [line, ...NEWS])],
    [
      "its beginning twice and with more in it",
      ([first = "", ...rest]: readonly string[]) => [first, first.replace("{", '{"new":[1],'), ...rest],
    ],
    ["its end twice", (all: readonly string[]) => [...all, all.at(-1) ?? ""]],
    [
      "output before its beginning",
      ([first = "", ...rest]: readonly string[]) => [rest[0] ?? "", first, ...rest.slice(1)],
    ],
  ])("sends %s is understood", async (_, change) => {
    const varied: Fault = async (response, forward) => {
      const all = (await ranWhole(await forward())).trim().split("\n");
      lines(response, `${change(all).join("\n")}\n`);
    };
    expect(await meet(varied)).toEqual({ outcome: DONE, runs: 1, asked: 1 });
  });

  it("accepts it and says nothing of it is given up in time", { tags: ["slow"] }, async () => {
    const mute: Fault = async (response, forward) => {
      await ranWhole(await forward());
      response.writeHead(200, { "content-type": "application/x-ndjson" });
      response.flushHeaders();
    };
    expect(await meet(mute)).toEqual({ outcome: UNKNOWN, runs: 1, asked: 1 });
  });

  it("behaves is not disturbed", async () => {
    const honest: Fault = async (response, forward) => passOn(await forward(), response);
    expect(await meet(honest)).toEqual({ outcome: DONE, runs: 1, asked: 1 });
  });
});

describe("a question about a process", () => {
  const lose: Fault = async (response, forward) => {
    await ranWhole(await forward());
    response.destroy();
  };
  /** Its shell is killed, and says nothing more. */
  const die: Fault = async (response, forward) => {
    const all = (await ranWhole(await forward())).trim().split("\n");
    const first = all[0] ?? "";
    const last = (all.at(-1) ?? "").replace(/"exitCode":\d+/, '"exitCode":143');
    lines(response, `${first}\n${last}\n`);
  };

  it("is asked again when its answer was lost, on whatever way, but not for ever", async () => {
    const process = await environment.processes.start("read line; echo $line; exit 5");
    server.watch(process.id, [lose, die]);
    expect(await process.info()).toMatchObject({ id: process.id, status: "running" });
    expect(server.asked).toBe(3);
    server.watch(process.id, [die]);
    expect((await environment.processes.get(process.id)).id).toBe(process.id);
    server.watch(process.id, [die, lose, die, lose]);
    await expect(process.info()).rejects.toMatchObject(UNKNOWN);
    expect(server.asked).toBe(3);
    // To write twice is not the same as to write once.
    server.watch(process.id, [lose]);
    await expect(process.write("said\n")).rejects.toMatchObject(UNKNOWN);
    expect(server.asked).toBe(1);
    server.watch(process.id, [die, lose]);
    expect(await process.wait()).toMatchObject({ reason: "exit", info: { exitCode: 5 } });
    server.watch(process.id, [lose]);
    expect((await process.log()).text).toBe("said\n");
  });

  it("and the content of a file are, and a file that is written is not written twice", async () => {
    server.watch("asked-again", [lose]);
    await expect(environment.files.writeFile("asked-again", "one")).rejects.toMatchObject(UNKNOWN);
    // The second one takes away what the first may have left half-way.
    expect(server.asked).toBe(2);
    server.watch("asked-again", [die]);
    expect((await environment.files.readFile("asked-again")).bytes.toString()).toBe("one");
    server.watch("asked-again", [lose]);
    expect((await environment.files.stat("asked-again")).size).toBe(3);
    expect(server.asked).toBe(2);
  });
});

describe("a sandbox", () => {
  /** One of its own, whose requests that hold `text` meet these faults. */
  const another = (id: string, text: string, ...faults: readonly Fault[]) => {
    server.watch(text, faults);
    return createVercelEnvironment({
      baseUrl: `${server.address}/api`,
      credentials: CREDENTIALS,
      stateDir,
      id,
      sessionTimeoutMs: 4_000,
    });
  };
  const namesOf = async (namePrefix: string) =>
    (await Sandbox.list({ ...served.client, namePrefix })).sandboxes.map(({ name }) => name);
  const madeInVain: Fault = async (response, forward) => {
    await ranWhole(await forward());
    response.destroy();
  };

  it("whose creation is answered with a cut connection is ours all the same", async () => {
    const once = another("cut", "moorage-cut", madeInVain);
    expect((await once.exec("echo here")).output).toBe("here\n");
    expect(await namesOf("moorage-cut")).toEqual(["moorage-cut"]);
    await once.stop();
    expect(await namesOf("moorage-cut")).toEqual([]);
  });

  it("whose creation fails after it was made is not left behind", async () => {
    const busy = refuse(503, "unavailable");
    const never = another("never", "moorage-never", madeInVain, busy, busy);
    await expect(never.start()).rejects.toMatchObject({ code: "ENVIRONMENT_UNAVAILABLE" });
    expect(await namesOf("moorage-never")).toEqual([]);
    await never.stop();
  });

  it("of somebody else's that has the name is not taken", async () => {
    await Sandbox.create({ ...served.client, name: "moorage-taken" });
    const taken = another("taken", "moorage-taken");
    await expect(taken.start()).rejects.toMatchObject({ code: "ENVIRONMENT_UNAVAILABLE" });
    await taken.stop();
    expect(await namesOf("moorage-taken")).toEqual(["moorage-taken"]);
  });

  it("lives on when a prolongation fails, and the next one makes up for it", { tags: ["slow"] }, async () => {
    const busy = refuse(503, "unavailable");
    const patient = another("patient", '"duration"', busy, busy, busy);
    await patient.exec("echo kept >file");
    await new Promise((resolve) => setTimeout(resolve, 7_000));
    expect(await patient.exec("cat file")).toMatchObject({ output: "kept\n", notes: [] });
    await patient.stop();
  });

  it("takes what its sessions saved with it", async () => {
    const saving = another("saving", "");
    await saving.start();
    await (await Sandbox.get({ ...served.client, name: "moorage-saving", resume: false })).stop();
    await saving.exec("true");
    await saving.stop();
    expect((await Snapshot.list({ ...served.client, name: "moorage-saving" })).snapshots).toEqual([]);
  });

  it("whose session ended meanwhile is resumed with its files, and says so once", async () => {
    await environment.files.writeFile("kept", "kept");
    const sandbox = await Sandbox.get({ ...served.client, name: "moorage-faulty", resume: false });
    await sandbox.stop();
    const { outcome, ...counts } = await meet();
    expect(outcome).toMatchObject({ output: "done\n", notes: [expect.stringContaining("was resumed")] });
    expect(counts).toEqual({ runs: 1, asked: 2 });
    expect((await environment.exec("cat kept")).output).toBe("kept");
    expect((await meet()).outcome).toEqual(DONE);
  });

  it("whose snapshot is gone is made anew, and says that its files are lost", async () => {
    const sandbox = await Sandbox.get({ ...served.client, name: "moorage-faulty", resume: false });
    const { snapshot } = await sandbox.stop();
    await (await Snapshot.get({ ...served.client, snapshotId: snapshot?.id ?? "" })).delete();
    const { outcome, ...counts } = await meet();
    expect(outcome).toMatchObject({
      output: "done\n",
      notes: [expect.stringContaining("its files are lost")],
    });
    expect(counts).toEqual({ runs: 1, asked: 2 });
    expect((await environment.exec("ls -A")).output).toBe("");
  });
});
