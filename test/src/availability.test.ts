import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { AvailabilityCache, type AvailabilityChange } from "../../src/availability.ts";
import { MoorageError } from "../../src/errors.ts";
import { limits } from "../../src/limits.ts";
import type { Availability } from "../../src/registry.ts";
import { ManualClock, settle } from "./manual-clock.ts";

const DOWN: Availability = { available: false, reason: "down" };
const UP: Availability = { available: true };

/** A cache over one key whose world the test moves, with a log of what the world was asked. */
function worldOf(initial: "ok" | "fail" | "hang" = "ok") {
  const clock = new ManualClock();
  const cache = new AvailabilityCache({ clock });
  const world = {
    state: initial,
    delayMs: 0,
    inFlight: 0,
    maxInFlight: 0,
    log: [] as { startedAt: number; at: number; ok: boolean }[],
  };
  cache.define("k", async (abortSignal) => {
    const startedAt = clock.now();
    world.inFlight += 1;
    world.maxInFlight = Math.max(world.maxInFlight, world.inFlight);
    const state = world.state;
    await new Promise<void>((resolve) => {
      if (state !== "hang" && world.delayMs === 0) return resolve();
      if (state !== "hang") clock.after(world.delayMs, resolve);
      abortSignal.addEventListener("abort", () => resolve());
    });
    world.inFlight -= 1;
    const ok = state === "ok" && !abortSignal.aborted;
    world.log.push({ startedAt, at: clock.now(), ok });
    return ok ? UP : DOWN;
  });
  return { clock, cache, world };
}

type Log = readonly { readonly at: number; readonly ok: boolean }[];

/** What the contract says, from nothing but the probes' log. */
function expected(log: Log, now: number): boolean {
  return isCovered(log, now) || (log.at(-1)?.ok ?? false);
}

function isCovered(log: Log, now: number): boolean {
  return log.some(({ at, ok }) => ok && now < at + limits.availabilityGraceMs);
}

describe("availability", () => {
  it("is right at every second of an hour of flapping, whatever the pattern", async () => {
    const second = fc.constantFrom("ok" as const, "fail" as const, "hang" as const);
    const phase = fc.record({ state: second, seconds: fc.integer({ min: 1, max: 200 }) });
    await fc.assert(
      fc.asyncProperty(
        fc.array(phase, { minLength: 30, maxLength: 60 }),
        fc.boolean(),
        async (phases, watched) => {
          const { clock, cache, world } = worldOf(phases[0]?.state);
          if (watched) cache.listen(() => {});
          let elapsed = 0;
          for (const { state, seconds } of phases) {
            world.state = state;
            for (let i = 0; i < seconds && elapsed < 3_600; i += 1) {
              elapsed += 1;
              const asked = cache.check("k").then(({ available }) => {
                expect(available).toBe(expected(world.log, clock.now()));
                return true;
              });
              const isWaiting = !(await Promise.race([asked, settle().then(() => false)]));
              // Only an answer that depends on a probe may be waited for, and never longer than its limit.
              if (isWaiting) {
                expect(isCovered(world.log, clock.now())).toBe(false);
                await clock.advance(limits.probeTimeoutMs);
                expect(await Promise.race([asked, settle().then(() => false)])).toBe(true);
              }
              await clock.advance(1_000);
            }
          }
          expect(world.maxInFlight).toBe(1);
          for (const [index, probe] of world.log.entries()) {
            const before = world.log[index - 1];
            const restMs = before?.ok ? limits.availabilityTtlMs : limits.availabilityRetryMs;
            if (before) expect(probe.startedAt - before.at).toBeGreaterThanOrEqual(restMs);
          }
        },
      ),
      { numRuns: 12, endOnFailure: true },
    );
  });

  it("covers failures by the last success for 60 s, then tells the truth", async () => {
    const { clock, cache, world } = worldOf();
    expect(await cache.check("k")).toEqual(UP);
    world.state = "fail";
    const seen: boolean[] = [];
    for (let second = 0; second < 70; second += 1) {
      seen.push((await cache.check("k")).available);
      await clock.advance(1_000);
    }
    expect(seen.indexOf(false)).toBe(60);
    expect(seen.slice(60).every((available) => !available)).toBe(true);
  });

  it("AV-01 keeps tools through one slow probe", async () => {
    const { clock, cache, world } = worldOf();
    expect(await cache.check("k")).toEqual(UP);
    world.state = "hang";
    await clock.advance(limits.availabilityTtlMs);
    expect(await cache.check("k")).toEqual(UP);
    await clock.advance(limits.probeTimeoutMs);
    expect(await cache.check("k")).toEqual(UP);
    world.state = "ok";
    await clock.advance(5_000);
    expect(await cache.check("k")).toEqual(UP);
  });

  it("AV-02 asks again within 3 s after a failure without an earlier success", async () => {
    const { clock, cache, world } = worldOf("fail");
    expect(await cache.check("k")).toEqual(DOWN);
    world.state = "ok";
    await clock.advance(2_000);
    expect(await cache.check("k")).toEqual(DOWN);
    await clock.advance(1_000);
    expect(await cache.check("k")).toEqual(UP);
    expect(world.log.length).toBe(2);
  });

  it("AV-04 waits for a probe that never answers no longer than its limit", async () => {
    const { clock, cache } = worldOf("hang");
    const asked = cache.check("k");
    await clock.advance(limits.probeTimeoutMs);
    expect(await asked).toEqual({ available: false, reason: "No answer within 3000 ms" });
  });

  it("AV-05 tells one loss and one recovery of an outage of five minutes", async () => {
    const { clock, cache, world } = worldOf();
    const changes: AvailabilityChange[] = [];
    cache.listen((change) => changes.push(change));
    await clock.advance(60_000);
    world.state = "fail";
    await clock.advance(300_000);
    expect(changes).toEqual([{ kind: "lost", key: "k", reason: "down" }]);
    world.state = "ok";
    await clock.advance(3_000);
    expect(changes).toEqual([
      { kind: "lost", key: "k", reason: "down" },
      { kind: "restored", key: "k" },
    ]);
  });

  it("tells a loss at the very end of the grace, without being asked", async () => {
    const { clock, cache, world } = worldOf();
    const lostAt: number[] = [];
    cache.listen(() => lostAt.push(clock.now()));
    await clock.advance(1_000);
    world.state = "fail";
    await clock.advance(200_000);
    expect(lostAt).toEqual([limits.availabilityGraceMs]);
  });

  it("AV-09 tells at most one change while a probe alternates every second", async () => {
    for (const first of ["ok", "fail"] as const) {
      const { clock, cache, world } = worldOf(first);
      const changes: AvailabilityChange[] = [];
      cache.listen((change) => changes.push(change));
      for (let second = 0; second < 60; second += 1) {
        await cache.check("k");
        world.state = world.state === "ok" ? "fail" : "ok";
        await clock.advance(1_000);
      }
      expect(changes.length).toBeLessThanOrEqual(1);
    }
  });

  it("AV-10 does not look at the wall clock", async () => {
    const { clock, cache, world } = worldOf();
    await cache.check("k");
    vi.useFakeTimers({ toFake: ["Date"] });
    try {
      for (const jump of [-3_600_000, 3_600_000]) {
        vi.setSystemTime(Date.now() + jump);
        await clock.advance(10_000);
        expect(await cache.check("k")).toEqual(UP);
      }
      expect(world.log.length).toBe(1);
    } finally {
      vi.useRealTimers();
    }
  });

  it("AV-07 reads all keys of a snapshot at one instant", async () => {
    const clock = new ManualClock();
    const cache = new AvailabilityCache({ clock });
    let flips = 0;
    cache.define("environment", async () => {
      flips += 1;
      return flips % 2 === 0 ? UP : DOWN;
    });
    for (let listing = 0; listing < 100; listing += 1) {
      const verdicts = await cache.snapshot(["environment", "environment", "environment", "environment"]);
      expect(verdicts.size).toBe(1);
      await clock.advance(700);
    }
  });

  it("runs one probe for askers at the same time", async () => {
    const { clock, cache, world } = worldOf();
    world.delayMs = 500;
    const asked = Promise.all(Array.from({ length: 20 }, () => cache.check("k")));
    await clock.advance(500);
    expect(new Set((await asked).map(({ available }) => available))).toEqual(new Set([true]));
    expect(world.log.length).toBe(1);
  });

  it("surfaces a fault of a probe instead of taking it for an answer", async () => {
    const clock = new ManualClock();
    const cache = new AvailabilityCache({ clock });
    cache.define("k", () => {
      throw new TypeError("x is not a function");
    });
    await expect(cache.check("k")).rejects.toMatchObject({
      code: "INTERNAL",
      message: "Cannot tell whether it is available: x is not a function",
      cause: expect.any(TypeError),
    });
  });

  it("takes a Moorage error of a probe for its answer", async () => {
    const cache = new AvailabilityCache({ clock: new ManualClock() });
    cache.define("k", async () => {
      throw new MoorageError("DOCKER_UNREACHABLE", "Cannot reach the engine");
    });
    expect(await cache.check("k")).toEqual({ available: false, reason: "Cannot reach the engine" });
  });

  it("tells a fault to listeners, once per probe, and keeps a state that a success covers", async () => {
    const clock = new ManualClock();
    const cache = new AvailabilityCache({ clock });
    let isBroken = false;
    cache.define("k", async () => {
      if (isBroken) throw new TypeError("broken");
      return UP;
    });
    const kinds: string[] = [];
    cache.listen(({ kind }) => kinds.push(kind));
    await clock.advance(1_000);
    isBroken = true;
    await clock.advance(limits.availabilityTtlMs);
    expect(await cache.check("k")).toEqual(UP);
    expect(new Set(kinds)).toEqual(new Set(["fault"]));
    await clock.advance(limits.availabilityGraceMs);
    await expect(cache.check("k")).rejects.toMatchObject({ code: "INTERNAL" });
  });

  it("probes nothing after the last listener left, and nothing after close()", async () => {
    const { clock, cache, world } = worldOf();
    const leave = cache.listen(() => {});
    await clock.advance(1_000);
    leave();
    await clock.advance(600_000);
    expect(world.log.length).toBe(1);
    cache.listen(() => {});
    cache.close();
    await clock.advance(600_000);
    expect(world.log.length).toBe(1);
    expect(clock.pendingTimers).toBe(0);
  });
});
