/**
 * Tools and the registry that holds them. May import:
 *
 *   errors, limits            <- everyone
 *   environments/base         -> errors, limits
 *   environments/<backend>    -> base, errors, limits
 *   src/registry, pipeline    -> errors, limits, base (types)
 *   tools/<tool>              -> registry, base (types), errors, limits
 *   src/moorage.ts            -> everything; the only file that joins backends, tools and pipeline
 *
 * The registry knows no tool; a tool declares what the stages around it need (`mutates`, `paths`, `permissions`),
 * so that no stage ever asks for a tool's name.
 */
import type { z } from "zod";
import type { BaseEnvironment, ShellSession } from "../environments/base.ts";
import { checkTool } from "./declaration.ts";
import { MoorageError } from "./errors.ts";
import type { JsonSchema } from "./json-schema.ts";

export type Availability =
  | { readonly available: true }
  | {
      readonly available: false;
      readonly reason: string;
      readonly suggestion?: string;
      /** It has never worked: an earlier success was about what it stands on, and does not cover this. */
      readonly neverWorked?: true;
    };

/** How far a tool's effects reach. */
export type AccessLevel = "read" | "operate" | "high-impact" | "dangerous";

export type Permission = "file:read" | "file:write" | "terminal:execute" | "process:manage" | "network:use";

export interface ToolPaths {
  readonly reads: readonly string[];
  readonly writes: readonly string[];
}

export interface ToolProgress {
  readonly message: string;
  /** Bytes or items done, growing. */
  readonly progress: number;
  readonly total?: number;
}

/** What a handler gets beside its arguments. */
export interface ToolContext {
  readonly callId: string;
  readonly environment: BaseEnvironment;
  /** The caller's shell session in this environment; opened on first use. */
  session(): Promise<ShellSession>;
  /** cwd of the caller's session without opening one; the workspace before the first command. */
  cwd(): string;
  readonly abortSignal: AbortSignal;
  /** Milliseconds after which a foreground command should become a background process. Undefined means never. */
  readonly yieldMs: number | undefined;
  /** Tells the caller that the call is alive. Cheap; throttled by the surface. */
  progress(progress: ToolProgress): void;
}

/** What a handler returns: a JSON object for the model. Failures are thrown as `MoorageError`. */
export type ToolOutput = Readonly<Record<string, unknown>>;

export interface Tool<Schema extends z.ZodObject = z.ZodObject> {
  /** Letters, digits, underscore and hyphen, at most 64: what every provider accepts. */
  readonly name: string;
  /** Other names under which models ask for it; they are not listed. */
  readonly aliases?: readonly string[];
  /** Group that is turned on together, such as `files`. */
  readonly toolset: string;
  /** What it does, and its limits of use; at most 2,000 characters. */
  readonly description: string;
  readonly title?: string;
  readonly parameters: Schema;
  /** Shape of the result, for clients that check it and for field selection. */
  readonly output?: z.ZodObject;
  readonly handler: (args: z.output<Schema>, context: ToolContext) => Promise<ToolOutput>;
  /** Whether the tool itself can work, beside its environment's health. @default always */
  readonly availability?: () => Promise<Availability>;
  /** Host variables without which the tool is hidden. */
  readonly requiredEnv?: readonly string[];
  readonly permissions?: readonly Permission[];
  readonly access: AccessLevel;
  /** Whether a call can change files, which may depend on its arguments; decides about checkpoints. */
  readonly mutates: boolean | ((args: z.output<Schema>) => boolean);
  /** Whether the same call twice is the same as once; decides about retries. */
  readonly idempotent: boolean;
  /** `paths`: calls whose `paths` do not overlap in a write may overlap in time. */
  readonly parallel: "safe" | "never" | "paths";
  readonly paths?: (args: z.output<Schema>) => ToolPaths;
  /** The shell command that a call runs, so that stages can judge it. @default the tool runs none */
  readonly command?: (args: z.output<Schema>) => string;
  /** Whether it needs an environment. @default true */
  readonly needsEnvironment?: boolean;
  /** Deadline of one call, milliseconds. @default none: the handler bounds itself */
  readonly timeoutMs?: number;
  /** Bytes and lines of a result that a model gets. @default limits.resultMaxBytes and resultMaxLines */
  readonly resultBudget?: { readonly maxBytes?: number; readonly maxLines?: number };
  /** Changes the description to what is there at the moment; returns it whole. */
  readonly dynamicDescription?: (facts: {
    readonly environments: readonly string[];
    readonly tools: readonly string[];
  }) => string;
}

/** Types a tool without registering it. */
export function defineTool<Schema extends z.ZodObject>(tool: Tool<Schema>): Tool<Schema> {
  return tool;
}

// biome-ignore lint/suspicious/noExplicitAny: handlers are contravariant in their arguments; the pipeline validates before it calls
export type AnyTool = Tool<any>;

export interface RegisterOptions {
  /** Replaces a tool of the same name; the operator must have allowed it when the registry was made. */
  readonly override?: boolean;
}

export interface RegistryOptions {
  /** Which tools may replace one that is there: the operator's word, never a tool's. @default none */
  readonly allowOverride?: (next: AnyTool, present: AnyTool) => boolean;
}

/** A tool with what registering made of its schema. */
export interface RegisteredTool {
  readonly tool: AnyTool;
  /** The tool's parameters, refusing unknown keys unless the tool said otherwise. */
  readonly parameters: z.ZodObject;
  /** JSON Schema draft 7 of what a caller may send. */
  readonly inputSchema: JsonSchema;
  readonly outputSchema: JsonSchema | null;
}

/** A set of tools by name. Every change bumps `generation`, by which lists are cached. */
export class ToolRegistry {
  readonly #tools = new Map<string, RegisteredTool>();
  readonly #aliases = new Map<string, string>();
  readonly #allowOverride: NonNullable<RegistryOptions["allowOverride"]>;
  readonly #listeners = new Set<() => void>();
  #generation = 0;

  constructor(options: RegistryOptions = {}) {
    this.#allowOverride = options.allowOverride ?? (() => false);
  }

  get generation(): number {
    return this.#generation;
  }

  /**
   * Checks the declaration and adds the tool. A tool that is refused changes nothing.
   *
   * @throws {MoorageError} REGISTRATION_INVALID naming the first fault; NAME_TAKEN when the name or an alias is in
   * use, unless `override` is asked for and the operator allows it. A name may be another tool's alias, and then wins
   */
  register<Schema extends z.ZodObject>(tool: Tool<Schema>, options: RegisterOptions = {}): Tool<Schema> {
    const registered = checkTool(tool);
    const present = this.#tools.get(tool.name)?.tool;
    if (present && !(options.override && this.#allowOverride(tool, present))) {
      throw new MoorageError(
        "NAME_TAKEN",
        `Cannot register "${tool.name}": toolset "${present.toolset}" has a tool of that name`,
      );
    }
    for (const alias of tool.aliases ?? []) {
      const owner = this.#aliases.get(alias) ?? tool.name;
      if (owner !== tool.name) {
        throw new MoorageError(
          "NAME_TAKEN",
          `Cannot register "${tool.name}": alias "${alias}" belongs to "${owner}"`,
        );
      }
    }
    this.unregister(tool.name);
    this.#tools.set(tool.name, registered);
    for (const alias of tool.aliases ?? []) this.#aliases.set(alias, tool.name);
    this.#changed();
    return tool;
  }

  /** @returns whether there was such a tool */
  unregister(name: string): boolean {
    const present = this.#tools.get(name);
    if (!present) return false;
    this.#tools.delete(name);
    for (const alias of present.tool.aliases ?? []) this.#aliases.delete(alias);
    this.#changed();
    return true;
  }

  /** Calls back after every change. @returns a function that ends it */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** By its own name. */
  get(name: string): AnyTool | undefined {
    return this.#tools.get(name)?.tool;
  }

  /** By its own name, else by an alias. */
  resolve(name: string): RegisteredTool | undefined {
    return this.#tools.get(name) ?? this.#tools.get(this.#aliases.get(name) ?? "");
  }

  /** In order of name. */
  list(): readonly AnyTool[] {
    return this.entries().map(({ tool }) => tool);
  }

  /** In order of name, with their schemas. */
  entries(): readonly RegisteredTool[] {
    return [...this.#tools.values()].sort((a, b) => (a.tool.name < b.tool.name ? -1 : 1));
  }

  #changed(): void {
    this.#generation += 1;
    for (const listener of this.#listeners) listener();
  }
}

/** The registry into which tool modules register themselves. */
export const defaultRegistry = new ToolRegistry();

/** Registers a tool in the default registry. Discovery looks for this call at module level. */
export function registerTool<Schema extends z.ZodObject>(tool: Tool<Schema>): Tool<Schema> {
  return defaultRegistry.register(tool);
}
