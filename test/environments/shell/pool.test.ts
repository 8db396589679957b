import { setTimeout as delay } from "node:timers/promises";
import { expect, it } from "vitest";
import { WorkerPool } from "../../../environments/shell/pool.ts";
import type { CallWorker, WorkerFacts } from "../../../environments/shell/worker.ts";
import { limits } from "../../../src/limits.ts";

function fakeWorker(id: string): CallWorker {
  const facts: WorkerFacts = {
    shell: "sh",
    pid: 1,
    home: "/",
    cwd: "/",
    uid: 0,
    variables: new Map(),
    hasFunctions: false,
    login: null,
    reaper: null,
  };
  return {
    id,
    facts,
    loginProblem: null,
    shellPid: null,
    alive: true,
    ended: new Promise(() => {}),
    marker: "",
    run: () => Promise.reject(new Error("Not asked here")),
    close: async () => {},
  };
}

/** A place that opens shells until it is broken. */
function makePool() {
  const state = { broken: false, opened: 0 };
  const pool = new WorkerPool({
    prefix: "p",
    login: false,
    maxIdle: 4,
    open: async (id) => {
      state.opened += 1;
      if (state.opened > 1_000) throw new Error("It is asked for without end");
      await delay(state.opened % 3);
      if (state.broken) throw new Error("It is gone");
      return fakeWorker(id);
    },
  });
  return { pool, state };
}

it("a pool whose place is gone tells all who wait, and asks for no shell that nobody wants", async () => {
  const { pool, state } = makePool();
  const held = await Promise.all(Array.from({ length: 8 }, () => pool.acquire()));
  const waiting = Array.from({ length: limits.maxShells * 2 }, () =>
    pool.acquire().catch((error: Error) => error.message),
  );
  state.broken = true;
  await Promise.all(held.map((worker) => pool.discard(worker)));
  expect(new Set(await Promise.all(waiting))).toEqual(new Set(["It is gone"]));
  expect(state.opened).toBeLessThanOrEqual(held.length + waiting.length);
});

it("a pool gives those who wait beyond its room the workers of others, in order", async () => {
  const { pool, state } = makePool();
  const served: number[] = [];
  const count = limits.maxShells * 2;
  await Promise.all(
    Array.from({ length: count }, async (_, at) => {
      const worker = await pool.acquire();
      served.push(at);
      await delay(1);
      if (at % 5 === 0) await pool.discard(worker);
      else pool.release(worker);
    }),
  );
  expect(served).toEqual(Array.from({ length: count }, (_, at) => at));
  expect(state.opened).toBeLessThanOrEqual(limits.maxShells + count / 5);
});
