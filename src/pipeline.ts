/**
 * The life of a call:
 *
 *   resolve alias -> parse and coerce -> validate -> available? -> middleware -> handler -> budget -> result
 *
 * Stages in between are middleware and know a tool by what it declares. Errors become results in one place, outside
 * everything else.
 */
import { randomUUID } from "node:crypto";
import type { BaseEnvironment } from "../environments/base.ts";
import { checkArguments, parseArguments } from "./arguments.ts";
import type { AvailabilityCache } from "./availability.ts";
import { fitOutput } from "./budget.ts";
import type { CallOptions, CallResult, ToolCall } from "./call.ts";
import type { Clock } from "./clock.ts";
import { isMoorageError, MoorageError, toMoorageError } from "./errors.ts";
import type { EventHub } from "./events.ts";
import { limits } from "./limits.ts";
import { type CallInProgress, compose, type Middleware } from "./middleware.ts";
import { didYouMean } from "./nearest.ts";
import type { RegisteredTool, ToolContext, ToolOutput, ToolProgress, ToolRegistry } from "./registry.ts";
import type { Sessions } from "./sessions.ts";
import { environmentKey, toolKey } from "./subjects.ts";

export interface PipelineParts {
  readonly registry: ToolRegistry;
  /** By name; the first one is the default. */
  readonly environments: ReadonlyMap<string, BaseEnvironment>;
  readonly availability: AvailabilityCache;
  readonly sessions: Sessions;
  /** Whether the tools of a toolset may be called. */
  readonly isEnabled: (toolset: string) => boolean;
  /** Outermost first. */
  readonly middleware: readonly Middleware[];
  readonly events: EventHub;
  readonly clock: Clock;
  /** Ends every call. */
  readonly stopSignal: AbortSignal;
}

type Arguments = Readonly<Record<string, unknown>>;

/** What is known of a call on its way. */
interface Course {
  readonly callId: string;
  readonly caller: string;
  tool: RegisteredTool | null;
  environmentName: string | null;
  readonly cancellation: Cancellation;
  readonly options: CallOptions;
}

/** Runs calls through every stage. */
export class Pipeline {
  readonly #parts: PipelineParts;
  readonly #running = new Set<Cancellation>();

  constructor(parts: PipelineParts) {
    this.#parts = parts;
    // One listener for all calls: a signal that many listen to makes each of them dear.
    parts.stopSignal.addEventListener(
      "abort",
      () => {
        for (const cancellation of this.#running) cancellation.cancel();
      },
      { once: true },
    );
  }

  /** Never rejects: whatever goes wrong is told in the result. */
  async call(call: ToolCall, options: CallOptions = {}): Promise<CallResult> {
    const { clock, events } = this.#parts;
    const startedAt = clock.now();
    const course: Course = {
      callId: call.id ?? randomUUID(),
      caller: call.caller ?? "default",
      tool: null,
      environmentName: null,
      cancellation: new Cancellation(clock, options.abortSignal),
      options,
    };
    const asked = { callId: course.callId, caller: course.caller };
    events.emit({ type: "call-started", ...asked, tool: call.name, environment: call.environment ?? null });
    if (this.#parts.stopSignal.aborted) course.cancellation.cancel();
    this.#running.add(course.cancellation);
    const outcome = await this.#settle(call, course);
    this.#running.delete(course.cancellation);
    course.cancellation.dispose();
    const result: CallResult = {
      callId: course.callId,
      tool: course.tool?.tool.name ?? call.name,
      environment: course.environmentName,
      durationMs: clock.now() - startedAt,
      ...outcome,
    };
    events.emit({
      type: "call-ended",
      ...asked,
      tool: result.tool,
      environment: result.environment,
      durationMs: result.durationMs,
      resultBytes: Buffer.byteLength(result.text),
      error: result.ok ? null : result.error,
    });
    return result;
  }

  /** The one place where errors become results. */
  async #settle(call: ToolCall, course: Course) {
    try {
      const output = await this.#advance(call, course);
      const { output: content, text } = fitOutput(output, course.tool?.tool.resultBudget);
      return { ok: true as const, content, text };
    } catch (thrown) {
      const known =
        course.cancellation.explain(thrown) ??
        toMoorageError(thrown, "INTERNAL", `Cannot call "${call.name}"`);
      const error = known.report();
      return { ok: false as const, error, text: fitOutput({ error }).text };
    }
  }

  async #advance(call: ToolCall, course: Course): Promise<ToolOutput> {
    const registered = this.#resolve(call.name);
    course.tool = registered;
    const { tool } = registered;
    const { environmentName, given } = this.#chooseEnvironment(
      registered,
      parseArguments(call.arguments, tool.name),
      call.environment,
    );
    course.environmentName = environmentName;
    let checked = await checkArguments(registered, given);
    const environment =
      environmentName === null ? null : (this.#parts.environments.get(environmentName) ?? null);
    await this.#requireAvailable(registered, environmentName);

    const { cancellation } = course;
    cancellation.throwIfAborted();
    const { sessions } = this.#parts;
    const inProgress: CallInProgress = {
      callId: course.callId,
      caller: course.caller,
      tool,
      environment,
      environmentName,
      get abortSignal() {
        return cancellation.signal;
      },
      get arguments() {
        return checked;
      },
      turn: course.options.turn ?? course.callId,
      cwd: () => (environment ? sessions.cwd(environment, course.caller) : "/"),
      replaceArguments: async (raw) => {
        checked = await checkArguments(registered, parseArguments(raw, tool.name));
      },
    };
    const run = compose(this.#parts.middleware, (reached) => this.#handle(reached, course));
    return cancellation.race(run(inProgress), () =>
      this.#parts.events.emit({ type: "handler-abandoned", callId: course.callId, tool: tool.name }),
    );
  }

  #resolve(asked: unknown): RegisteredTool {
    const { registry, isEnabled } = this.#parts;
    // Typed, but written by a model.
    const name = typeof asked === "string" ? asked : (JSON.stringify(asked) ?? "");
    const registered = registry.resolve(name);
    if (registered && isEnabled(registered.tool.toolset)) return registered;
    const names = registry.list().flatMap((tool) => (isEnabled(tool.toolset) ? [tool.name] : []));
    const state = registered ? `Tool "${name}" is turned off` : `There is no tool "${name}"`;
    throw new MoorageError("UNKNOWN_TOOL", `${state}${didYouMean(name, names)}`, {
      details: { tools: names },
    });
  }

  /** Takes `environment` out of the arguments: the tool's schema does not know it. */
  #chooseEnvironment(registered: RegisteredTool, given: Arguments, named: string | undefined) {
    if (registered.tool.needsEnvironment === false) return { environmentName: null, given };
    const { environment: argument, ...rest } = given;
    const names = [...this.#parts.environments.keys()];
    const wanted = argument ?? named ?? names[0];
    if (typeof wanted === "string" && this.#parts.environments.has(wanted)) {
      return { environmentName: wanted, given: rest };
    }
    const hint = typeof wanted === "string" ? didYouMean(wanted, names) : "";
    throw new MoorageError(
      "INVALID_ARGUMENTS",
      `"environment": there is no environment ${JSON.stringify(wanted) ?? ""}${hint} (there are: ${names.join(", ")})`,
    );
  }

  /** @throws {MoorageError} TOOL_UNAVAILABLE with the reason; INTERNAL when a check itself is at fault */
  async #requireAvailable({ tool }: RegisteredTool, environmentName: string | null): Promise<void> {
    const keys = [
      ...(environmentName === null ? [] : [environmentKey(environmentName)]),
      ...(tool.availability || tool.requiredEnv ? [toolKey(tool.name)] : []),
    ];
    const verdicts = this.#parts.availability.peek(keys) ?? (await this.#parts.availability.snapshot(keys));
    for (const verdict of verdicts.values()) {
      if (verdict.available === null) throw verdict.fault;
      // Where none has come up yet, the call's own start tells best what is wrong, or that nothing is any more.
      if (verdict.available || verdict.neverWorked) continue;
      const place = environmentName === null ? "" : ` in environment "${environmentName}"`;
      throw new MoorageError(
        "TOOL_UNAVAILABLE",
        `Cannot use "${tool.name}"${place}: ${verdict.reason}`,
        verdict.suggestion === undefined ? {} : { suggestion: verdict.suggestion },
      );
    }
  }

  /** The innermost stage: the tool's own handler, under its deadline. */
  async #handle(call: CallInProgress, course: Course): Promise<ToolOutput> {
    const { cancellation } = course;
    cancellation.throwIfAborted();
    const stopDeadline = cancellation.startDeadline(call.tool);
    try {
      const output: unknown = await call.tool.handler(call.arguments, this.#context(call, course));
      if (typeof output !== "object" || output === null || Array.isArray(output)) {
        throw new TypeError("the handler did not return an object");
      }
      // Checked above; its values are the tool's own affair.
      return output as ToolOutput;
    } catch (error) {
      if (call.environment && isMoorageError(error, "SESSION_CLOSED")) {
        this.#parts.sessions.drop(call.environment, course.caller);
      }
      throw (
        cancellation.explain(error) ?? toMoorageError(error, "TOOL_FAILED", `Tool "${call.tool.name}" failed`)
      );
    } finally {
      stopDeadline();
    }
  }

  #context(call: CallInProgress, { caller, options }: Course): ToolContext {
    const { sessions } = this.#parts;
    const place = (): BaseEnvironment => {
      if (call.environment) return call.environment;
      throw new TypeError(`"${call.tool.name}" declares that it needs no environment`);
    };
    return {
      callId: call.callId,
      get environment() {
        return place();
      },
      session: () => sessions.get(place(), caller),
      cwd: () => call.cwd(),
      get abortSignal() {
        return call.abortSignal;
      },
      yieldMs: options.yieldMs,
      progress: (progress) => tellProgress(options.onProgress, progress),
    };
  }
}

/** Why and when a call ends early: the caller, the runtime's stop, or the tool's deadline. */
class Cancellation {
  readonly #clock: Clock;
  readonly #source: AbortSignal | undefined;
  readonly #onAbort = () => this.cancel();
  #reason: MoorageError | null = null;
  /** Made for the first who asks; most calls end without. */
  #controller: AbortController | null = null;
  #giveUp: (() => void) | null = null;
  #cancelGrace: (() => void) | null = null;

  constructor(clock: Clock, source: AbortSignal | undefined) {
    this.#clock = clock;
    this.#source = source;
    if (source?.aborted) this.cancel();
    else source?.addEventListener("abort", this.#onAbort, { once: true });
  }

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#reason) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  throwIfAborted(): void {
    if (this.#reason) throw this.#reason;
  }

  cancel(): void {
    this.#abort(new MoorageError("ABORTED", "The call was cancelled"));
  }

  /** @returns a function that takes the deadline off */
  startDeadline({ name, timeoutMs }: { readonly name: string; readonly timeoutMs?: number }): () => void {
    if (timeoutMs === undefined) return () => {};
    return this.#clock.after(timeoutMs, () =>
      this.#abort(new MoorageError("TOOL_TIMEOUT", `Tool "${name}" did not end within ${timeoutMs} ms`)),
    );
  }

  /** The promise's outcome, or, `limits.abortGraceMs` after an abort, the abort's reason. */
  async race<Value>(promise: Promise<Value>, onAbandon: () => void): Promise<Value> {
    const abandoned = new Promise<never>((_, reject) => {
      this.#giveUp = () => {
        onAbandon();
        reject(this.#reason);
      };
    });
    if (this.#reason) this.#startGrace();
    return Promise.race([promise, abandoned]);
  }

  /** The abort's reason when `error` only repeats that there was one. */
  explain(error: unknown): MoorageError | null {
    const isEcho =
      error === this.#reason ||
      isMoorageError(error, "ABORTED") ||
      (error instanceof Error && error.name === "AbortError");
    return isEcho ? this.#reason : null;
  }

  dispose(): void {
    this.#cancelGrace?.();
    this.#giveUp = null;
    this.#source?.removeEventListener("abort", this.#onAbort);
  }

  #abort(reason: MoorageError): void {
    if (this.#reason) return;
    this.#reason = reason;
    this.#controller?.abort(reason);
    this.#startGrace();
  }

  #startGrace(): void {
    if (this.#giveUp === null || this.#cancelGrace !== null) return;
    this.#cancelGrace = this.#clock.after(limits.abortGraceMs, () => this.#giveUp?.());
  }
}

/** Progress is for onlookers; one that throws must not end the call. */
function tellProgress(listener: CallOptions["onProgress"], progress: ToolProgress): void {
  try {
    listener?.(progress);
  } catch (error) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    process.emitWarning(`A progress listener threw: ${text}`, "MoorageWarning");
  }
}
