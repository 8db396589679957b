/** What the proxy does about clients that take their time, in that time. */
import { describe, expect, it } from "vitest";
import { Client, createInternet } from "./network.ts";

const policy = { allow: ["allowed.test"] };
const get = "GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n";

describe("a slow client of the proxy", () => {
  it("gives a head so long and no longer, and as long as it takes to what was asked before", async () => {
    await using net = await createInternet({ policy });
    const slow = new Client(net.proxyPort).send(get);
    await slow.until(/200/);
    slow.send("GET http://allowed.test/ HTTP/1.1\r\nX: ");
    const asked = new Client(net.proxyPort).send(
      "POST http://allowed.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n1",
    );
    await expect.poll(() => net.dialled.length).toBe(2);
    const drip = setInterval(() => slow.send("x"), 500);
    try {
      await slow.end();
    } finally {
      clearInterval(drip);
    }
    expect(slow.text.match(/^HTTP/gm)?.length).toBe(1);
    expect(await asked.send("23").until(/200/)).toMatch(/200/);
  }, 60_000);
});
