import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { spawnStream } from "../../../environments/local/spawn.ts";
import { OutputStore } from "../../../environments/shell/outputs.ts";
import { WorkerPool } from "../../../environments/shell/pool.ts";
import { ResidentWorker } from "../../../environments/shell/resident.ts";
import { type RunnerHost, runCommand, type YieldedCommand } from "../../../environments/shell/runner.ts";
import { emptyState } from "../../../environments/shell/state.ts";
import { MoorageError } from "../../../src/errors.ts";

const folder = await mkdtemp(join(tmpdir(), "moorage-runner-"));
afterAll(() => rm(folder, { recursive: true, force: true }));

function makePool(shell: "bash" | "sh"): WorkerPool {
  return new WorkerPool({
    prefix: () => "runner",
    login: false,
    maxIdle: 8,
    open: (id) =>
      ResidentWorker.open({
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

describe("a command whose place cannot be looked at afterwards", () => {
  const gone = () => Promise.reject(new MoorageError("ENVIRONMENT_UNAVAILABLE", "Cannot open a shell: gone"));
  const unseen = ["What it left running could not be looked for: Cannot open a shell: gone"];
  const request = {
    options: {},
    state: emptyState("/"),
    base: "/",
    home: "/",
    dump: false,
    stops: [],
  } as const;

  function blindHost(pool: WorkerPool, adopt: RunnerHost["adopt"] = () => "never"): RunnerHost {
    return { ...makeHost(pool, adopt), endTree: gone, leftBehind: gone, explainExit: gone };
  }

  it.each([
    ["left a process", "sh -c 'sleep 1 >/dev/null 2>&1 &'; echo on", 0],
    ["ended its shell", "echo on; kill -9 $$", 137],
  ] as const)("is told as it ended when it %s", async (_title, command, exitCode) => {
    const pool = makePool("bash");
    const { result } = await runCommand(blindHost(pool), { ...request, command });
    expect(result).toMatchObject({ output: "on\n", exitCode, leftRunning: [], notes: unseen });
    await pool.close();
  });

  it("is unknown when its time is up, and its shell is used no more", async () => {
    const pool = makePool("bash");
    const command = "echo on; sleep 5";
    await expect(
      runCommand(blindHost(pool), { ...request, command, options: { timeoutMs: 300 } }),
    ).rejects.toMatchObject({
      code: "EXECUTION_UNKNOWN",
      details: { output: "on\n", cause: "ENVIRONMENT_UNAVAILABLE" },
    });
    const { result } = await runCommand(
      makeHost(pool, () => "never"),
      { ...request, command: "echo next" },
    );
    expect(result.output).toBe("next\n");
    await pool.close();
  });

  it("tells its end when it was yielded", async () => {
    const pool = makePool("bash");
    const yielding = Promise.withResolvers<YieldedCommand>();
    const kept: string[] = [];
    const host: RunnerHost = {
      ...blindHost(pool, (command) => {
        yielding.resolve(command);
        return "proc_blind";
      }),
      keepNotes: (notes) => void kept.push(...notes),
    };
    await runCommand(host, {
      ...request,
      command: "sleep 0.3; kill -9 $$",
      options: { yieldMs: 50 },
    });
    const { end } = await yielding.promise;
    await expect(end).resolves.toMatchObject({ kind: "died", signal: "SIGKILL" });
    expect(kept).toEqual(unseen);
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
