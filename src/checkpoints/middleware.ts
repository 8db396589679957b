/**
 * The stage that takes a checkpoint before a call that can change files. It knows a tool by what it declares: whether it
 * mutates, which paths it writes, which shell command it runs. A checkpoint that fails is told and blocks nothing.
 */
import type { BaseEnvironment } from "../../environments/base.ts";
import type { CallInProgress, Middleware } from "../middleware.ts";
import type { ToolOutput } from "../registry.ts";
import type { Checkpoints, TakenCheckpoint } from "./checkpoints.ts";

/** What became of the wish for a checkpoint. */
type Attempt = { readonly taken: TakenCheckpoint | null; readonly note: string | null };

/** Turns that may run side by side in one environment. */
const TURNS = 64;

/** @param each whether every call has a checkpoint of its own, or all calls of a turn share one of the whole workspace */
export function checkpointMiddleware(checkpoints: Checkpoints, each: "call" | "turn"): Middleware {
  const turns = new Turns();
  // Callers whose session may have functions or aliases in the place of known programs.
  const redefined = new WeakMap<BaseEnvironment, Set<string>>();
  return async (call, next) => {
    const { environment, tool } = call;
    if (!environment || !canMutate(call)) return next();
    const command = tool.command?.(call.arguments);
    if (command !== undefined) {
      const callers = redefined.get(environment) ?? new Set();
      redefined.set(environment, callers);
      // Loaded on first need, like the store.
      const { judgeCommand } = await import("./can-write.ts");
      const effects = judgeCommand(command);
      const isTrusted = !callers.has(call.caller);
      if (effects.redefines) callers.add(call.caller);
      if (isTrusted && !effects.writes) return next();
    }
    const { taken, note } =
      each === "call"
        ? await attempt(checkpoints, call, environment, tool.paths?.(call.arguments).writes)
        : await attemptTurn(checkpoints, turns, call, environment);
    let output: ToolOutput;
    try {
      output = await next();
    } finally {
      // Also what a call made that failed or was cancelled is its own.
      await taken?.finish().catch((error: unknown) => {
        const text = error instanceof Error ? error.message : String(error);
        process.emitWarning(`What a call made could not be noted: ${text}`, "MoorageWarning");
      });
    }
    return withCheckpoint(output, taken, note, call);
  };
}

function canMutate({ tool: { mutates }, arguments: args }: CallInProgress): boolean {
  return typeof mutates === "function" ? mutates(args) : mutates;
}

/** The checkpoints of the last turns, by environment: calls of a turn share one. */
class Turns {
  readonly #byEnvironment = new WeakMap<BaseEnvironment, Map<string, Promise<Attempt>>>();

  async attempt(environment: BaseEnvironment, turn: string, take: () => Promise<Attempt>): Promise<Attempt> {
    const turns = this.#byEnvironment.get(environment) ?? new Map<string, Promise<Attempt>>();
    this.#byEnvironment.set(environment, turns);
    const known = turns.get(turn);
    // What was left out is told once.
    if (known) return { ...(await known), note: null };
    const taking = take();
    turns.set(turn, taking);
    const [oldest] = turns.keys();
    if (turns.size > TURNS && oldest !== undefined) turns.delete(oldest);
    const attempt = await taking;
    // The next call of the turn tries again.
    if (attempt.taken === null) turns.delete(turn);
    return attempt;
  }
}

/** The checkpoint of the whole turn, and one of files outside of the workspace, which that one does not know. */
async function attemptTurn(
  checkpoints: Checkpoints,
  turns: Turns,
  call: CallInProgress,
  environment: BaseEnvironment,
): Promise<Attempt> {
  const paths = call.tool.paths?.(call.arguments).writes;
  if (paths?.length === 0) return { taken: null, note: null };
  const whole = await turns.attempt(environment, call.turn, () => attempt(checkpoints, call, environment));
  if (!paths) return whole;
  const outside = await attempt(checkpoints, call, environment, paths, true);
  const notes = [whole.note, outside.note].filter((note) => note !== null);
  return { taken: whole.taken, note: notes.length === 0 ? null : notes.join("; ") };
}

/** @param paths that the call names as those it writes; without, it may write anywhere */
async function attempt(
  checkpoints: Checkpoints,
  call: CallInProgress,
  environment: BaseEnvironment,
  paths?: readonly string[],
  onlyOutside = false,
): Promise<Attempt> {
  const { callId } = call;
  const reason = reasonOf(call, paths);
  if (paths?.length === 0) return { taken: null, note: null };
  try {
    if (paths) {
      const options = { reason, callId, cwd: call.cwd(), onlyOutside };
      const taken = await checkpoints.beforeFiles(environment, paths, options);
      return { taken, note: taken?.note ?? null };
    }
    const taken = await checkpoints.beforeTree(environment, { reason, callId });
    return {
      taken,
      note: taken
        ? taken.note
        : "No checkpoint was taken: the workspace takes too long to look at; `moor checkpoints create` in the same place stores it without a limit of time, and later ones take less",
    };
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { taken: null, note: /^No checkpoint/.test(text) ? text : `No checkpoint was taken: ${text}` };
  }
}

/** Characters of a command or of a path in a checkpoint's reason: a line of a list has room for them. */
const SUBJECT_MAX = 60;

/** `before terminal: rm -rf build`, by which a person finds the call to undo. */
function reasonOf({ tool, ...call }: CallInProgress, paths: readonly string[] = []): string {
  const [first = "", ...others] = paths;
  const subject = tool.command?.(call.arguments) ?? first;
  const line = subject.trim().replaceAll(/[\p{Cc}\u2028\u2029]+/gu, " ");
  const shown = line.length > SUBJECT_MAX ? `${line.slice(0, SUBJECT_MAX).toWellFormed()}...` : line;
  const more = others.length === 0 ? "" : ` and ${others.length} more`;
  return `before ${tool.name}${shown === "" ? "" : `: ${shown}${more}`}`;
}

/** Adds what the tool's own output has room for: clients check outputs by their schema. */
function withCheckpoint(
  output: ToolOutput,
  taken: TakenCheckpoint | null,
  note: string | null,
  { tool }: CallInProgress,
): ToolOutput {
  const declares = (key: string) => tool.output === undefined || key in tool.output.shape;
  const notes = [output.note, note].filter((each) => typeof each === "string" && each !== "");
  return {
    ...output,
    ...(taken && declares("checkpoint") && { checkpoint: taken.id }),
    ...(note !== null && declares("note") && { note: notes.join("; ") }),
  };
}
