import { mkdir, mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { CallOptions } from "../../src/call.ts";
import { createMoorage, type Moorage } from "../../src/moorage.ts";

let folder: string;
let moorage: Moorage;
beforeAll(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), "moorage-terminal-")));
  await mkdir(join(folder, "sub"));
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

let callers = 0;
/** Runs commands one after the other in a session of their own; gives the last result's content. */
async function run(...given: readonly (string | Record<string, unknown>)[]) {
  return runWith({}, ...given);
}

async function runWith(options: CallOptions, ...given: readonly (string | Record<string, unknown>)[]) {
  callers += 1;
  let content: Record<string, unknown> = {};
  for (const args of given) {
    const result = await moorage.call(
      {
        name: "terminal",
        caller: `caller-${callers}`,
        arguments: typeof args === "string" ? { command: args } : args,
      },
      options,
    );
    expect(Buffer.byteLength(result.text)).toBeLessThanOrEqual(100_000);
    content = { ...(result.ok ? result.content : { error: result.error }) };
  }
  const { duration_ms: durationMs, ...rest } = content;
  if (!("error" in content)) expect(durationMs).toBeTypeOf("number");
  return rest;
}

describe("terminal", () => {
  it("tells output, exit code, cwd and what the code means", async () => {
    expect(await run("cd sub; export A=1", "echo $A; echo err >&2; grep -q x /dev/null")).toEqual({
      output: "1\nerr\n",
      exit_code: 1,
      cwd: join(folder, "sub"),
      exit_code_meaning: "No line matched",
      checkpoint: expect.stringMatching(/^cp-/),
    });
    expect(await run("true")).toEqual({ output: "", exit_code: 0, cwd: folder });
    expect(await run("kill -9 $$")).toMatchObject({ exit_code: 137, exit_code_meaning: expect.any(String) });
    expect(await run("no-such-program-at-all")).toMatchObject({
      exit_code: 127,
      exit_code_meaning: "Command not found",
    });
  });

  it("takes workdir for one command only", async () => {
    expect(await run({ command: "pwd", workdir: "sub" })).toMatchObject({
      output: `${join(folder, "sub")}\n`,
    });
    expect(await run({ command: "true", workdir: "sub" }, "pwd")).toMatchObject({ output: `${folder}\n` });
    expect(await run({ command: "pwd", workdir: "/nope" })).toMatchObject({
      error: { code: "WORKDIR_MISSING", message: expect.stringContaining('"/nope"') },
    });
  });

  it("gives stdin byte for byte, and else none", async () => {
    expect(await run({ command: "cat", stdin: "ü\n\ttwo" })).toMatchObject({ output: "ü\n\ttwo" });
    expect(await run("cat; read x; echo got:$x")).toMatchObject({ output: "got:\n" });
  });

  it("ends a command at its timeout and keeps what there was", async () => {
    expect(await run({ command: "echo before; sleep 60", timeout: 0.3 })).toEqual({
      output: "before\n",
      exit_code: null,
      cwd: folder,
      timed_out: true,
    });
  });

  it("refuses a longer foreground timeout, and says what to do", async () => {
    expect(await run({ command: "true", timeout: 601 })).toMatchObject({
      error: { code: "INVALID_ARGUMENTS", suggestion: expect.stringContaining("background") },
    });
    expect(await run({ command: "true", timeout: 600 })).toMatchObject({ exit_code: 0 });
  });

  it("ends a command when the caller aborts, and keeps what there was", async () => {
    const controller = new AbortController();
    const onProgress = () => controller.abort();
    expect(await runWith({ abortSignal: controller.signal, onProgress }, "echo before; sleep 60")).toEqual({
      output: "before\n",
      exit_code: null,
      cwd: folder,
      aborted: true,
    });
  });

  it("says what a command left running", async () => {
    const left = await run("sleep 61.5 & echo $!");
    const pid = Number(left.output);
    expect(left).toEqual({
      output: `${pid}\n`,
      exit_code: 0,
      cwd: folder,
      left_running: [{ pid, command: "sleep 61.5" }],
    });
    process.kill(pid);
  });

  it("goes on in the background after the yield time", async () => {
    const result = await runWith({ yieldMs: 300 }, "echo before; sleep 60");
    expect(result).toMatchObject({
      output: "before\n",
      exit_code: null,
      session_id: expect.any(String),
      note: expect.stringContaining("Still running"),
    });
    await (await moorage.environment().processes.get(String(result.session_id))).kill();
  });

  it("SH-47 shows what a terminal would in the end", async () => {
    const command = `for i in 1 50 100; do printf "\\r%d%%" $i; done; echo; printf '\\e[31mred\\e[0m \\e]0;t\\a ok\\n'`;
    expect(await run(command)).toMatchObject({ output: "100%\nred  ok\n" });
  });

  it("SH-21 takes Windows line endings, and keeps a carriage return that is meant", async () => {
    expect(await run("echo a\r\necho b\r\n")).toMatchObject({ output: "a\nb\n", exit_code: 0 });
    expect(await run("printf 'a\rb' | od -An -c")).toMatchObject({
      output: expect.stringMatching(/a\s+\\r\s+b/),
    });
  });

  it("SH-26 SH-29 refuses NUL in a command, and decodes whatever bytes come", async () => {
    expect(await run("echo a\0b")).toMatchObject({
      error: { code: expect.stringMatching(/REFUSED|INVALID/) },
    });
    expect(await run("printf '\\xff\\xfe\\x00A\\n'")).toMatchObject({
      output: "\ufffd\ufffdA\n",
      exit_code: 0,
    });
  });

  it("SH-32 SH-30 keeps head and tail of a long output, with the true counts and the id of the whole", async () => {
    const result = await run("seq 1 100000; echo FATAL >&2; exit 2");
    const output = String(result.output);
    expect(result).toMatchObject({ exit_code: 2, truncated: true, full_output: expect.any(String) });
    expect(output).toMatch(/^1\n2\n3\n/);
    expect(output).toMatch(/\n100000\nFATAL\n$/);
    expect(output.match(/588[,]?901 bytes/g)).toHaveLength(1);
    expect(Buffer.byteLength(output)).toBeLessThanOrEqual(50_000);
    const whole = await moorage.environment().outputs.read(String(result.full_output), { offset: -6 });
    expect(whole).toMatchObject({ text: "FATAL\n", totalBytes: 588_901 });
  });

  it("shows an output that is kept nowhere else whole, many lines or escapes though it has", async () => {
    expect(await run("seq 1 5000")).toMatchObject({
      output: expect.stringMatching(/\n2500\n[\s\S]*\n5000\n$/),
    });
    const quotes = await run("head -c 39000 /dev/zero | tr '\\0' '\"'");
    expect(quotes).toEqual({ output: '"'.repeat(39_000), exit_code: 0, cwd: folder });
  });

  it.each([
    [{}],
    [{ command: "" }],
    [{ command: "true", backgroud: true }],
    [{ command: ["ls"] }],
    [{ command: "true", timeout: -1 }],
  ])("answers %j with INVALID_ARGUMENTS", async (args) => {
    expect(await run(args)).toMatchObject({ error: { code: "INVALID_ARGUMENTS" } });
  });
});
