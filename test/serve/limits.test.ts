/** What a served API bounds: just within is taken, just beyond is refused, and nothing of a refused request stays. */
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { gunzipSync, gzipSync } from "node:zlib";
import { Sandbox } from "@vercel/sandbox";
import { type Header, pack } from "tar-stream";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Command, ExecOptions, ExecResult } from "../../environments/base.ts";
import { abortedResult } from "../../environments/shell/runner.ts";
import { limits } from "../../src/limits.ts";
import { EmptyEnvironment } from "../src/fake-environment.ts";
import { CREDENTIALS, type Served, serve } from "./served.ts";

/** Runs nothing: `wait` begins and goes on until it is cut, anything else has ended at once. */
class IdleEnvironment extends EmptyEnvironment {
  override async exec(command: Command, options: ExecOptions = {}): Promise<ExecResult> {
    await options.onOutput?.({ stream: "stdout", data: Buffer.from("1\n") });
    const { abortSignal } = options;
    if (command.includes("wait") && abortSignal && !abortSignal.aborted) {
      await new Promise<void>((resolve) => {
        abortSignal.addEventListener("abort", () => resolve(), { once: true });
      });
    }
    return { ...abortedResult("/"), aborted: false, exitCode: 0 };
  }
}

let served: Served;
let session: string;
beforeAll(async () => {
  served = await serve(() => async () => ({ environment: new IdleEnvironment() }));
  const sandbox = await Sandbox.create({ ...served.client, name: "bounds" });
  session = `/sessions/${sandbox.currentSession().sessionId}`;
});
afterAll(() => served?.[Symbol.asyncDispose]());

const HEADERS = { authorization: `Bearer ${CREDENTIALS.token}` };

async function ask(method: string, path: string, body?: unknown): Promise<Response> {
  const isRaw = body instanceof Uint8Array;
  const query = `teamId=${CREDENTIALS.teamId}&project=${CREDENTIALS.projectId}&projectId=${CREDENTIALS.projectId}`;
  return fetch(`${served.address}/v2/sandboxes${path}${path.includes("?") ? "&" : "?"}${query}`, {
    method,
    headers: { ...HEADERS, ...(isRaw && { "x-cwd": "/" }) },
    ...(body !== undefined && { body: isRaw ? new Uint8Array(body) : JSON.stringify(body) }),
  });
}

const settings = { projectId: CREDENTIALS.projectId };
const create = (asked: object) => ["POST", "", { ...settings, ...asked }] as const;
const change = (asked: object) => ["PATCH", "/bounds", asked] as const;
const run = (asked: object) => ["POST", `${session}/cmd`, { command: "true", wait: true, ...asked }] as const;
const DAY_MS = limits.serveMaxTimeoutMs;
const tags = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`t${at}`, ""]));

describe("a number, a name or a list", () => {
  type Asked = readonly [method: string, path: string, body?: unknown];
  const bounds: readonly (readonly [string, within: () => Asked, beyond: () => readonly Asked[]])[] = [
    [
      "time of a sandbox",
      () => change({ timeout: DAY_MS }),
      () => [DAY_MS + 1, 0, -1, 1.5, "1", null, 1e99].map((timeout) => change({ timeout })),
    ],
    [
      "time of a command",
      () => run({ timeout: DAY_MS }),
      () => [DAY_MS + 1, 0, -1, 1.5, "1", null, 1e99].map((timeout) => run({ timeout })),
    ],
    [
      "time that a session is given",
      () => ["POST", `${session}/extend-timeout`, { duration: 1 }],
      () =>
        [DAY_MS, 0, -1, 0.5, "1", null, undefined].map(
          (duration) => ["POST", `${session}/extend-timeout`, { duration }] as const,
        ),
    ],
    [
      "processors",
      () => change({ resources: { vcpus: 0.5 } }),
      () => [0, -1, "2", null].map((vcpus) => change({ resources: { vcpus } })),
    ],
    ["tags", () => change({ tags: tags(5) }), () => [change({ tags: tags(6) }), change({ tags: { a: 1 } })]],
    [
      "life of snapshots",
      () => change({ snapshotExpiration: 0 }),
      () => [-1, 1.5, "0"].map((snapshotExpiration) => change({ snapshotExpiration })),
    ],
    [
      "name of a sandbox",
      () => create({ name: `n${"a".repeat(127)}` }),
      () =>
        ["", `n${"a".repeat(128)}`, ".a", "-a", "a/b", "a b", "ü", "a\n", "sessions", "snapshots", 7].map(
          (name) => create({ name }),
        ),
    ],
    [
      "name of a variable",
      () => run({ env: { _A1: "" } }),
      () =>
        ["", "1A", "A-B", "A=B", "A\n", "Ä"].flatMap((name) => [
          run({ env: { [name]: "" } }),
          create({ env: { [name]: "" } }),
        ]),
    ],
    [
      "program",
      () => run({ command: "a b" }),
      () => ["", "-x", null, ["true"]].map((command) => run({ command })),
    ],
    [
      "page",
      () => ["GET", "?limit=1"],
      () =>
        ["limit=0", "limit=-1", "limit=1.5", "limit=x", "limit=", "sortOrder=up", "sortBy=size"].map(
          (query) => ["GET", `?${query}`] as const,
        ),
    ],
  ];

  it.each(bounds)("%s is bounded", async (_, within, beyond) => {
    const sandboxes = async () => (await Sandbox.list(served.client)).sandboxes.length;
    const answer = await ask(...within());
    expect([answer.status, await answer.text()]).toEqual([200, expect.any(String)]);
    const before = await sandboxes();
    for (const asked of beyond()) {
      const refused = await ask(...asked);
      expect([asked, refused.status, await refused.json()]).toEqual([
        asked,
        400,
        { error: { code: "bad_request", message: expect.stringMatching(/./) } },
      ]);
    }
    expect(await sandboxes()).toBe(before);
  });
});

describe("a count", () => {
  it("of commands bounds those that run, and the logs that are kept of those that have ended", async () => {
    const sandbox = await Sandbox.create({ ...served.client, name: "counts" });
    const start = (cmd: string) => sandbox.runCommand({ cmd, detached: true });
    const [oldest] = [await start("true")];
    for (let at = 0; at < limits.serveKeptCommands; at += 1) await start("true");
    await expect(sandbox.getCommand(oldest.cmdId)).rejects.toMatchObject({ response: { status: 404 } });
    const running = [];
    for (let at = 0; at < limits.serveMaxCommands; at += 1) running.push(await start("wait"));
    await expect(start("wait")).rejects.toMatchObject({
      response: { status: 400 },
      json: { error: { code: "too_many_commands" } },
    });
    await sandbox.stop();
    await sandbox.delete();
  });

  it("of sandboxes bounds those that run", async () => {
    const { sandboxes } = await Sandbox.list({ ...served.client, limit: limits.servePageMax });
    const free = limits.serveMaxSandboxes - sandboxes.length;
    const made: Sandbox[] = [];
    for (let at = 0; at < free; at += 1) {
      made.push(await Sandbox.create({ ...served.client, name: `many-${at}`, persistent: false }));
    }
    const refused = await ask(...create({ name: "one-more" }));
    expect([refused.status, await refused.json()]).toMatchObject([
      400,
      { error: { code: "too_many_sandboxes" } },
    ]);
    await made[0]?.stop();
    await Sandbox.create({ ...served.client, name: "one-more" });
    const page = await ask("GET", "?limit=1000000");
    const { sandboxes: listed } = (await page.json()) as { sandboxes: unknown[] }; // the API's form
    expect(listed.length).toBe(limits.serveMaxSandboxes + 1);
  });
});

describe("a body", () => {
  const large = { status: 413, body: { error: { code: "too_large", message: expect.any(String) } } };

  it.each([
    ["/cmd", limits.serveBodyMaxBytes],
    ["/fs/write", limits.serveArchiveMaxBytes],
  ])("of %s that says that it is too large is refused before it is sent", async (path, maxBytes) => {
    const answer = await new Promise<{ status: number | undefined; body: unknown }>((resolve, reject) => {
      const sent = httpRequest(
        `${served.address}/v2/sandboxes${session}${path}?teamId=${CREDENTIALS.teamId}`,
        {
          method: "POST",
          headers: { ...HEADERS, "x-cwd": "/", "content-length": maxBytes + 1 },
        },
      );
      sent.on("response", async (response) => {
        const text = await response.setEncoding("utf8").reduce((all, part) => all + part, "");
        resolve({ status: response.statusCode, body: JSON.parse(text) });
      });
      sent.on("error", reject);
      sent.flushHeaders();
    });
    expect(answer).toEqual(large);
  });

  it("that grows too large while it is sent is given up", async () => {
    const piece = Buffer.alloc(1024 * 1024, "x");
    let sent = 0;
    const long = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        // It has an end, since this client goes on taking for ever once its connection was reset.
        if (sent >= 4 * limits.serveBodyMaxBytes) return controller.close();
        sent += piece.length;
        controller.enqueue(piece);
      },
    });
    const answer = fetch(`${served.address}/v2/sandboxes${session}/cmd?teamId=${CREDENTIALS.teamId}`, {
      method: "POST",
      headers: HEADERS,
      body: long,
      duplex: "half",
    } as RequestInit); // the types lack `duplex`
    // The server stops reading, which some clients learn before they have read why.
    const [status, sentByThen] = await answer.then(
      (response) => [response.status, sent] as const,
      () => ["cut", sent] as const,
    );
    expect([413, "cut"]).toContain(status);
    expect(sentByThen).toBeLessThan(2 * limits.serveBodyMaxBytes);
  });
});

describe("an archive", () => {
  async function archive(
    entries: Iterable<readonly [Partial<Header> & { readonly name: string }, string]>,
  ): Promise<Uint8Array> {
    const tar = pack();
    const chunks: Buffer[] = [];
    tar.on("data", (chunk) => chunks.push(Buffer.from(chunk as Uint8Array)));
    const ended = new Promise<void>((resolve) => tar.once("end", () => resolve()));
    for (const [header, content] of entries) tar.entry(header, content);
    tar.finalize();
    await ended;
    return gzipSync(Buffer.concat(chunks), { level: 1 });
  }
  const send = async (bytes: Uint8Array) => {
    const answer = await ask("POST", `${session}/fs/write`, bytes);
    const { error } = (await answer.json()) as { error: { message: string } }; // the API's form
    return [answer.status, error.message] as const;
  };

  it("of too many files is refused", { tags: ["slow"] }, async () => {
    const many = Array.from(
      { length: limits.serveArchiveMaxFiles + 1 },
      (_, at) => [{ name: `f${at}` }, ""] as const,
    );
    expect(await send(await archive(many))).toEqual([400, expect.stringContaining("entries")]);
  });

  it("that unpacks to too much is refused, wherever in it the bytes are", { tags: ["slow"] }, async () => {
    const zeros = Buffer.alloc(limits.serveUnpackedMaxBytes + 1_024);
    const tar = pack();
    tar.entry({ name: "large", size: zeros.length });
    const [header] = (await once(tar, "data")) as [Buffer]; // streams of tar-stream are of bytes
    // The content of a file, and an end mark that does not end.
    for (const parts of [[header, zeros], [zeros]]) {
      const bomb = gzipSync(Buffer.concat(parts), { level: 1 });
      expect(await send(bomb)).toEqual([400, expect.stringContaining("unpacks to more than")]);
    }
  });

  it("that ends early is refused, and nothing of it is written", async () => {
    const whole = gunzipSync(await archive([[{ name: "a" }, "x".repeat(5_000)]]));
    expect(await send(gzipSync(whole.subarray(0, 1_024)))).toEqual([400, expect.stringContaining("read")]);
    const packed = gzipSync(whole);
    expect(await send(packed.subarray(0, packed.length - 10))).toEqual([
      400,
      expect.stringContaining("read"),
    ]);
  });
});
