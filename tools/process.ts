/** `process`: follows and steers background processes. */
import { constants } from "node:os";
import { z } from "zod";
import type { EnvironmentProcess, ProcessInfo } from "../environments/base.ts";
import { fitText } from "../src/budget.ts";
import { MoorageError } from "../src/errors.ts";
import { limits } from "../src/limits.ts";
import { registerTool, type ToolContext, type ToolOutput } from "../src/registry.ts";
import { type ReadLog, readLogLines } from "./log-lines.ts";
import { plainText } from "./terminal-text.ts";

const DEFAULT_SECONDS = limits.terminalTimeoutMs / 1000;
const MAX_SECONDS = limits.terminalMaxTimeoutMs / 1000;
const DEFAULT_LINES = 200;
/** Output that poll and wait show, bytes: enough to see where a process stands. */
const PREVIEW_BYTES = 1_000;
const WAIT_PREVIEW_BYTES = 2_000;

const parameters = z.strictObject({
  action: z
    .enum(["list", "poll", "log", "wait", "kill", "write", "submit", "close", "signal"])
    .describe(
      "list: all processes. poll: status and the end of the output. log: lines of the output. wait: until it ends or the timeout. kill: end it with all it started. write: data to its input. submit: data and Enter. close: end of its input. signal: send a signal.",
    ),
  session_id: z
    .string()
    .min(1)
    .optional()
    .describe("Id from terminal, or its first characters, at least 4. For log also the id in full_output."),
  data: z.string().optional().describe("Text for write and submit."),
  timeout: z
    .number()
    .positive()
    .optional()
    .describe(`Seconds that wait waits, at most ${MAX_SECONDS}. Default ${DEFAULT_SECONDS}.`),
  offset: z
    .int()
    .optional()
    .describe("First line for log, from 1; negative counts from the end. Default: the last lines."),
  limit: z
    .int()
    .min(1)
    .max(limits.resultMaxLines)
    .optional()
    .describe(`Lines for log. Default ${DEFAULT_LINES}.`),
  signal: z.string().min(1).optional().describe("Signal by name, such as SIGINT."),
});

type Arguments = z.output<typeof parameters>;

const summary = {
  session_id: z.string(),
  command: z.string(),
  status: z.enum(["running", "exited", "killed", "lost"]),
  exit_code: z.number().nullable(),
  pid: z.number().nullable(),
  started_at: z.string(),
  ended_at: z.string().nullable(),
  total_bytes: z.number(),
  log_truncated: z
    .boolean()
    .optional()
    .describe("Whether output was dropped because the log had reached its limit."),
};

const output = z.object({
  processes: z.array(z.object(summary)).optional(),
  ...z.object(summary).partial().shape,
  output: z.string().optional(),
  truncated: z.boolean().optional(),
  outcome: z.enum(["exited", "timeout", "aborted"]).optional(),
  first_line: z.number().nullable().optional(),
  total_lines: z.number().nullable().optional().describe("Null when the log is too long to count."),
  next_offset: z.number().nullable().optional(),
  bytes_written: z.number().optional(),
  survivors: z.array(z.object({ pid: z.number(), command: z.string() })).optional(),
  checkpoint: z.string().optional(),
  note: z.string().optional(),
});

/** The `process` tool. */
export const tool = registerTool({
  name: "process",
  toolset: "terminal",
  title: "Process",
  description: [
    "Follows and steers background processes that terminal has started, by the session_id that it gave.",
    `Use wait instead of polling in a loop; it returns when the process ends, or after ${DEFAULT_SECONDS} seconds unless timeout says otherwise, and the process goes on.`,
    `log gives the last ${DEFAULT_LINES} lines; with offset and limit any others, and next_offset to read on.`,
    "A process counts as ended when the command itself has ended, even if it left others running; kill ends those too.",
    `Ended processes keep their output for ${limits.processRetentionMs / 60_000} minutes.`,
  ].join(" "),
  parameters,
  output,
  handler: handle,
  permissions: ["process:manage"],
  access: "operate",
  // What is written to a shell or an interpreter is run by it, some of it at the end of its input.
  mutates: ({ action }) => action === "write" || action === "submit" || action === "close",
  idempotent: false,
  parallel: "safe",
  resultBudget: { maxBytes: 2 * limits.resultMaxBytes, maxLines: limits.resultMaxBytes },
});

async function handle(args: Arguments, context: ToolContext): Promise<ToolOutput> {
  const { processes } = context.environment;
  if (args.action === "list") return { processes: (await processes.list()).map(describe) };
  const id = need(args, "session_id");
  if (args.action === "log" && id.startsWith("out_")) {
    const read: ReadLog = (offset, maxBytes) => context.environment.outputs.read(id, { offset, maxBytes });
    return { session_id: id, ...(await log(args, read, context.abortSignal)) };
  }
  const process = await processes.get(id);
  switch (args.action) {
    case "poll":
      return { ...describe(await process.info()), ...(await tail(process, PREVIEW_BYTES)) };
    case "log": {
      const read: ReadLog = (offset, maxBytes) => process.log({ offset, maxBytes });
      return { ...describe(await process.info()), ...(await log(args, read, context.abortSignal)) };
    }
    case "wait":
      return wait(process, args, context);
    case "kill": {
      const { info, survivors } = await process.kill();
      if (survivors.length === 0) return { ...describe(info), survivors };
      return { ...describe(info), survivors, note: "Could not end all of it; the survivors run on" };
    }
    case "write":
    case "submit": {
      const enter = args.action === "write" ? "" : (await process.info()).pty ? "\r" : "\n";
      const data = `${args.action === "write" ? need(args, "data") : (args.data ?? "")}${enter}`;
      await process.write(data);
      return { ...describe(await process.info()), bytes_written: Buffer.byteLength(data) };
    }
    case "close":
      await process.closeStdin();
      return describe(await process.info());
    case "signal":
      await process.signal(signalName(need(args, "signal")));
      return describe(await process.info());
  }
}

/** An argument without which the action makes no sense. */
function need(args: Arguments, name: "session_id" | "data" | "signal"): string {
  const value = args[name];
  if (value !== undefined) return value;
  throw new MoorageError("INVALID_ARGUMENTS", `"${name}": action "${args.action}" needs it`, {
    ...(name === "session_id" && { suggestion: "Use action list to see the ids." }),
  });
}

/** The name as POSIX has it: `INT`, `sigint` and `SIGINT` are one. */
function signalName(text: string): string {
  const name = `SIG${text.toUpperCase().replace(/^SIG/, "")}`;
  if (name in constants.signals) return name;
  throw new MoorageError("INVALID_ARGUMENTS", `"signal": "${text}" is not the name of a signal`);
}

function describe(info: ProcessInfo) {
  return {
    session_id: info.id,
    command: info.command.length > 200 ? `${info.command.slice(0, 200)}…` : info.command,
    status: info.status,
    exit_code: info.exitCode,
    pid: info.pid,
    started_at: info.startedAt,
    ended_at: info.endedAt,
    total_bytes: info.logBytes,
    ...(info.logTruncated && { log_truncated: true }),
  };
}

async function tail(process: EnvironmentProcess, maxBytes: number) {
  const { text, offset, totalBytes } = await process.log({ offset: -maxBytes, maxBytes });
  return { output: plainText(text), total_bytes: totalBytes, ...(offset > 0 && { truncated: true }) };
}

async function wait(process: EnvironmentProcess, args: Arguments, context: ToolContext): Promise<ToolOutput> {
  const seconds = Math.min(args.timeout ?? DEFAULT_SECONDS, MAX_SECONDS);
  const timeoutMs = Math.min(seconds * 1000, context.yieldMs ?? Number.POSITIVE_INFINITY);
  const { reason, info } = await process.wait({ exit: true, timeoutMs, abortSignal: context.abortSignal });
  const notes = [
    ...((args.timeout ?? 0) > MAX_SECONDS ? [`Waited ${MAX_SECONDS} s, the longest wait`] : []),
    ...(reason === "timeout" ? ["It still runs; wait again, or kill it"] : []),
    ...(info.status === "lost" ? ["Its exit code is lost, because what watched it ended first"] : []),
  ];
  return {
    ...describe(info),
    outcome: reason === "timeout" || reason === "aborted" ? reason : "exited",
    ...(await tail(process, WAIT_PREVIEW_BYTES)),
    ...(notes.length > 0 && { note: notes.join("; ") }),
  };
}

async function log(args: Arguments, read: ReadLog, abortSignal: AbortSignal): Promise<ToolOutput> {
  const limit = args.limit ?? DEFAULT_LINES;
  const found = await readLogLines(read, { offset: args.offset ?? -limit, limit, abortSignal });
  const fitted = fitText(plainText(found.text), { measure: "json", maxLines: limits.resultMaxLines + 1 });
  return {
    output: fitted.text,
    first_line: found.firstLine,
    total_lines: found.totalLines,
    next_offset: found.nextOffset,
    total_bytes: found.totalBytes,
    ...((fitted.truncated || found.truncated) && { truncated: true }),
  };
}
