/** `terminal`: runs a command in the environment's shell. */
import { posix } from "node:path";
import { z } from "zod";
import type { EnvironmentProcess, ExecResult, LeftProcess } from "../environments/base.ts";
import { fitText } from "../src/budget.ts";
import { isMoorageError, MoorageError } from "../src/errors.ts";
import { limits } from "../src/limits.ts";
import { shellLines } from "../src/line-ends.ts";
import { registerTool, type ToolContext, type ToolOutput } from "../src/registry.ts";
import { exitCodeMeaning } from "./exit-codes.ts";
import { lastLine, plainText } from "./terminal-text.ts";

const DEFAULT_SECONDS = limits.terminalTimeoutMs / 1000;
const MAX_SECONDS = limits.terminalMaxTimeoutMs / 1000;

const parameters = z.strictObject({
  command: z.string().min(1).describe("Shell command; may have several lines."),
  workdir: z
    .string()
    .min(1)
    .optional()
    .describe("Folder for this command only, absolute or relative to the present one."),
  timeout: z
    .number()
    .positive()
    .default(DEFAULT_SECONDS)
    .describe(`Seconds until the command is ended, at most ${MAX_SECONDS} in the foreground.`),
  background: z
    .boolean()
    .default(false)
    .describe("Start it and return at once with a session_id for the process tool. No timeout applies."),
  pty: z.boolean().default(false).describe("Run on a terminal, for programs that ask for one."),
  stdin: z.string().optional().describe("Text for its standard input. Without it, input is empty."),
});

const leftProcess = z.object({ pid: z.number(), command: z.string() });

const output = z.object({
  output: z.string().describe("stdout and stderr in the order written, without colours."),
  exit_code: z.number().nullable().describe("Null when none is known."),
  cwd: z.string(),
  duration_ms: z.number(),
  timed_out: z.boolean().optional(),
  aborted: z.boolean().optional(),
  truncated: z.boolean().optional(),
  full_output: z.string().optional().describe("Id of the whole output; read it with process, action log."),
  left_running: z.array(leftProcess).optional().describe("Processes that the command left behind."),
  exit_code_meaning: z.string().optional(),
  note: z.string().optional(),
  checkpoint: z.string().optional().describe("The user can restore the workspace as it was before."),
  session_id: z.string().optional().describe("Id of the background process, for the process tool."),
});

type Arguments = z.output<typeof parameters>;

/** The `terminal` tool. */
export const terminal = registerTool({
  name: "terminal",
  aliases: ["bash", "shell", "run_command", "execute_command"],
  toolset: "terminal",
  title: "Terminal",
  description: [
    "Runs a shell command and returns its output, exit code and working directory.",
    "The working directory, exported variables, functions and aliases live on between calls; unexported variables and shell options do not.",
    "Standard input is empty unless stdin is given, so commands that ask questions fail; use their non-interactive options.",
    `A command that needs more than ${MAX_SECONDS} seconds, or a server, belongs in the background: set background and use process to follow it.`,
    "Long output is cut in the middle; full_output then names the whole.",
  ].join(" "),
  parameters,
  output,
  handler: handle,
  permissions: ["terminal:execute"],
  access: "high-impact",
  mutates: true,
  // As it will run: rules judge no word with a carriage return that the shell does not get.
  command: ({ command }) => shellLines(command),
  idempotent: false,
  parallel: "never",
  // The handler itself cuts what can be read on elsewhere; this only bounds what JSON makes of it.
  resultBudget: { maxBytes: 2 * limits.resultMaxBytes, maxLines: limits.resultMaxBytes },
});

async function handle(args: Arguments, context: ToolContext): Promise<ToolOutput> {
  const { command } = args;
  if (args.background) return startInBackground(command, args, context);
  if (args.timeout > MAX_SECONDS) {
    throw new MoorageError(
      "INVALID_ARGUMENTS",
      `"timeout": ${args.timeout} s is too long for a foreground command, the limit is ${MAX_SECONDS} s`,
      { suggestion: "Set background to true and follow the command with the process tool." },
    );
  }
  return args.pty ? runOnTerminal(command, args, context) : runInSession(command, args, context);
}

async function runInSession(command: string, args: Arguments, context: ToolContext): Promise<ToolOutput> {
  const session = await context.session();
  let bytes = 0;
  let line = "";
  const result = await session.exec(command, {
    timeoutMs: args.timeout * 1000,
    abortSignal: context.abortSignal,
    captureBytes: limits.terminalCaptureBytes,
    onOutput: ({ data }) => {
      bytes += data.length;
      line = lastLine(data) ?? line;
      context.progress({ message: line, progress: bytes });
    },
    ...(args.workdir !== undefined && { cwd: args.workdir }),
    ...(args.stdin !== undefined && { stdin: args.stdin }),
    ...(context.yieldMs !== undefined && { yieldMs: context.yieldMs }),
  });
  const { processId, exitCode, outputId } = result;
  return report({
    command,
    text: result.output,
    totalBytes: result.truncated.output?.totalBytes ?? null,
    exitCode,
    cwd: result.cwd,
    durationMs: result.durationMs,
    timedOut: result.timedOut,
    aborted: result.aborted,
    outputId,
    leftRunning: result.leftRunning,
    notes: [...notesOf(result), ...(processId === null ? [] : [goesOn(processId)])],
    processId,
  });
}

/** A pty needs a process of its own, which is waited for and does not outlive the call. */
async function runOnTerminal(command: string, args: Arguments, context: ToolContext): Promise<ToolOutput> {
  const startedAt = performance.now();
  const { process, notes } = await start(command, args, context);
  const timeoutMs = args.timeout * 1000;
  const yieldMs = context.yieldMs ?? Number.POSITIVE_INFINITY;
  const outcome = await process.wait({
    exit: true,
    timeoutMs: Math.min(timeoutMs, yieldMs),
    abortSignal: context.abortSignal,
  });
  const goesOnAlone = outcome.reason === "timeout" && yieldMs < timeoutMs;
  const isOver = outcome.reason === "exit" || goesOnAlone;
  const ended = isOver ? { info: outcome.info, survivors: [] } : await process.kill();
  const { text, totalBytes } = await readLog(process);
  return report({
    command,
    text,
    totalBytes,
    exitCode: outcome.reason === "exit" ? ended.info.exitCode : null,
    cwd: ended.info.cwd,
    durationMs: performance.now() - startedAt,
    timedOut: outcome.reason === "timeout" && !goesOnAlone,
    aborted: outcome.reason === "aborted",
    // The log of the ended process is the whole output.
    outputId: totalBytes === null ? null : process.id,
    leftRunning: [],
    notes: [...notes, ...survivorNotes(ended.survivors), ...(goesOnAlone ? [goesOn(process.id)] : [])],
    processId: goesOnAlone ? process.id : null,
  });
}

async function startInBackground(
  command: string,
  args: Arguments,
  context: ToolContext,
): Promise<ToolOutput> {
  const startedAt = performance.now();
  const { process, notes } = await start(command, args, context);
  const info = await process.info();
  return report({
    command,
    text: "",
    totalBytes: null,
    exitCode: null,
    cwd: info.cwd,
    durationMs: performance.now() - startedAt,
    timedOut: false,
    aborted: false,
    outputId: null,
    leftRunning: [],
    notes: [`Started in the background as ${process.id}; follow it with the process tool`, ...notes],
    processId: process.id,
  });
}

interface Started {
  readonly process: EnvironmentProcess;
  readonly notes: readonly string[];
}

/** Starts a process with the cwd and variables of the caller's session, and gives it its stdin. */
async function start(command: string, args: Arguments, context: ToolContext): Promise<Started> {
  const session = await context.session();
  const process = await context.environment.processes.start(command, {
    session,
    ...(args.workdir !== undefined && { cwd: posix.resolve(session.cwd, args.workdir) }),
    ...(args.pty && { pty: true }),
  });
  if (args.stdin === undefined) return { process, notes: [] };
  try {
    await process.write(args.stdin);
    // A terminal has no end of input but the character for it; a pipe has.
    if (!args.pty) await process.closeStdin();
  } catch (error) {
    // It has started, so the caller needs its id. One that ended without reading its input is as good as any.
    if (isMoorageError(error, "PROCESS_NOT_RUNNING")) return { process, notes: [] };
    if (!isMoorageError(error, "PROCESS_NO_STDIN")) throw error;
    return { process, notes: [`Not all of stdin was taken, and it was left open: ${error.message}`] };
  }
  return { process, notes: [] };
}

/** The log's head and tail, and its length when that is not all. */
async function readLog(process: EnvironmentProcess) {
  const whole = await process.log({ offset: 0, maxBytes: limits.terminalCaptureBytes });
  if (whole.nextOffset >= whole.totalBytes) return { text: whole.text, totalBytes: null };
  const half = Math.floor(limits.terminalCaptureBytes / 2);
  const head = await process.log({ offset: 0, maxBytes: half });
  const tail = await process.log({ offset: -half, maxBytes: half });
  const omitted = tail.offset - head.nextOffset;
  const mark = `\n[... ${omitted} of ${tail.totalBytes} bytes omitted ...]\n`;
  return { text: head.text + mark + tail.text, totalBytes: tail.totalBytes };
}

interface Report {
  readonly command: string;
  readonly text: string;
  /** Of the whole output, when `text` is not all of it. */
  readonly totalBytes: number | null;
  readonly exitCode: number | null;
  readonly cwd: string;
  readonly durationMs: number;
  readonly timedOut: boolean;
  readonly aborted: boolean;
  readonly outputId: string | null;
  readonly leftRunning: readonly LeftProcess[];
  readonly notes: readonly string[];
  readonly processId: string | null;
}

function report(facts: Report): ToolOutput {
  const meaning = facts.exitCode === null ? null : exitCodeMeaning(facts.command, facts.exitCode);
  const text = plainText(facts.text);
  const isPart = facts.totalBytes !== null;
  const fitted = fitText(text, {
    measure: "json",
    // An output that is kept nowhere else is shown whole as far as it can be.
    maxBytes: isPart ? limits.resultMaxBytes - ROOM_FOR_REST : 2 * limits.resultMaxBytes - ROOM_FOR_REST,
    maxLines: limits.resultMaxBytes,
    ...(facts.totalBytes !== null && { totalBytes: facts.totalBytes }),
  });
  return {
    output: fitted.text,
    exit_code: facts.exitCode,
    cwd: facts.cwd,
    duration_ms: Math.round(facts.durationMs),
    ...(facts.timedOut && { timed_out: true }),
    ...(facts.aborted && { aborted: true }),
    ...((isPart || fitted.truncated) && { truncated: true }),
    ...(facts.outputId !== null && { full_output: facts.outputId }),
    ...(facts.leftRunning.length > 0 && { left_running: facts.leftRunning }),
    ...(meaning !== null && { exit_code_meaning: meaning }),
    ...(facts.notes.length > 0 && { note: facts.notes.join("; ") }),
    ...(facts.processId !== null && { session_id: facts.processId }),
  };
}

/** JSON bytes set aside for everything but the output. */
const ROOM_FOR_REST = 4_000;

function notesOf(result: ExecResult): readonly string[] {
  return [...result.notes, ...survivorNotes(result.survivors)];
}

function survivorNotes(survivors: readonly LeftProcess[]): readonly string[] {
  if (survivors.length === 0) return [];
  return [`Could not be ended: ${survivors.map(({ pid, command }) => `${pid} (${command})`).join(", ")}`];
}

function goesOn(processId: string): string {
  return `Still running as ${processId}; wait for it or read on with the process tool`;
}
