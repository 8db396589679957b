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
  readonly #run: (call: CallInProgress) => Promise<ToolOutput>;
  readonly #courses = new WeakMap<CallInProgress, Course>();

  constructor(parts: PipelineParts) {
    this.#parts = parts;
    this.#run = compose(parts.middleware, (call) => this.#handle(call));
  }

  /** Never rejects: whatever goes wrong is told in the result. */
  async call(call: ToolCall, options: CallOptions = {}): Promise<CallResult> {
    const { clock, events, stopSignal } = this.#parts;
    const startedAt = clock.now();
    const course: Course = {
      callId: call.id ?? randomUUID(),
      caller: call.caller ?? "default",
      tool: null,
      environmentName: null,
      cancellation: new Cancellation(clock, [stopSignal, options.abortSignal]),
      options,
    };
    const asked = { callId: course.callId, caller: course.caller };
    events.emit({ type: "call-started", ...asked, tool: call.name, environment: call.environment ?? null });
    const outcome = await this.#settle(call, course);
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
      abortSignal: cancellation.signal,
      get arguments() {
        return checked;
      },
      cwd: () => (environment ? sessions.cwd(environment, course.caller) : "/"),
      replaceArguments: async (raw) => {
        checked = await checkArguments(registered, parseArguments(raw, tool.name));
      },
    };
    this.#courses.set(inProgress, course);
    return cancellation.race(this.#run(inProgress), () =>
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
      if (verdict.available) continue;
      const place = environmentName === null ? "" : ` in environment "${environmentName}"`;
      throw new MoorageError(
        "TOOL_UNAVAILABLE",
        `Cannot use "${tool.name}"${place}: ${verdict.reason}`,
        verdict.suggestion === undefined ? {} : { suggestion: verdict.suggestion },
      );
    }
  }

  /** The innermost stage: the tool's own handler, under its deadline. */
  async #handle(call: CallInProgress): Promise<ToolOutput> {
    const course = this.#courses.get(call);
    if (!course) throw new TypeError("A middleware passed on a call of its own making");
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
      abortSignal: call.abortSignal,
      yieldMs: options.yieldMs,
      progress: (progress) => tellProgress(options.onProgress, progress),
    };
  }
}

/** Why and when a call ends early: the caller, the runtime's stop, or the tool's deadline. */
class Cancellation {
  readonly #controller = new AbortController();
  readonly #clock: Clock;
  readonly #sources: readonly AbortSignal[];
  readonly #onAbort = () => this.#abort(new MoorageError("ABORTED", "The call was cancelled"));
  #giveUp: (() => void) | null = null;
  #cancelGrace: (() => void) | null = null;

  constructor(clock: Clock, sources: readonly (AbortSignal | undefined)[]) {
    this.#clock = clock;
    this.#sources = sources.filter((source) => source !== undefined);
    for (const source of this.#sources) {
      if (source.aborted) this.#onAbort();
      else source.addEventListener("abort", this.#onAbort, { once: true });
    }
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  throwIfAborted(): void {
    this.signal.throwIfAborted();
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
        reject(this.signal.reason);
      };
    });
    if (this.signal.aborted) this.#startGrace();
    return Promise.race([promise, abandoned]);
  }

  /** The abort's reason when `error` only repeats that there was one. */
  explain(error: unknown): MoorageError | null {
    if (!this.signal.aborted) return null;
    const isEcho =
      error === this.signal.reason ||
      isMoorageError(error, "ABORTED") ||
      (error instanceof Error && error.name === "AbortError");
    return isEcho ? this.signal.reason : null;
  }

  dispose(): void {
    this.#cancelGrace?.();
    this.#giveUp = null;
    for (const source of this.#sources) source.removeEventListener("abort", this.#onAbort);
  }

  #abort(reason: MoorageError): void {
    if (this.signal.aborted) return;
    this.#controller.abort(reason);
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
