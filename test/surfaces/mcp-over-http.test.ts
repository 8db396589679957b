import { request } from "node:http";
import { Client, type ClientOptions, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { describe, expect, it, onTestFinished } from "vitest";
import { outcome, privateHome, startMoor, until } from "./moor.ts";
import { pidsOf, uniqueSleep } from "./processes.ts";

const TOKEN = "a-token-of-this-test";

/** `moor mcp --http 0` on this machine, up and listening. */
async function serve(env: Readonly<Record<string, string>> = { MOORAGE_MCP_TOKEN: TOKEN }) {
  const child = startMoor(["mcp", "-e", "local", "--http", "0"], { env: { ...privateHome(), ...env } });
  let stderr = "";
  child.stderr.on("data", (chunk: Buffer) => {
    stderr += chunk.toString("utf8");
  });
  const ended = outcome(child);
  const url = await until("it listens", () => /Serving MCP at (\S+)/.exec(stderr)?.[1], 30_000);
  return { child, ended, url, stderr: () => stderr };
}

async function connect(url: string, token = TOKEN, options?: ClientOptions) {
  const client = new Client({ name: "moorage-test", version: "1.0.0" }, options);
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers: { authorization: `Bearer ${token}` } },
  });
  await client.connect(transport);
  onTestFinished(() => client.close());
  return { client, transport };
}

/** Status of a request with these headers. */
function statusOf(url: string, headers: Record<string, string>, path = "/mcp"): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" });
    const all = {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...headers,
    };
    const sent = request(new URL(path, url), { method: "POST", headers: all }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    sent.on("error", reject).end(body);
  });
}

const MODERN = { versionNegotiation: { mode: { pin: "2026-07-28" } } } as const;

describe("moor mcp --http", () => {
  it("serves clients of both protocols, each session with a shell of its own, until a signal", async () => {
    const { child, ended, url } = await serve();
    const pwd = async (client: Client, command: string): Promise<unknown> =>
      (await client.callTool({ name: "terminal", arguments: { command } })).structuredContent;
    const [one, two, modern] = [await connect(url), await connect(url), await connect(url, TOKEN, MODERN)];
    for (const { client } of [one, two, modern]) {
      expect((await client.listTools()).tools).toHaveLength(6);
    }
    await pwd(one.client, "export WHO=one");
    await pwd(two.client, "export WHO=two");
    expect(await pwd(one.client, "echo $WHO")).toMatchObject({ output: "one\n" });
    expect(await pwd(two.client, "echo $WHO")).toMatchObject({ output: "two\n" });
    expect(await pwd(modern.client, 'echo "${WHO-nobody}"')).toMatchObject({ output: "nobody\n" });
    const progress: string[] = [];
    await one.client.callTool(
      { name: "terminal", arguments: { command: "echo begun; sleep 0.6; echo done" } },
      { onprogress: ({ message = "" }) => void progress.push(message) },
    );
    expect(progress.join("")).toContain("begun");
    await one.transport.terminateSession();
    await expect(one.client.listTools()).rejects.toThrow();
    child.kill("SIGTERM");
    expect(await ended).toMatchObject({ exitCode: 143, stdout: "" });
  });

  it.each([
    ["2025", undefined],
    ["2026-07-28", MODERN],
  ])("ends a cancelled command of the %s protocol", async (_protocol, options) => {
    const { url } = await serve();
    const { client } = await connect(url, TOKEN, options);
    const sleep = uniqueSleep();
    const controller = new AbortController();
    const call = client.callTool(
      { name: "terminal", arguments: { command: sleep } },
      { signal: controller.signal },
    );
    call.catch(() => {});
    await until("it runs", () => pidsOf(sleep).length > 0, 30_000);
    controller.abort();
    await until("it is gone", () => pidsOf(sleep).length === 0, 30_000);
  });

  it("refuses pages of a browser, other hosts, other paths and other tokens", async () => {
    const { url } = await serve();
    const authorization = `Bearer ${TOKEN}`;
    expect({
      none: await statusOf(url, {}),
      other: await statusOf(url, { authorization: "Bearer other" }),
      host: await statusOf(url, { authorization, host: "rebound.test" }),
      broken: await statusOf(url, { authorization, host: "a b" }),
      origin: await statusOf(url, { authorization, origin: "https://page.test" }),
      path: await statusOf(url, { authorization }, "/"),
      session: await statusOf(url, { authorization, "mcp-session-id": "unknown" }),
      handshake: await statusOf(url, { authorization }),
    }).toEqual({
      none: 401,
      other: 401,
      host: 403,
      broken: 400,
      origin: 403,
      path: 404,
      session: 404,
      handshake: 400,
    });
  });

  it("makes a token and shows it when none is given", async () => {
    const { url, stderr } = await serve({ MOORAGE_MCP_TOKEN: "" });
    const token = await until("it is shown", () => /Bearer ([\w-]{32})"/.exec(stderr())?.[1]);
    const { client } = await connect(url, token);
    expect((await client.listTools()).tools).toHaveLength(6);
  });
});
