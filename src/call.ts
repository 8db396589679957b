/**
 * One tool call: what a caller hands in, and the one shape of what comes back. Every surface (library, command,
 * MCP) speaks in these words.
 */
import type { ErrorReport } from "./errors.ts";
import type { ToolOutput, ToolProgress } from "./registry.ts";

/** A call as a model or a person asks for it. Nothing in it is trusted. */
export interface ToolCall {
  /** Repeated in the result. @default a random id */
  readonly id?: string;
  readonly name: string;
  /** JSON text as models send it, or the object itself. @default no arguments */
  readonly arguments?: unknown;
  /** Name of an environment; an `environment` among the arguments wins. @default the first one */
  readonly environment?: string;
  /** Whose shell session is used; each caller has one cwd per environment. @default "default" */
  readonly caller?: string;
}

export interface CallOptions {
  /** Ends the call and what it started; the result is then `ABORTED`, or what the tool had. */
  readonly abortSignal?: AbortSignal;
  /** A foreground command that lasts longer becomes a background process, milliseconds. @default never */
  readonly yieldMs?: number;
  /**
   * Names what the call belongs to, such as one answer of a model. With `checkpoints: {each: "turn"}` all calls of a turn
   * share the checkpoint that was taken before its first change. @default the call is a turn of its own
   */
  readonly turn?: string;
  /** Told that the call is alive. Must not throw. */
  readonly onProgress?: (progress: ToolProgress) => void;
}

interface ResultBase {
  readonly callId: string;
  /** Canonical name; the name as asked when there is no such tool. */
  readonly tool: string;
  /** Environment in which it ran; null when it never came to one or needs none. */
  readonly environment: string | null;
  /** JSON for the model: the content, or `{"error": {...}}`. Always within the result budget. */
  readonly text: string;
  readonly durationMs: number;
}

/** How a call ended. `call` never throws for what a model did; it answers with this. */
export type CallResult =
  | (ResultBase & { readonly ok: true; readonly content: ToolOutput })
  | (ResultBase & { readonly ok: false; readonly error: ErrorReport });

/** A call in the form of OpenAI's chat API. */
export interface OpenAiToolCall {
  readonly id: string;
  readonly type?: "function";
  readonly function: { readonly name: string; readonly arguments: string };
}

/** A result in the form of OpenAI's chat API. */
export interface OpenAiToolMessage {
  readonly role: "tool";
  readonly tool_call_id: string;
  readonly content: string;
}

/** Reads a call in OpenAI's form. */
export function fromOpenAi(call: OpenAiToolCall): ToolCall {
  return { id: call.id, name: call.function.name, arguments: call.function.arguments };
}

/** Writes a result in OpenAI's form. */
export function toOpenAi(result: CallResult): OpenAiToolMessage {
  return { role: "tool", tool_call_id: result.callId, content: result.text };
}
