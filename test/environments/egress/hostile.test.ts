/** What servers send that mean harm, and clients that ask for too much at once or leave too soon. */
import { connect, createServer, type Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { createEgressProxy, type EgressProxyOptions } from "../../../environments/egress/proxy.ts";
import { limits } from "../../../src/limits.ts";
import { Client, clientHello, PUBLIC, portOf } from "./network.ts";

const GET = "GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n";
const OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/** A proxy before one server, which sends this to whoever says anything. */
async function serverThat(answer: string, options: Partial<EgressProxyOptions> = {}) {
  const received: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    const index = received.push("") - 1;
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      if (received[index] === "" && answer !== "") socket.write(answer, "latin1");
      received[index] += chunk.toString("latin1");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const proxy = await createEgressProxy({
    policy: { allow: ["allowed.test", "git.test:22"] },
    listen: { port: 0 },
    lookup: async () => [PUBLIC],
    connect: (_, __, onread) =>
      connect({ host: "127.0.0.1", port: portOf(server), allowHalfOpen: true, ...(onread && { onread }) }),
    ...options,
  });
  return {
    proxy,
    received,
    sockets,
    client: () => new Client(proxy.port ?? 0),
    [Symbol.asyncDispose]: async () => {
      await proxy.close();
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

describe("a hostile server", () => {
  it.each([
    ["a status of 000", "HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n"],
    ["a status below 100", "HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n"],
    ["a control character in its reason", "HTTP/1.1 200 a\x01b\r\nContent-Length: 0\r\n\r\n"],
    ["a delete in its reason", "HTTP/1.1 200 a\x7fb\r\nContent-Length: 0\r\n\r\n"],
    ["a control character in a header", "HTTP/1.1 200 OK\r\nX: a\x01b\r\n\r\n"],
    ["a folded header", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n"],
    ["another protocol", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nraw"],
    ["both framings", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nhello"],
    ["a head without end", `HTTP/1.1 200 OK\r\nX: ${"a".repeat(100_000)}`],
    ["HTTP/2", "\0\0\x12\x04\0\0\0\0\0"],
  ])("with %s is a bad gateway at once, and the proxy lives on", async (_, answer) => {
    await using world = await serverThat(answer);
    expect(await world.client().send(GET).end()).toMatch(/^HTTP\/1.1 502 Bad Gateway\r\n/);
    await expect.poll(() => world.sockets.size).toBe(0);
    const denied = "GET http://denied.test/ HTTP/1.1\r\nHost: x\r\n\r\n";
    expect(await world.client().send(denied).end()).toMatch(/^HTTP\/1.1 403 /);
  });

  it("with more headers than Node keeps by itself has none of them lost", async () => {
    const many = "a:b\r\n".repeat(1500);
    await using world = await serverThat(
      `HTTP/1.1 200 OK\r\n${many}Content-Length: 2\r\nX-Last: 1\r\n\r\nok`,
    );
    // Where Node itself takes so many for too large, that is an answer too.
    expect(
      await world
        .client()
        .send(GET)
        .until(/x-last|502/i),
    ).toMatch(/X-Last: 1|502 Bad Gateway/);
  });
});

describe("a hostile client", () => {
  const many = "a:b\r\n".repeat(1500);

  it.each([
    [
      "in a request's framing",
      `GET http://allowed.test/ HTTP/1.1\r\n${many}Transfer-Encoding: chunked\r\n\r\n1b\r\nGET /smuggled HTTP/1.1\r\n\r\n\r\n0\r\n\r\n`,
      "1b\r\nGET /smuggled",
    ],
    [
      "in its length",
      `GET http://allowed.test/ HTTP/1.1\r\n${many}Content-Length: 27\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n`,
      "Content-Length: 27\r\n\r\nGET /smuggled",
    ],
    [
      "in a second Host",
      `CONNECT allowed.test:80 HTTP/1.1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: allowed.test\r\n${many}Host: denied.test\r\n\r\n`,
      "never",
    ],
  ])("hides nothing behind a thousand headers %s", async (_, request, framed) => {
    await using world = await serverThat(OK);
    const answer = await world
      .client()
      .send(request)
      .until(/\n\r\n[\s\S]*(?:ok|\})|(?:400|403)[\s\S]*\}/);
    const [got = ""] = world.received;
    // Refused, or handed on with its framing.
    expect([answer.match(/ 40[03] /) !== null || got.includes(framed), got.includes("denied.test")]).toEqual([
      true,
      false,
    ]);
  });

  it("that asks for much at once gets so many answers and no more", async () => {
    await using world = await serverThat("");
    const count = limits.egressMaxConnections;
    const first = world.client().send(GET.repeat(count));
    await expect.poll(() => world.sockets.size, { timeout: 10_000 }).toBe(count);
    expect(await world.client().send(GET).end()).toMatch(/^HTTP\/1.1 503 Busy[\s\S]*"retryable":true/);
    expect(world.proxy.decisions.at(-1)).toMatchObject({ allowed: false, rule: "too many requests at once" });
    expect(world.sockets.size).toBe(count);
    first.socket.resetAndDestroy();
  });

  it("that leaves before its host is reached leaves no connection behind", async () => {
    const waiting: (() => void)[] = [];
    const lookup = () =>
      new Promise<string[]>((resolve) => {
        waiting.push(() => resolve([PUBLIC]));
      });
    await using world = await serverThat("", { lookup });
    for (let count = 1; count <= 5; count += 1) {
      const client = world.client().send(GET);
      await expect.poll(() => waiting.length).toBe(count);
      client.socket.destroy();
      await client.end();
    }
    for (const go of waiting) go();
    await expect.poll(() => world.received.length).toBe(5);
    await expect.poll(() => world.sockets.size).toBe(0);
    expect(world.received.join("")).toBe("");
  });

  it("takes every answer with it that it asked for in one go", async () => {
    await using world = await serverThat("");
    const client = world.client().send(GET.repeat(4));
    await expect.poll(() => world.sockets.size).toBe(4);
    client.socket.destroy();
    await expect.poll(() => world.sockets.size).toBe(0);
  });

  it("opens no tunnel in the midst of an answer", async () => {
    await using world = await serverThat("");
    const client = world.client().send(`${GET}CONNECT git.test:22 HTTP/1.1\r\n\r\nraw`);
    expect(await client.end()).toBe("");
    expect(world.received.join("")).not.toContain("raw");
  });

  it("has no credential shown to it by TRACE", async () => {
    const credentials = [{ host: "allowed.test", header: "Authorization", value: "Bearer real" }];
    await using world = await serverThat(OK, { credentials });
    expect(await world.client().send(GET.replace("GET", "TRACE")).end()).toMatch(/^HTTP\/1.1 400 /);
    expect(world.received).toEqual([]);
  });

  it("cannot keep the proxy busy with a ClientHello in a thousand records", async () => {
    await using world = await serverThat("");
    const hello = await clientHello("allowed.test");
    const records = (size: number) => {
      const parts: Buffer[] = [];
      for (let at = 5; at < hello.length; at += size) {
        const part = hello.subarray(at, at + size);
        parts.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 255]), part);
      }
      return Buffer.concat(parts);
    };
    const open = async () => {
      const client = world.client().send("CONNECT allowed.test:443 HTTP/1.1\r\n\r\n");
      await client.until(/200/);
      return client;
    };
    await (await open()).send(records(1)).end();
    expect(world.proxy.decisions.at(-1)).toMatchObject({
      allowed: false,
      rule: expect.stringMatching(/too many records/),
    });
    // A few, as clients make that split the name on purpose.
    (await open()).send(records(100));
    await expect.poll(() => world.received.join("").length).toBeGreaterThan(hello.length);
  });
});
