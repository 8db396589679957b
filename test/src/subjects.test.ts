import { describe, expect, it } from "vitest";
import { AvailabilityCache, type AvailabilityChange } from "../../src/availability.ts";
import { limits } from "../../src/limits.ts";
import { defineEnvironment, environmentKey } from "../../src/subjects.ts";
import { FailingEnvironment } from "./fake-environment.ts";
import { ManualClock, settle } from "./manual-clock.ts";

const KEY = environmentKey("one");

function watched() {
  const clock = new ManualClock();
  const cache = new AvailabilityCache({ clock });
  const environment = new FailingEnvironment("one");
  const changes: AvailabilityChange[] = [];
  defineEnvironment(cache, "one", environment, clock);
  cache.listen((change) => changes.push(change));
  return { clock, cache, environment, changes };
}

describe("an environment whose start failed", () => {
  it("is unavailable at once, whatever a probe said of its engine before", async () => {
    const { cache, environment, changes } = watched();
    expect(await cache.check(KEY)).toEqual({ available: true });
    await environment.start().catch(() => {});
    await cache.recheck(KEY);
    expect(await cache.check(KEY)).toEqual({
      available: false,
      reason: FailingEnvironment.reason,
      neverWorked: true,
    });
    expect(changes).toEqual([{ kind: "lost", key: KEY, reason: FailingEnvironment.reason }]);
  });

  it("is started again, but seldom, and is back without a call once it can start", async () => {
    const { clock, cache, environment, changes } = watched();
    await environment.start().catch(() => {});
    for (let second = 0; second < 10 * (limits.startRetryMs / 1_000); second += 1) {
      await clock.advance(1_000);
      await settle();
    }
    expect(environment.starts).toBeGreaterThan(5);
    expect(environment.starts).toBeLessThanOrEqual(11);
    expect(await cache.check(KEY)).toMatchObject({ available: false });
    environment.mended = true;
    await clock.advance(limits.startRetryMs + limits.availabilityRetryMs);
    await settle();
    await clock.advance(limits.availabilityRetryMs);
    await settle();
    expect(await cache.check(KEY)).toEqual({ available: true });
    expect(changes.map(({ kind }) => kind)).toEqual(["restored"]);
  });
});
