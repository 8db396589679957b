import { describe, it } from "vitest";
import { checkHello, checkHost, checkProxy, checkSocks, Dice, mutate, randomHost } from "./fuzz.ts";
import { clientHello } from "./network.ts";

const seed = Math.floor(Math.random() * 2 ** 32);
const COUNT = 100_000;

describe(`much random input (seed ${seed})`, () => {
  it("hosts have one spelling and one verdict", () => {
    const dice = new Dice(seed);
    for (let index = 0; index < COUNT; index += 1) checkHost(randomHost(dice));
  });

  it("ClientHello and SOCKS5 frames read alike whole and in pieces", async () => {
    const dice = new Dice(seed);
    const sample = await clientHello("allowed.test");
    const named = Buffer.from("\x05\x01\0\x03\x0callowed.test\x01\xbb", "latin1");
    for (let index = 0; index < COUNT; index += 1) {
      checkHello(mutate(dice, sample));
      checkSocks(mutate(dice, named));
    }
  });

  it("requests do not bring the proxy down, or it to a place that the policy does not name", {
    timeout: 600_000,
  }, async () => {
    // Each is a connection of its own, and some are left to time out.
    await checkProxy(new Dice(seed), COUNT / 5);
  });
});
