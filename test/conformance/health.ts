/** Health: cheap, bounded, honest. */
import { expect } from "vitest";
import { limits } from "../../src/limits.ts";
import { type Cases, result, token } from "./support.ts";

export const health = {
  "a started environment is healthy": async ({ environment }) => {
    expect(await environment.health()).toMatchObject({ healthy: true });
  },
  "health() answers within the probe's limit": async ({ environment }) => {
    const before = performance.now();
    await Promise.all(Array.from({ length: 5 }, () => environment.health()));
    expect(performance.now() - before).toBeLessThan(limits.probeTimeoutMs + 1_000);
  },
  "health() answers while commands run, and changes nothing": async ({ environment }) => {
    await using session = await environment.openSession();
    const name = token();
    const running = session.exec(`until [ -e ${name} ]; do sleep 1; done; echo went`, { timeoutMs: 20_000 });
    const listed = (await environment.files.list(environment.workspace)).map((entry) => entry.name);
    expect(await environment.health()).toMatchObject({ healthy: true });
    expect((await environment.files.list(environment.workspace)).map((entry) => entry.name)).toEqual(listed);
    await environment.exec(`: > ${name}`);
    expect(await running).toEqual(result({ output: "went\n" }));
  },
  "health() before a start tells whether one can be had, and starts nothing": async ({ create }) => {
    await using own = await create();
    expect(await own.health()).toMatchObject({ healthy: true });
    expect(own.info().shell).toBe(null);
  },
  "health() of a stopped environment does not throw": async ({ create }) => {
    const own = await create();
    await own.start();
    await own.stop();
    expect(await own.health()).toMatchObject({ healthy: expect.any(Boolean) });
  },
} satisfies Cases;
