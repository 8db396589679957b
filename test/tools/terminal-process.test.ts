import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { CallOptions } from "../../src/call.ts";
import { createMoorage, type Moorage } from "../../src/moorage.ts";
import { living, uniqueSeconds } from "../conformance/support.ts";

let folder: string;
let moorage: Moorage;
beforeAll(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), "moorage-terminal-")));
  moorage = await createMoorage({
    environments: "local",
    workspace: folder,
    stateDir: join(folder, "state"),
  });
});
afterAll(async () => {
  await moorage.stop();
  await rm(folder, { recursive: true });
});

async function run(args: Record<string, unknown>, options: CallOptions = {}) {
  const result = await moorage.call({ name: "terminal", arguments: args }, options);
  expect(result).toMatchObject({ ok: true });
  return result.ok ? result.content : {};
}

const processOf = (content: Readonly<Record<string, unknown>>) =>
  moorage.environment().processes.get(String(content.session_id));

describe("terminal in the background", () => {
  it("starts at once with the session's cwd and variables, and gives an id", async () => {
    await run({ command: "mkdir -p sub && cd sub && export COLOUR=green" });
    const content = await run({ command: "echo $COLOUR in $PWD; sleep 60", background: true });
    expect(content).toMatchObject({
      output: "",
      exit_code: null,
      cwd: join(folder, "sub"),
      session_id: expect.any(String),
      note: expect.stringContaining("process tool"),
    });
    const process = await processOf(content);
    await process.wait({ logPattern: "green", timeoutMs: 10_000 });
    expect((await process.log()).text).toBe(`green in ${join(folder, "sub")}\n`);
    await process.kill();
    await run({ command: "cd .." });
  });

  it("takes stdin with its end, a relative workdir, and any timeout", async () => {
    const content = await run({
      command: "cat; pwd",
      background: true,
      stdin: "in\n",
      workdir: "sub",
      timeout: 100_000,
    });
    const process = await processOf(content);
    expect(await process.wait({ timeoutMs: 10_000 })).toMatchObject({
      reason: "exit",
      info: { exitCode: 0 },
    });
    expect((await process.log()).text).toBe(`in\n${join(folder, "sub")}\n`);
  });
});

describe("process kill", () => {
  it("that is cancelled half-way leaves nothing alive that is not listed (SH-44)", async () => {
    const environment = moorage.environment();
    const seconds = uniqueSeconds();
    // A supervisor that outlives the request to end, as long as it may.
    const supervisor = `trap 'echo told' TERM; sleep ${seconds} & echo up; while :; do wait; done`;
    const content = await run({ command: supervisor, background: true });
    const process = await processOf(content);
    await process.wait({ logPattern: "up", timeoutMs: 10_000 });
    const controller = new AbortController();
    const kill = { name: "process", arguments: { action: "kill", session_id: process.id } };
    const killing = moorage.call(kill, { abortSignal: controller.signal });
    await process.wait({ logPattern: "told", timeoutMs: 10_000 });
    controller.abort();
    await killing;
    const listed = async () => {
      const result = await moorage.call({ name: "process", arguments: { action: "list" } });
      expect(result).toMatchObject({
        ok: true,
        content: { processes: expect.arrayContaining([expect.objectContaining({ session_id: process.id })]) },
      });
      return (await process.info()).status;
    };
    // It may say that the process was ended only once all of it is dead.
    if ((await listed()) !== "running") expect(await living(environment, seconds)).toBe(0);
    expect(await moorage.call(kill)).toMatchObject({
      ok: true,
      content: { status: "killed", survivors: [] },
    });
    expect(await living(environment, seconds)).toBe(0);
    expect(await listed()).toBe("killed");
  });
});

describe("terminal's stdin for a process that does not take it", () => {
  it.each([false, true])("gives the id of one that ended without reading, pty %s", async (pty) => {
    // Enough for a pipe to fill, so that the write cannot succeed.
    const content = await run({ command: "echo x", background: true, stdin: "hi\n".repeat(100_000), pty });
    const process = await processOf(content);
    expect(await process.wait({ timeoutMs: 10_000 })).toMatchObject({
      reason: "exit",
      info: { exitCode: 0 },
    });
    expect((await process.log()).text).toContain("x");
  });

  it("gives the id of one that stalls, and says so", { tags: ["slow"] }, async () => {
    const content = await run({ command: "sleep 300", background: true, stdin: "x".repeat(1_000_000) });
    expect(content).toMatchObject({
      session_id: expect.any(String),
      note: expect.stringMatching(/Not all of stdin was taken.*of 1000000 bytes/),
    });
    const process = await processOf(content);
    expect(await process.info()).toMatchObject({ status: "running", stdinOpen: true });
    await process.kill();
  });
});

describe("terminal with a pty", () => {
  it("runs on a terminal and gives output and exit code", async () => {
    expect(await run({ command: "test -t 1 && echo a terminal; exit 4", pty: true })).toMatchObject({
      output: "a terminal\n",
      exit_code: 4,
      cwd: folder,
    });
  });

  it("answers a program that asks", async () => {
    const content = await run({ command: 'read -r answer; echo "got <$answer>"', pty: true, stdin: "yes\n" });
    expect(content).toMatchObject({ output: expect.stringContaining("got <yes>\n"), exit_code: 0 });
  });

  it("SH-06 waits for no job, which lives on and ends with the process that is listed", async () => {
    const environment = moorage.environment();
    const seconds = uniqueSeconds();
    const job = `sleep ${seconds}`;
    const content = await run({ command: `${job} >/dev/null 2>&1 &`, pty: true, timeout: 60 });
    expect(content).toMatchObject({ output: "", exit_code: 0 });
    expect(await living(environment, seconds)).toBe(1);
    const listed = (await environment.processes.list()).find(({ command }) => command.includes(job));
    expect(listed).toMatchObject({ status: "exited", exitCode: 0, pty: true });
    await (await environment.processes.get(listed?.id ?? "")).kill();
    expect(await living(environment, seconds)).toBe(0);
  });

  it("SH-34 ends what waits for a key at the timeout, and the next output is its own", async () => {
    const content = await run({ command: "echo before; sleep 60", pty: true, timeout: 1 });
    expect(content).toMatchObject({ output: "before\n", exit_code: null, timed_out: true });
    expect(content).not.toHaveProperty("session_id");
    expect(await run({ command: "echo FRESH" })).toMatchObject({ output: "FRESH\n" });
  });

  it("ends with the caller's abort", async () => {
    const controller = new AbortController();
    const pending = run({ command: "sleep 60", pty: true }, { abortSignal: controller.signal });
    const deadline = performance.now() + 10_000;
    while (
      !(await moorage.environment().processes.list()).some(({ pty, status }) => pty && status === "running")
    ) {
      expect(performance.now()).toBeLessThan(deadline);
    }
    controller.abort();
    expect(await pending).toMatchObject({ exit_code: null, aborted: true });
  });

  it("goes on after the yield time", async () => {
    const content = await run({ command: "echo before; sleep 60", pty: true }, { yieldMs: 500 });
    expect(content).toMatchObject({ output: "before\n", exit_code: null, session_id: expect.any(String) });
    expect(content).not.toHaveProperty("timed_out");
    await (await processOf(content)).kill();
  });

  it("shows head and tail of a long output, and names the whole", async () => {
    const content = await run({ command: "seq 1 50000", pty: true });
    expect(content).toMatchObject({ exit_code: 0, truncated: true, full_output: expect.any(String) });
    expect(content.output).toMatch(/^1\n2\n[\s\S]*\n50000\n$/);
    const process = await moorage.environment().processes.get(String(content.full_output));
    expect((await process.log({ offset: -7 })).text).toBe("50000\r\n");
  });
});
