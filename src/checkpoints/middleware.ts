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

export function checkpointMiddleware(checkpoints: Checkpoints): Middleware {
  // Callers whose session may have functions or aliases in the place of known programs.
  const redefined = new WeakMap<BaseEnvironment, Set<string>>();
  return async (call, next) => {
    const { environment, tool } = call;
    if (!environment || !tool.mutates) return next();
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
    const { taken, note } = await attempt(checkpoints, call, environment);
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

async function attempt(
  checkpoints: Checkpoints,
  call: CallInProgress,
  environment: BaseEnvironment,
): Promise<Attempt> {
  const { tool, callId } = call;
  const reason = `before ${tool.name}`;
  const paths = tool.paths?.(call.arguments).writes;
  if (paths?.length === 0) return { taken: null, note: null };
  try {
    const taken = paths
      ? await checkpoints.beforeFiles(environment, paths, { reason, callId, cwd: call.cwd() })
      : await checkpoints.beforeTree(environment, { reason, callId });
    return {
      taken,
      note: taken ? taken.note : "No checkpoint was taken: the workspace takes too long to look at",
    };
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { taken: null, note: /^No checkpoint/.test(text) ? text : `No checkpoint was taken: ${text}` };
  }
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
