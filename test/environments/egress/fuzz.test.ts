import { describe, expect, it } from "vitest";
import { checkHello, checkHost, checkSocks, Dice, FUZZ_POLICY, mutate, randomHost } from "./fuzz.ts";
import { Client, clientHello, createInternet } from "./network.ts";

const seed = Math.floor(Math.random() * 2 ** 32);
const COUNT = 10_000;

describe(`random input (seed ${seed})`, () => {
  it("hosts have one spelling and one verdict, whatever they are", () => {
    const dice = new Dice(seed);
    for (let index = 0; index < COUNT; index += 1) checkHost(randomHost(dice));
  });

  it("ClientHello reads alike whole and in pieces", async () => {
    const dice = new Dice(seed);
    const sample = await clientHello("allowed.test");
    for (let index = 0; index < COUNT / 10; index += 1) checkHello(mutate(dice, sample));
  });

  it("SOCKS5 frames read alike whole and in pieces", () => {
    const dice = new Dice(seed);
    const named = Buffer.from("\x05\x01\0\x03\x0callowed.test\x01\xbb", "latin1");
    const addressed = Buffer.from([5, 1, 0, 4, ...Array<number>(15).fill(0), 1, 0, 80]);
    for (let index = 0; index < COUNT / 2; index += 1)
      checkSocks(mutate(dice, dice.pick([named, addressed])));
  });

  it("the proxy survives it, and dials only what the policy means", async () => {
    await using net = await createInternet({ policy: FUZZ_POLICY });
    const dice = new Dice(seed);
    const clients = Array.from({ length: 300 }, () => {
      const host = randomHost(dice);
      const head = dice.pick([
        `GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
        `CONNECT ${host}:443 HTTP/1.1\r\n\r\n`,
        `CONNECT ${host} HTTP/1.1\r\nHost: allowed.test\r\n\r\n`,
        `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
        `\x05\x01\0\x05\x01\0\x03${String.fromCharCode(host.length)}${host}\0\x50`,
      ]);
      const client = new Client(net.proxyPort).send(mutate(dice, Buffer.from(head, "latin1")));
      client.socket.end();
      return client;
    });
    await Promise.all(clients.map((client) => client.end()));
    const names = new Set(net.lookups);
    expect(
      [...names].filter(
        (name) => !/^(allowed\.test|xn--bcher-kva\.test|(?!evil\.).+\.wild\.test)$/.test(name),
      ),
    ).toEqual([]);
    const odd = net.dialled.filter(
      (target) => !/^(93\.184\.216\.34|10\.[\d.]+|::1):(80|443|8080)$/.test(target),
    );
    expect(odd).toEqual([]);
    expect(
      await new Client(net.proxyPort)
        .send("GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n")
        .until(/hello/),
    ).toContain("200");
  });
});
