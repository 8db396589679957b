/** Functions around a call, in the shape of an onion: the first one is the outermost. */
import type { BaseEnvironment } from "../environments/base.ts";
import type { AnyTool, ToolOutput } from "./registry.ts";

/** A call that has been parsed and checked, as every stage around the handler sees it. */
export interface CallInProgress {
  readonly callId: string;
  readonly caller: string;
  readonly tool: AnyTool;
  /** Checked by the tool's schema. */
  readonly arguments: Readonly<Record<string, unknown>>;
  /** Null for a tool that needs none. */
  readonly environment: BaseEnvironment | null;
  readonly environmentName: string | null;
  readonly abortSignal: AbortSignal;
  /** What the call belongs to, by `CallOptions.turn`; else its own id. */
  readonly turn: string;
  /** cwd of the caller's session, without opening one. */
  cwd(): string;
  /**
   * Puts other arguments in place, parsed and checked like the first ones.
   * @throws {MoorageError} INVALID_ARGUMENTS; the old ones then stay
   */
  replaceArguments(raw: unknown): Promise<void>;
}

export type Next = () => Promise<ToolOutput>;

/** Observes, changes or blocks a call. Blocking is throwing a `MoorageError`; `next` may be called once at most. */
export type Middleware = (call: CallInProgress, next: Next) => Promise<ToolOutput>;

/**
 * Makes one function of a stack of middleware and the handler at its centre.
 *
 * @throws {TypeError} (from the returned function) when a middleware calls `next` a second time
 */
export function compose(
  stack: readonly Middleware[],
  handler: (call: CallInProgress) => Promise<ToolOutput>,
): (call: CallInProgress) => Promise<ToolOutput> {
  return (call) => {
    let deepest = -1;
    const dispatch = async (depth: number): Promise<ToolOutput> => {
      if (depth <= deepest) throw new TypeError("next() was called more than once");
      deepest = depth;
      const middleware = stack[depth];
      return middleware ? middleware(call, () => dispatch(depth + 1)) : handler(call);
    };
    return dispatch(0);
  };
}
