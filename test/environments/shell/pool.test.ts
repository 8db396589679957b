import { setTimeout as delay, setImmediate } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import type { WorkerFacts } from "../../../environments/shell/greeting.ts";
import { WorkerPool } from "../../../environments/shell/pool.ts";
import type { CallWorker } from "../../../environments/shell/worker.ts";
import { limits } from "../../../src/limits.ts";

function fakeWorker(id: string, preparedForMs: () => number = () => Number.POSITIVE_INFINITY): CallWorker {
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
    get preparedForMs() {
      return preparedForMs();
    },
    run: () => Promise.reject(new Error("Not asked here")),
    close: async () => {},
  };
}

/** A place that opens shells until it is broken. */
function makePool() {
  const state = { broken: false, opened: 0 };
  const pool = new WorkerPool({
    prefix: () => "p",
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

describe("a pool whose oldest shell is not prepared yet", () => {
  function makeForking(maxOpened = Number.POSITIVE_INFINITY) {
    const preparedForMs = new Map<string, number>();
    let opened = 0;
    const pool = new WorkerPool({
      prefix: () => "p",
      login: false,
      maxIdle: 4,
      open: async () => {
        opened += 1;
        if (opened > maxOpened) throw new Error("There is no room");
        const id = `shell ${opened}`;
        return fakeWorker(id, () => preparedForMs.get(id) ?? 0);
      },
    });
    const next = async (anyShell: boolean): Promise<string> => {
      const worker = await pool.acquire({ anyShell });
      pool.release(worker);
      await setImmediate();
      return worker.id;
    };
    return { preparedForMs, next, opened: () => opened };
  }

  it("opens a second one, for calls that cannot tell one from another", async () => {
    const { preparedForMs, next, opened } = makeForking();
    expect([await next(false), await next(false), opened()]).toEqual(["shell 1", "shell 1", 1]);
    expect([await next(true), opened()]).toEqual(["shell 1", 2]);
    preparedForMs.set("shell 2", 1_000);
    expect([await next(true), await next(false)]).toEqual(["shell 2", "shell 1"]);
    preparedForMs.set("shell 1", 1_000);
    expect(await next(true)).toBe("shell 1");
    preparedForMs.set("shell 1", 0.2).set("shell 2", 0.9);
    expect([await next(true), opened()]).toEqual(["shell 2", 2]);
  });

  it("asks once only where there is no room for another", async () => {
    const { next, opened } = makeForking(1);
    for (let call = 0; call < 3; call += 1) expect(await next(true)).toBe("shell 1");
    expect(opened()).toBe(2);
  });
});
