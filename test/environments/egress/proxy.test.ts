import { createServer as createHttpsServer } from "node:https";
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { createEgressProxy } from "../../../environments/egress/proxy.ts";
import { Client, certificate, clientHello, createInternet, PUBLIC, portOf } from "./network.ts";

const policy = { allow: ["allowed.test", "*.wild.test", "git.test:22", "allowed.test:8080"] };
const get = (url: string, more = "") => `GET ${url} HTTP/1.1\r\nHost: x\r\n${more}\r\n`;
const bodyOf = (text: string) => JSON.parse(text.slice(text.indexOf("\r\n\r\n") + 4));

describe("plain HTTP through the proxy", () => {
  it("reaches an allowed host at the address that was judged", async () => {
    await using net = await createInternet({ policy });
    const answer = await new Client(net.proxyPort)
      .send(
        get(
          "http://Allowed.TEST./a?b=1",
          "Proxy-Connection: keep-alive\r\nX-A: 1\r\nConnection: x-hop\r\nX-Hop: 1\r\n",
        ),
      )
      .until(/hello from allowed.test/);
    expect(answer).toMatch(/^HTTP\/1.1 200 OK/);
    const [{ headers, ...request } = { headers: {} }] = net.requests;
    expect(request).toEqual({ method: "GET", url: "/a?b=1", body: "" });
    expect(headers).toEqual({ host: "allowed.test", connection: "close", "x-a": "1" });
    expect([net.lookups, net.dialled]).toEqual([["allowed.test"], [`${PUBLIC}:80`]]);
    expect(net.proxy.counts).toEqual({ allowed: 1, denied: 0 });
  });

  it("EG-04: refuses a denied host and contacts nobody", async () => {
    await using net = await createInternet({ policy });
    const answer = await new Client(net.proxyPort).send(get("http://denied.test/?q=x")).end();
    expect(answer).toMatch(/^HTTP\/1.1 403 Blocked by egress policy\r\n/);
    expect(bodyOf(answer)).toEqual({
      error: {
        code: "EGRESS_DENIED",
        message:
          'Blocked by policy: "denied.test:80" (not in the allow-list). Do not retry and do not look for another way; the operator could allow it with the egress rule "denied.test"',
        rule: "not in the allow-list",
        allow_with: "denied.test",
        retryable: false,
      },
    });
    expect([net.lookups, net.dialled, net.requests]).toEqual([[], [], []]);
    const [{ at, ...decision } = { at: "" }] = net.proxy.decisions;
    expect(Date.parse(at)).toBeGreaterThan(0);
    expect(decision).toEqual({
      way: "http",
      host: "denied.test",
      port: 80,
      address: null,
      allowed: false,
      rule: "not in the allow-list",
      allowWith: "denied.test",
    });
  });

  it("EG-06: judges each request of a connection by its own target", async () => {
    await using net = await createInternet({ policy });
    const client = new Client(net.proxyPort);
    await client.send(get("http://allowed.test/1")).until(/hello/);
    await client.send(get("http://a.wild.test/2")).until(/hello from a.wild.test/);
    expect(await client.send(get("http://denied.test/3")).end()).toMatch(/403 Blocked/);
    expect(net.requests.map(({ url }) => url)).toEqual(["/1", "/2"]);
  });

  it("judges pipelined requests one by one", async () => {
    await using net = await createInternet({ policy });
    const client = new Client(net.proxyPort).send(get("http://allowed.test/1") + get("http://denied.test/2"));
    expect(await client.end()).toMatch(/200 OK[\s\S]*hello[\s\S]*403 Blocked/);
    expect(net.requests.map(({ url }) => url)).toEqual(["/1"]);
  });

  it("EG-16: judges where a redirect leads anew", async () => {
    await using net = await createInternet({ policy });
    for (const next of ["http://denied.test/", "http://169.254.169.254/latest"]) {
      const client = new Client(net.proxyPort);
      expect(await client.send(get(`http://allowed.test/to?${next}`)).until(/Location: .*\r\n/)).toContain(
        next,
      );
      expect(await client.send(get(next)).end()).toMatch(/403 Blocked/);
    }
    expect(net.requests.length).toBe(2);
  });

  it("writes Host from the target, whatever the client says", async () => {
    await using net = await createInternet({ policy });
    await new Client(net.proxyPort)
      .send("GET http://allowed.test:80/ HTTP/1.1\r\nHost: denied.test\r\n\r\n")
      .until(/hello/);
    expect(net.requests[0]?.headers.host).toBe("allowed.test");
  });

  it("passes bodies with a length or in chunks", async () => {
    await using net = await createInternet({ policy });
    const client = new Client(net.proxyPort);
    await client
      .send("POST http://allowed.test/a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
      .until(/hello/);
    client.send(
      "POST http://allowed.test/b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nde",
    );
    await client.send("f\r\n0\r\n\r\n").until(/hello[\s\S]*hello/);
    expect(net.requests.map(({ body }) => body)).toEqual(["abc", "def"]);
  });

  it.each([
    ["both framings", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["two lengths", "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"],
    ["a signed length", "Content-Length: +4\r\n\r\nabcd"],
    ["a list of lengths", "Content-Length: 4, 4\r\n\r\nabcd"],
    ["an encoding before chunked", "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"],
    ["chunked that is not last", "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"],
    ["chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["a vertical tab before chunked", "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"],
    ["a space before the colon", "Content-Length : 4\r\n\r\nabcd"],
    ["a folded header", "X: a\r\n b\r\n\r\n"],
    ["a bare CR", "X: a\rY: b\r\n\r\n"],
    ["a NUL", "X: a\0b\r\n\r\n"],
    ["two Hosts", "Host: denied.test\r\n\r\n"],
    ["an odd chunk size", "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n"],
  ])("refuses a request with %s", async (_, rest) => {
    await using net = await createInternet({ policy });
    const head = "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n";
    const answer = await new Client(net.proxyPort).send(head + rest).end();
    expect(answer).not.toContain("hello from");
    expect(net.requests.filter(({ body }) => body !== "")).toEqual([]);
  });

  it.each([
    "/",
    "*",
    "allowed.test",
    "https://allowed.test/",
    "ftp://allowed.test/",
    "http://user@allowed.test/",
    "http://allowed.test@denied.test/",
    "http://allowed.test:80#@denied.test/",
    "http://allowed.test\\@denied.test/",
    "http://allowed.test%00.denied.test/",
    "http:///",
    "http:/allowed.test/",
    "http://denied.test/http://allowed.test/",
    "http://2852039166/",
    "http://0xA9FEA9FE/",
    "http://0251.0376.0251.0376/",
    "http://169.254.43518/",
    "http://0/",
    "http://127.1/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[::]/",
    "http://[fe80::1%25eth0]/",
    "http://metadata.google.internal/",
    "http://allowed.test:6379/",
  ])("EG-11, EG-12, EG-15: refuses the target %s, also with *", async (target) => {
    await using net = await createInternet({ policy: { allow: ["*", "allowed.test"] } });
    const client = new Client(net.proxyPort).send(get(target));
    if (target === "http://denied.test/http://allowed.test/") {
      expect(await client.until(/hello from denied.test/)).toContain("200 OK");
      return;
    }
    expect(await client.end()).toMatch(/^HTTP\/1.1 (400|403) /);
    expect([net.lookups, net.dialled]).toEqual([[], []]);
  });

  it("EG-13: refuses a name that leads to a forbidden address, and asks once a request", async () => {
    const addresses = {
      "allowed.test": [[PUBLIC], ["127.0.0.1"], ["169.254.169.254"], ["::ffff:10.0.0.1"], []],
    };
    await using net = await createInternet({ policy }, addresses);
    const client = new Client(net.proxyPort);
    await client.send(get("http://allowed.test/")).until(/hello/);
    client.send(get("http://allowed.test/"));
    expect(await client.end()).toMatch(/loopback address/);
    for (const expected of [/metadata address/, /IPv4-mapped of private address/, /502 Bad Gateway/])
      expect(await new Client(net.proxyPort).send(get("http://allowed.test/")).end()).toMatch(expected);
    expect([net.lookups.length, net.dialled]).toEqual([5, [`${PUBLIC}:80`]]);
  });

  it("says that a name's address needs a rule of its own beside the name's, and passes with both", async () => {
    const addresses = { "allowed.test": [["203.0.113.7"]] };
    await using net = await createInternet({ policy: { allow: ["allowed.test"] } }, addresses);
    const ask = () => new Client(net.proxyPort).send(get("http://allowed.test/")).end();
    expect(bodyOf(await ask())).toMatchObject({
      error: {
        message:
          'Blocked by policy: "allowed.test:80" (the name resolved to 203.0.113.7, documentation address). Do not retry and do not look for another way; the operator could allow it with the egress rule "203.0.113.7" beside the one that allows the name: both are needed',
        rule: "documentation address",
        allow_with: "203.0.113.7",
      },
    });
    net.proxy.setPolicy({ allow: ["203.0.113.7"] });
    expect(bodyOf(await ask())).toMatchObject({ error: { allow_with: "allowed.test" } });
    net.proxy.setPolicy({ allow: ["allowed.test", "203.0.113.7"] });
    await ask();
    expect(net.dialled).toEqual(["203.0.113.7:80"]);
  });

  it("puts a credential into requests to its host only", async () => {
    const credentials = [{ host: "api.wild.test", header: "Authorization", value: "Bearer real" }];
    await using net = await createInternet({ policy, credentials });
    const client = new Client(net.proxyPort);
    await client.send(get("http://api.wild.test/", "Authorization: placeholder\r\n")).until(/hello/);
    await client
      .send(get("http://allowed.test/", "authorization: placeholder\r\n"))
      .until(/hello from allowed.test/);
    expect(net.requests.map(({ headers }) => headers.authorization)).toEqual(["Bearer real", "placeholder"]);
    expect(JSON.stringify(net.proxy.decisions)).not.toContain('real"');
  });

  it("sends a credential over TLS when asked to, to the host that its certificate names", async () => {
    const { key, cert } = await certificate("api.wild.test");
    const seen: (string | undefined)[] = [];
    const server = createHttpsServer({ key, cert }, ({ headers, url }, response) => {
      seen.push(headers.authorization);
      response.end(`secure ${headers.host}${url}`);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const dialled: string[] = [];
    await using proxy = await createEgressProxy({
      policy,
      credentials: ["api.wild.test", "other.wild.test"].map((host) => ({
        host,
        header: "Authorization",
        value: "Bearer real",
        tls: true,
      })),
      authorities: [cert],
      listen: { port: 0 },
      lookup: async () => [PUBLIC],
      connect: (address, port) => {
        dialled.push(`${address}:${port}`);
        return connect({ host: "127.0.0.1", port: portOf(server), allowHalfOpen: true });
      },
    });
    try {
      const ask = (host: string) => new Client(proxy.port ?? 0).send(get(`http://${host}/path`));
      expect(await ask("api.wild.test").until(/secure api.wild.test\/path/)).toMatch(/^HTTP\/1.1 200 /);
      expect(await ask("other.wild.test").end()).toMatch(/502 Bad Gateway[\s\S]*cannot be trusted/);
      expect([seen, dialled]).toEqual([["Bearer real"], [`${PUBLIC}:443`, `${PUBLIC}:443`]]);
      // Never in the clear, also where a program names the port that it would be sent to.
      expect(await ask("api.wild.test:443").until(/secure api.wild.test:443\/path/)).toMatch(/ 200 /);
      expect(seen).toEqual(["Bearer real", "Bearer real"]);
    } finally {
      server.close();
    }
  });
});

describe("CONNECT through the proxy", () => {
  const connectTo = (target: string) => `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`;

  it("EG-07: passes TLS for the tunnel's own name", async () => {
    await using net = await createInternet({ policy });
    const hello = await clientHello("allowed.test");
    const client = new Client(net.proxyPort).send(connectTo("allowed.test:443"));
    await client.until(/200 Connection established\r\n\r\n/);
    // In two pieces, as a slow network would bring it.
    client.send(hello.subarray(0, 100)).send(hello.subarray(100));
    await client.until(/banner/);
    expect(Buffer.concat(net.firstBytes)).toEqual(hello);
    expect(net.proxy.decisions.map(({ at: _, ...decision }) => decision)).toEqual([
      {
        way: "connect",
        host: "allowed.test",
        port: 443,
        address: PUBLIC,
        allowed: true,
        rule: "allowed.test",
        allowWith: null,
      },
    ]);
  });

  it.each([
    ["another name", () => clientHello("denied.test"), /server name is "denied.test"/],
    ["no name", () => clientHello(undefined), /no server name/],
    ["no TLS", async () => Buffer.from("GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n"), /does not carry TLS/],
    [
      "another CONNECT",
      async () => Buffer.from("CONNECT denied.test:443 HTTP/1.1\r\n\r\n"),
      /does not carry TLS/,
    ],
    ["an encrypted name", async () => withExtension(await clientHello("allowed.test"), 0xfe0d), /encrypted/],
    ["garbage in a record", async () => Buffer.from([22, 3, 1, 0, 5, 1, 0, 0, 1, 0xff]), /cut short/],
  ])("EG-07: closes a tunnel that begins with %s", async (_, first, rule) => {
    await using net = await createInternet({ policy });
    const client = new Client(net.proxyPort).send(connectTo("allowed.test:443"));
    await client.until(/200 Connection/);
    expect(await client.send(await first()).end()).toMatch(/established\r\n\r\n$/);
    expect(net.firstBytes).toEqual([]);
    expect(net.proxy.decisions.map(({ allowed, rule: why }) => [allowed, why])).toEqual([
      [false, expect.stringMatching(rule)],
    ]);
  });

  it.each([
    "denied.test:443",
    "allowed.test:22",
    "allowed.test:25",
    "allowed.test:2375",
    "10.0.0.1:443",
    "[::1]:443",
  ])("EG-05, EG-15: refuses %s at once", async (target) => {
    await using net = await createInternet({ policy });
    const answer = await new Client(net.proxyPort).send(connectTo(target)).end();
    expect(answer).toMatch(/^HTTP\/1.1 403 Blocked by egress policy\r\n/);
    expect(bodyOf(answer).error.code).toBe("EGRESS_DENIED");
    expect([net.lookups, net.dialled]).toEqual([[], []]);
  });

  it.each([
    "allowed.test",
    "allowed.test:",
    ":443",
    "user@allowed.test:443",
    "allowed.test:443/",
    "http://allowed.test:443",
    "allowed.test%00:443",
  ])("refuses the malformed target %s", async (target) => {
    await using net = await createInternet({ policy });
    expect(await new Client(net.proxyPort).send(connectTo(target)).end()).toMatch(/^HTTP\/1.1 40[03] /);
    expect(net.lookups).toEqual([]);
  });

  it("lets the server speak first on a port that is listed", async () => {
    await using net = await createInternet({ policy });
    const client = new Client(net.proxyPort).send(connectTo("git.test:22"));
    await client.until(/banner/);
    await client.send("SSH-2.0-x\r\n").until(/SSH-2.0-x/);
    expect(net.dialled).toEqual([`${PUBLIC}:22`]);
  });

  it("holds TLS on a listed port to the tunnel's name too", async () => {
    await using net = await createInternet({ policy });
    const client = new Client(net.proxyPort).send(connectTo("allowed.test:8080"));
    await client.until(/banner/);
    await client.send(await clientHello("denied.test")).end();
    expect(net.firstBytes).toEqual([]);
  });

  it("reads a tunnel to port 80 as HTTP and judges each request in it", async () => {
    await using net = await createInternet({ policy });
    const inside = (host: string) => `GET /in HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
    const client = new Client(net.proxyPort).send(connectTo("allowed.test:80"));
    await client.until(/established/);
    await client.send(inside("allowed.test")).until(/hello from allowed.test/);
    expect(await client.send(inside("denied.test")).end()).toMatch(/400 Malformed/);
    const other = new Client(net.proxyPort).send(connectTo("allowed.test:80") + connectTo("denied.test:443"));
    expect(await other.end()).toMatch(/403/);
    expect(net.requests.length).toBe(1);
  });

  it("passes a half-closed tunnel's last bytes", async () => {
    await using net = await createInternet({ policy });
    const client = new Client(net.proxyPort).send(connectTo("git.test:22"));
    await client.until(/banner/);
    client.send("last words");
    client.socket.end();
    expect(await client.end()).toMatch(/last words$/);
  });
});

describe("SOCKS5 through the proxy", () => {
  const greeting = Buffer.from([5, 1, 0]);
  const named = (host: string, port: number) =>
    Buffer.concat([
      Buffer.from([5, 1, 0, 3, host.length]),
      Buffer.from(host, "latin1"),
      Buffer.from([port >> 8, port & 255]),
    ]);

  it("reaches an allowed name, byte by byte", async () => {
    await using net = await createInternet({ policy });
    const client = new Client(net.proxyPort);
    for (const byte of Buffer.concat([greeting, named("git.test", 22)])) client.send(Buffer.from([byte]));
    expect(await client.until(/banner/)).toBe("\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0banner\n");
    expect([net.lookups, net.dialled]).toEqual([["git.test"], [`${PUBLIC}:22`]]);
  });

  it("holds TLS to the name and HTTP to the host", async () => {
    await using net = await createInternet({ policy });
    const tls = new Client(net.proxyPort).send(greeting).send(named("allowed.test", 443));
    await tls.until(/^\x05\x00\x05\x00/);
    await tls.send(await clientHello("denied.test")).end();
    const http = new Client(net.proxyPort).send(greeting).send(named("allowed.test", 80));
    http.send("GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n");
    expect(await http.end()).toMatch(/400 Malformed/);
    expect([net.firstBytes, net.requests]).toEqual([[], []]);
  });

  it.each([
    ["denied.test", 2],
    ["attacker.test\0.allowed.test", 2],
    ["allowed.test\0", 2],
    ["allowed.test\r\n", 2],
    ["ALLOWED.test%00", 2],
    ["127.0.0.1", 2],
    ["127.1", 2],
    ["2130706433", 2],
    ["b\xfccher.test", 2],
    ["", 2],
  ])("refuses %j", async (host, reply) => {
    await using net = await createInternet({ policy });
    const client = new Client(net.proxyPort).send(greeting).send(named(host, 443));
    expect((await client.end()).charCodeAt(3)).toBe(reply);
    expect([net.lookups, net.dialled, net.proxy.counts]).toEqual([[], [], { allowed: 0, denied: 1 }]);
  });

  it.each([
    ["an address", [5, 1, 0, 1, 169, 254, 169, 254, 0, 80], 2],
    ["an IPv6 address", [5, 1, 0, 4, ...Array<number>(15).fill(0), 1, 0, 80], 2],
    ["BIND", [5, 2, 0, 1, 1, 1, 1, 1, 0, 80], 7],
    ["UDP", [5, 3, 0, 1, 1, 1, 1, 1, 0, 80], 7],
    ["an unknown kind of address", [5, 1, 0, 9, 1, 1, 1, 1, 0, 80], 8],
    ["SOCKS4 inside", [4, 1, 0, 80, 1, 1, 1, 1, 0, 0], 1],
  ])("refuses %s", async (_, frame, reply) => {
    await using net = await createInternet({ policy });
    const client = new Client(net.proxyPort).send(greeting).send(Buffer.from(frame));
    expect((await client.end()).charCodeAt(3)).toBe(reply);
    expect([net.lookups, net.dialled]).toEqual([[], []]);
  });

  it("refuses clients that insist on a password", async () => {
    await using net = await createInternet({ policy });
    expect(await new Client(net.proxyPort).send(Buffer.from([5, 1, 2])).end()).toBe("\x05\xff");
  });
});

describe("the life of the proxy", () => {
  it("closes what a changed policy denies, and keeps the old policy when the new one is malformed", async () => {
    await using net = await createInternet({ policy });
    const open = async (host: string) => {
      const client = new Client(net.proxyPort).send(`CONNECT ${host}:443 HTTP/1.1\r\n\r\n`);
      await client.until(/established/);
      await client.send(await clientHello(host)).until(/banner/);
      return client;
    };
    const kept = await open("a.wild.test");
    const cut = await open("allowed.test");
    expect(() => net.proxy.setPolicy({ allow: ["a b"] })).toThrow(/egress rule/);
    net.proxy.setPolicy({ allow: ["*.wild.test"] });
    await cut.end();
    await kept.send("still there").until(/still there/);
    expect(await new Client(net.proxyPort).send(get("http://allowed.test/")).end()).toMatch(/403/);
  });

  it("EG-20: takes every connection with it when it closes", async () => {
    await using net = await createInternet({ policy });
    const client = new Client(net.proxyPort).send("CONNECT git.test:22 HTTP/1.1\r\n\r\n");
    await client.until(/banner/);
    await net.proxy.close();
    await client.end();
    expect(await new Client(net.proxyPort).send(get("http://allowed.test/")).end()).toBe("");
  });
});

/** The hello with an extension of one byte appended, all lengths made right. */
function withExtension(hello: Buffer, type: number): Buffer {
  const extra = Buffer.from([type >> 8, type & 255, 0, 1, 0]);
  const grown = Buffer.concat([hello, extra]);
  grown.writeUInt16BE(hello.readUInt16BE(3) + extra.length, 3);
  grown.writeUIntBE(hello.readUIntBE(6, 3) + extra.length, 6, 3);
  let at = 5 + 4 + 34;
  at += 1 + hello.readUInt8(at);
  at += 2 + hello.readUInt16BE(at);
  at += 1 + hello.readUInt8(at);
  grown.writeUInt16BE(hello.readUInt16BE(at) + extra.length, at);
  return grown;
}
