/**
 * Processes of a sandbox that is itself an environment of this machine: each side finds what is its own. The slow suite
 * asks the rest.
 */
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { BaseEnvironment } from "../../environments/base.ts";
import { uniqueSeconds } from "../conformance/support.ts";
import { environmentOf, type Served, serveLocal } from "../serve/served.ts";

let served: Served;
let stateDir: string;
let environment: BaseEnvironment;
beforeAll(async () => {
  served = await serveLocal();
  stateDir = await mkdtemp(join(tmpdir(), "moorage-processes-"));
  environment = environmentOf(served, { stateDir });
  await environment.start();
});
afterAll(async () => {
  await environment?.stop();
  await served?.[Symbol.asyncDispose]();
  await rm(stateDir, { recursive: true, force: true });
});

/** Processes of this machine whose arguments hold `word`. */
async function running(word: string): Promise<number> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const lines = await Promise.all(
    pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "gone")),
  );
  return lines.filter((line) => line.includes(word)).length;
}

const DEADLINE = { timeout: 20_000 };

it("a log is followed while it grows, bytes that are no UTF-8 in it", async () => {
  const process = await environment.processes.start(
    "printf '\\377one\\n'; until [ -e go ]; do sleep 0.05; done; echo two; sleep 600",
  );
  expect(await process.wait({ logPattern: /one$/m, timeoutMs: 30_000 })).toMatchObject({ reason: "log" });
  const waiting = process.wait({ logPattern: "two", timeoutMs: 30_000 });
  await environment.exec("touch go");
  expect(await waiting).toMatchObject({ reason: "log", match: "two", info: { status: "running" } });
  expect(await process.kill()).toMatchObject({ info: { status: "killed" }, survivors: [] });
});

it("a child that cleared its variables is told of when it holds the outputs", async () => {
  const seconds = uniqueSeconds();
  const { output, leftRunning } = await environment.exec(`env -i sleep ${seconds} & echo done`);
  expect({ output, commands: leftRunning.map(({ command }) => command) }).toEqual({
    output: "done\n",
    commands: [`sleep ${seconds}`],
  });
  await environment.exec(`kill ${leftRunning[0]?.pid}`);
  await expect.poll(() => running(seconds), DEADLINE).toBe(0);
});

it("a plain line that needs no subshell is told of as any other", DEADLINE, async () => {
  const told = async (command: string, options = {}) => {
    const { exitCode, output, stdout, stderr, leftRunning } = await environment.exec(command, options);
    return { exitCode, said: output + stdout + stderr, left: leftRunning.length };
  };
  expect(await told("nosuchprogram")).toEqual({
    exitCode: 127,
    said: "bash: line 1: nosuchprogram: command not found\n",
    left: 0,
  });
  expect(await told("echo a; echo b >&9", { output: "separate" })).toMatchObject({ exitCode: 1 });
  expect(await told("echo a; echo b >&8")).toMatchObject({ exitCode: 1 });
  // It ends the shell of its own call, which can then tell nothing itself.
  expect(await told("echo a; sh -c 'kill -9 $PPID'")).toEqual({ exitCode: 137, said: "a\n", left: 0 });
  const seconds = uniqueSeconds();
  expect(await told(`setsid -f sleep ${seconds}`)).toMatchObject({ exitCode: 0, left: 1 });
  expect(await told(`pkill -f 'sleep ${seconds}' || true`)).toMatchObject({ exitCode: 0 });
  await expect(environment.exec("pwd", { cwd: "/nowhere" })).rejects.toMatchObject({
    code: "WORKDIR_MISSING",
  });
});

it("an orphan of somebody else's that has nothing of ours open is not told of", DEADLINE, async () => {
  const seconds = uniqueSeconds();
  const fifo = join(stateDir, "go");
  await promisify(execFile)("mkfifo", [fifo]);
  for (const output of ["merged", "separate"] as const) {
    const listening = Promise.withResolvers<void>();
    const call = environment.exec(`echo on; cat ${fifo}`, { output, onOutput: () => listening.resolve() });
    await listening.promise;
    // Adopted while the command runs.
    await promisify(execFile)("sh", ["-c", `setsid sleep ${seconds} </dev/null >/dev/null 2>&1 &`], {
      env: { PATH: process.env.PATH ?? "" },
    });
    await writeFile(fifo, "go\n");
    expect((await call).leftRunning).toEqual([]);
    expect(await running(`sleep\0${seconds}`)).toBe(1);
    await promisify(execFile)("pkill", ["-f", `sleep ${seconds}`]);
  }
});

it("a cut command ends with what left its tree, and a yielded one when it is killed", async () => {
  const seconds = uniqueSeconds();
  const line = `(setsid sh -c 'exec sleep ${seconds}' &) ; sleep ${seconds}`;
  expect(await environment.exec(line, { timeoutMs: 1_000 })).toMatchObject({ timedOut: true, survivors: [] });
  await expect.poll(() => running(seconds), DEADLINE).toBe(0);
  const { processId } = await environment.exec(line, { yieldMs: 500 });
  const yielded = await environment.processes.get(processId ?? "");
  expect(await yielded.kill()).toMatchObject({ info: { status: "killed" }, survivors: [] });
  await expect.poll(() => running(seconds), DEADLINE).toBe(0);
});

it("the end of a sandbox ends all that ran in it, however far it had gone", { tags: ["slow"] }, async () => {
  const seconds = uniqueSeconds();
  const own = environmentOf(served, { stateDir, id: "far-gone", keep: true });
  await own.exec(`(setsid sh -c 'exec sleep ${seconds}' >/dev/null 2>&1 </dev/null &)`);
  await own.processes.start(`sleep ${seconds}`);
  await expect.poll(() => running(`sleep\0${seconds}`), DEADLINE).toBe(2);
  // The owner goes and keeps it: only the server is left to end it.
  await own.stop();
  expect(await running(`sleep\0${seconds}`)).toBeGreaterThan(0);
  const { Sandbox } = await import("@vercel/sandbox");
  await (await Sandbox.get({ ...served.client, name: "moorage-far-gone" })).delete();
  await expect.poll(() => running(seconds), DEADLINE).toBe(0);
});
