import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { spawnStream } from "../../../environments/local/spawn.ts";
import { OutputStore } from "../../../environments/shell/outputs.ts";
import { WorkerPool } from "../../../environments/shell/pool.ts";
import { type RunnerHost, runCommand, type YieldedCommand } from "../../../environments/shell/runner.ts";
import { emptyState } from "../../../environments/shell/state.ts";
import { Worker } from "../../../environments/shell/worker.ts";

const folder = await mkdtemp(join(tmpdir(), "moorage-runner-"));
afterAll(() => rm(folder, { recursive: true, force: true }));

function makePool(shell: "bash" | "sh"): WorkerPool {
  return new WorkerPool({
    prefix: () => "runner",
    login: false,
    maxIdle: 8,
    open: (id) =>
      Worker.open({
        id,
        shell,
        library: "",
        login: false,
        open: (argv, env) =>
          spawnStream({ argv, env: { ...env, PATH: process.env.PATH ?? "/usr/bin:/bin" }, cwd: "/" }),
      }),
  });
}

function makeHost(pool: WorkerPool, adopt: RunnerHost["adopt"]): RunnerHost {
  return {
    pool,
    outputs: new OutputStore(folder),
    acquire: async () => ({ worker: await pool.acquire(), notes: [] }),
    endTree: async () => [],
    leftBehind: async () => [],
    gone: async () => {},
    adopt,
    explainExit: async () => null,
    refusalsSince: () => [],
    takeNotes: () => [],
    keepNotes: () => {},
  };
}

describe("a command", () => {
  it("runs all the same when its shell is killed before it has begun", async () => {
    const pool = makePool("bash");
    const host = makeHost(pool, () => "never");
    const mark = join(folder, "killed");
    const { result } = await runCommand(host, {
      command: "echo on",
      options: {},
      // What a session brings back is no command of its: here it stands for somebody's `kill` at that moment.
      state: { ...emptyState("/"), functions: `[ -e ${mark} ] || { : >${mark}; kill -9 $BASHPID; }` },
      base: "/",
      home: "/",
      dump: false,
      stops: [],
    });
    expect(result).toMatchObject({ output: "on\n", exitCode: 0, notes: [] });
    await pool.close();
  });
});

describe("a yielded command", () => {
  it("keeps its shell from later calls while its processes are being looked for", async () => {
    const pool = makePool("sh");
    const yielding = Promise.withResolvers<YieldedCommand>();
    const host = makeHost(pool, (command) => {
      yielding.resolve(command);
      return "proc_runner";
    });
    const controller = new AbortController();
    const { result } = await runCommand(host, {
      command: `echo begun; until [ -e ${folder}/go ]; do sleep 0.01; done; echo over`,
      options: { yieldSignal: controller.signal, onOutput: () => controller.abort() },
      state: emptyState("/"),
      base: "/",
      home: "/",
      dump: false,
      stops: [],
    });
    expect(result.processId).toBe("proc_runner");
    const yielded = await yielding.promise;
    // Can be read from the moment on when its id is known.
    await expect(host.outputs.read(yielded.spill.id)).resolves.toMatchObject({ offset: 0 });
    let isOver = false;
    void yielded.end.then(() => {
      isOver = true;
    });
    await yielded.withWorker(async (worker) => {
      await writeFile(join(folder, "go"), "");
      // By then the command has ended, and its shell waits.
      for (let call = 0; call < 3; call += 1) {
        const other = await pool.acquire();
        expect(other.id).not.toBe(worker.id);
      }
      expect(isOver).toBe(false);
    });
    expect(await yielded.end).toMatchObject({ kind: "ended", exitCode: 0 });
    expect(await yielded.withWorker(async () => "found")).toBe(null);
    expect((await pool.acquire()).id).toBe(yielded.worker.id);
    await pool.close();
  });
});
