import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { limits } from "../../src/limits.ts";
import { readLogLines } from "../../tools/log-lines.ts";
import { tool } from "../../tools/process.ts";
import { createToolFixture, type ToolFixture } from "./tool-fixture.ts";

let fixture: ToolFixture;
beforeAll(async () => {
  fixture = await createToolFixture();
});
afterAll(() => fixture[Symbol.asyncDispose]());

const start = async (command: string, pty = false): Promise<string> =>
  (await fixture.environment.processes.start(command, { pty })).id;

describe("process", () => {
  it("lists, polls, submits to, waits for and shows the log of a process", async () => {
    const id = await start("echo up; read line; echo got $line; exit 4");
    const listed = await fixture.call(tool, { action: "list" });
    expect(listed.processes).toContainEqual(expect.objectContaining({ session_id: id, status: "running" }));
    await (await fixture.environment.processes.get(id)).wait({ logPattern: "up", timeoutMs: 10_000 });
    expect(await fixture.call(tool, { action: "poll", session_id: id.slice(0, 12) })).toMatchObject({
      session_id: id,
      status: "running",
      exit_code: null,
      output: "up\n",
      total_bytes: 3,
    });
    expect(await fixture.call(tool, { action: "submit", session_id: id, data: "it" })).toMatchObject({
      session_id: id,
      bytes_written: 3,
    });
    expect(await fixture.call(tool, { action: "wait", session_id: id, timeout: 10 })).toMatchObject({
      outcome: "exited",
      status: "exited",
      exit_code: 4,
      output: "up\ngot it\n",
    });
    expect(await fixture.call(tool, { action: "log", session_id: id })).toMatchObject({
      output: "up\ngot it\n",
      first_line: 1,
      total_lines: 2,
      next_offset: null,
      total_bytes: 10,
    });
    const late = await fixture.refused(tool, { action: "write", session_id: id, data: "x" });
    expect(late.code).toBe("PROCESS_NOT_RUNNING");
  });

  it("tells that a log was cut, in every action that tells of the process", async () => {
    // Nobody need write so much: a hole counts.
    const size = limits.processLogMaxBytes + 1;
    const id = await start(`echo first; truncate -s ${size} /dev/stdout; sleep 300`);
    await vi.waitUntil(
      async () => (await fixture.call(tool, { action: "poll", session_id: id })).log_truncated === true,
      { timeout: 20_000, interval: 100 },
    );
    const { processes } = await fixture.call(tool, { action: "list" });
    expect(processes).toContainEqual(expect.objectContaining({ session_id: id, log_truncated: true }));
    const whole = expect.not.objectContaining({ log_truncated: expect.anything() });
    expect(await fixture.call(tool, { action: "poll", session_id: await start("echo short") })).toEqual(
      whole,
    );
    expect(await fixture.call(tool, { action: "kill", session_id: id })).toMatchObject({
      status: "killed",
      log_truncated: true,
    });
  });

  it("writes, closes, signals and kills", async () => {
    const reader = await start("cat; echo eof; sleep 300");
    await fixture.call(tool, { action: "write", session_id: reader, data: "ab" });
    await fixture.call(tool, { action: "close", session_id: reader });
    await (await fixture.environment.processes.get(reader)).wait({ logPattern: "abeof", timeoutMs: 10_000 });
    expect(await fixture.call(tool, { action: "kill", session_id: reader })).toMatchObject({
      status: "killed",
      survivors: [],
    });
    const signalled = await start("trap 'exit 8' USR1; echo ready; while :; do sleep 0.1; done");
    await (await fixture.environment.processes.get(signalled)).wait({
      logPattern: "ready",
      timeoutMs: 10_000,
    });
    await fixture.call(tool, { action: "signal", session_id: signalled, signal: "usr1" });
    expect(await fixture.call(tool, { action: "wait", session_id: signalled })).toMatchObject({
      exit_code: 8,
    });
  });

  it("presses Enter on a terminal", async () => {
    const id = await start("stty -icrnl; echo ready; head -c 3 | od -c", true);
    await (await fixture.environment.processes.get(id)).wait({ logPattern: "ready", timeoutMs: 10_000 });
    // Without the translation of Enter a line ends by ^J alone.
    await fixture.call(tool, { action: "submit", session_id: id, data: "a" });
    await fixture.call(tool, { action: "write", session_id: id, data: "\n" });
    const { output } = await fixture.call(tool, { action: "wait", session_id: id, timeout: 10 });
    expect(output).toMatch(/a +\\r +\\n/);
  });

  it("ends a wait at its timeout, and the process goes on", async () => {
    const id = await start("sleep 300");
    expect(await fixture.call(tool, { action: "wait", session_id: id, timeout: 0.2 })).toMatchObject({
      outcome: "timeout",
      status: "running",
      note: expect.stringContaining("still runs"),
    });
    await fixture.call(tool, { action: "kill", session_id: id });
  });

  it("gives any lines of a log, and of a command's full output", async () => {
    const id = await start("seq 1 1000");
    await fixture.call(tool, { action: "wait", session_id: id });
    const last = await fixture.call(tool, { action: "log", session_id: id });
    expect(last).toMatchObject({ first_line: 801, total_lines: 1000, next_offset: null });
    expect(last.output).toMatch(/^801\n[\s\S]*\n1000\n$/);
    expect(await fixture.call(tool, { action: "log", session_id: id, offset: 10, limit: 2 })).toMatchObject({
      output: "10\n11\n",
      first_line: 10,
      next_offset: 12,
    });
    expect(await fixture.call(tool, { action: "log", session_id: id, offset: -3, limit: 2 })).toMatchObject({
      output: "998\n999\n",
      first_line: 998,
      next_offset: 1000,
    });
    const { outputId } = await fixture.environment.exec("seq 1 300000", { captureBytes: 10_000 });
    expect(
      await fixture.call(tool, { action: "log", session_id: outputId ?? "", offset: 299_999 }),
    ).toMatchObject({ output: "299999\n300000\n", total_lines: 300_000, next_offset: null });
  });

  it("tells which argument is missing or wrong", async () => {
    const id = await start("sleep 300");
    for (const [args, code, message] of [
      [{ action: "poll" }, "INVALID_ARGUMENTS", '"session_id"'],
      [{ action: "write", session_id: id }, "INVALID_ARGUMENTS", '"data"'],
      [{ action: "signal", session_id: id }, "INVALID_ARGUMENTS", '"signal"'],
      [{ action: "signal", session_id: id, signal: "NOPE" }, "INVALID_ARGUMENTS", "NOPE"],
      [{ action: "log", session_id: "proc_ffffffffffff" }, "PROCESS_MISSING", "proc_ffffffffffff"],
      [{ action: "log", session_id: "out_0000000000000000" }, "PROCESS_MISSING", "out_"],
    ] as const) {
      const error = await fixture.refused(tool, args);
      expect([error.code, error.message]).toEqual([code, expect.stringContaining(message)]);
    }
    await fixture.call(tool, { action: "kill", session_id: id });
  });
});

describe("readLogLines()", () => {
  /** A log of lines that are made as they are read. */
  const logOf = (totalBytes: number, line: string) => {
    let readBytes = 0;
    const read = async (offset: number, maxBytes: number) => {
      const from = offset < 0 ? Math.max(0, totalBytes + offset) : Math.min(offset, totalBytes);
      const length = Math.min(maxBytes, totalBytes - from);
      readBytes += length;
      const phase = from % line.length;
      const text = line.repeat(Math.ceil((phase + length) / line.length)).slice(phase, phase + length);
      return { text, offset: from, nextOffset: from + length, totalBytes };
    };
    return { read, bytesRead: () => readBytes };
  };
  const abortSignal = new AbortController().signal;

  it("does not read through a log that is too long to count", async () => {
    const totalBytes = 8 * 1024 ** 3;
    const log = logOf(totalBytes, "0123456789abcde\n");
    expect(await readLogLines(log.read, { offset: -2, limit: 2, abortSignal })).toEqual({
      text: "0123456789abcde\n".repeat(2),
      firstLine: null,
      totalLines: null,
      totalBytes,
      nextOffset: null,
      truncated: false,
    });
    expect(await readLogLines(log.read, { offset: 3, limit: 1, abortSignal })).toMatchObject({
      firstLine: 3,
      totalLines: null,
      nextOffset: 4,
    });
    expect(log.bytesRead()).toBeLessThan(64 * 1024 ** 2);
  });

  it.each([-2, 1])("ends at the length found first when the log grows faster, offset %i", async (offset) => {
    let totalBytes = 1_600_000;
    const read = (from: number, maxBytes: number) => {
      const slice = logOf(totalBytes, "0123456789abcde\n").read(from, maxBytes);
      totalBytes += 4_000_000;
      // A reader that runs after the end meets it here.
      if (totalBytes > 400_000_000) throw new Error("It goes on reading");
      return slice;
    };
    expect(await readLogLines(read, { offset, limit: 2, abortSignal })).toEqual({
      text: "0123456789abcde\n".repeat(2),
      firstLine: offset < 0 ? 99_999 : 1,
      totalLines: 100_000,
      totalBytes: 1_600_000,
      nextOffset: offset < 0 ? null : 3,
      truncated: false,
    });
  });

  it("cuts an endless line and counts on", async () => {
    const line = `${"x".repeat(5_000_000)}\n`;
    const found = await readLogLines(logOf(line.length * 2, line).read, { offset: 1, limit: 2, abortSignal });
    expect(found.text.length).toBeLessThan(300_000);
    expect(found).toMatchObject({ totalLines: 2, truncated: true });
  });
});
