import { describe, it } from "vitest";
import { checkHello, checkHost, checkProxy, checkSocks, Dice, mutate, randomHost } from "./fuzz.ts";
import { clientHello } from "./network.ts";

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
    await checkProxy(new Dice(seed), 300);
  });
});
