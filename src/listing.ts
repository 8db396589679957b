/**
 * What a model sees: the tools that are on and can work now, with descriptions that fit, in the form of a provider;
 * and what it does not see, and why. Cached until the registry or an availability changes.
 */
import type { AvailabilityCache, Verdict } from "./availability.ts";
import type { JsonSchema } from "./json-schema.ts";
import type { RegisteredTool, ToolRegistry } from "./registry.ts";
import { environmentKey, toolKey } from "./subjects.ts";

export type { JsonSchema } from "./json-schema.ts";

/** A tool in OpenAI's chat form. */
export interface OpenAiTool {
  readonly type: "function";
  readonly function: {
    readonly name: string;
    readonly description: string;
    readonly parameters: JsonSchema;
  };
}

/** A tool in Anthropic's form. */
export interface AnthropicTool {
  readonly name: string;
  readonly description: string;
  readonly input_schema: JsonSchema;
}

/** A tool in MCP's form. */
export interface McpTool {
  readonly name: string;
  readonly title?: string;
  readonly description: string;
  readonly inputSchema: JsonSchema;
  readonly outputSchema?: JsonSchema;
  readonly annotations: {
    readonly readOnlyHint: boolean;
    readonly destructiveHint: boolean;
    readonly idempotentHint: boolean;
    readonly openWorldHint: boolean;
  };
}

export interface ToolFormats {
  readonly openai: OpenAiTool;
  readonly anthropic: AnthropicTool;
  readonly mcp: McpTool;
}

export type ListedTools<Format extends keyof ToolFormats> = readonly ToolFormats[Format][];

/** A tool that a model sees. */
export interface VisibleTool {
  readonly name: string;
  readonly title?: string;
  readonly toolset: string;
  /** Whole and up to date. */
  readonly description: string;
  /** JSON Schema draft 7, with `environment` when there are several. */
  readonly parameters: JsonSchema;
}

/** A tool that a model does not see, and why: turned off, not able to work now, or at fault itself. */
export interface HiddenTool {
  readonly name: string;
  readonly toolset: string;
  readonly why: "disabled" | "unavailable" | "fault";
  readonly reason: string;
}

export interface ToolListing {
  /** In order of name. */
  readonly visible: readonly VisibleTool[];
  /** In order of name. */
  readonly hidden: readonly HiddenTool[];
}

export interface ListingParts {
  readonly registry: ToolRegistry;
  readonly availability: AvailabilityCache;
  /** Names; the first one is the default. */
  readonly environments: readonly string[];
  readonly isEnabled: (toolset: string) => boolean;
}

interface Cached {
  readonly generation: number;
  readonly verdicts: ReadonlyMap<string, Verdict>;
  readonly listing: ToolListing;
  readonly entries: ReadonlyMap<string, RegisteredTool>;
  readonly formatted: { -readonly [Format in keyof ToolFormats]?: ListedTools<Format> };
}

/** Lists tools, from cache while nothing changed. */
export class Listings {
  readonly #parts: ListingParts;
  #cached: Cached | null = null;
  #keys: { readonly generation: number; readonly keys: readonly string[] } | null = null;

  constructor(parts: ListingParts) {
    this.#parts = parts;
  }

  /** Visible and hidden tools now; the same object as before while nothing changed. */
  async list(): Promise<ToolListing> {
    return (await this.#current()).listing;
  }

  /** The visible tools in the form of a provider; the same array as before while nothing changed. */
  async format<Format extends keyof ToolFormats>(format: Format): Promise<ListedTools<Format>> {
    const { listing, entries, formatted } = await this.#current();
    const present = formatted[format];
    if (present) return present;
    const write = FORMATS[format];
    const tools = listing.visible.flatMap((visible) => {
      const entry = entries.get(visible.name);
      return entry ? [write(visible, entry)] : [];
    });
    // `tools` was written for `format`; the mapped type cannot say so of a generic key.
    (formatted as Record<Format, ListedTools<Format>>)[format] = tools;
    return tools;
  }

  async #current(): Promise<Cached> {
    const { availability, registry } = this.#parts;
    const keys = this.#watchedKeys();
    const verdicts = availability.peek(keys) ?? (await availability.snapshot(keys));
    const cached = this.#cached;
    if (cached?.generation === registry.generation && sameVerdicts(cached.verdicts, verdicts)) return cached;
    this.#cached = this.#build(verdicts);
    return this.#cached;
  }

  #watchedKeys(): readonly string[] {
    const { registry, environments } = this.#parts;
    if (this.#keys?.generation !== registry.generation) {
      const own = registry.list().filter(hasCondition);
      const keys = [...environments.map(environmentKey), ...own.map(({ name }) => toolKey(name))];
      this.#keys = { generation: registry.generation, keys };
    }
    return this.#keys.keys;
  }

  #build(verdicts: ReadonlyMap<string, Verdict>): Cached {
    const { registry, environments, isEnabled } = this.#parts;
    const working = environments.filter((name) => verdicts.get(environmentKey(name))?.available === true);
    const hidden: HiddenTool[] = [];
    const shown: RegisteredTool[] = [];
    for (const entry of registry.entries()) {
      const { name, toolset } = entry.tool;
      const obstacle = isEnabled(toolset)
        ? this.#obstacle(entry, verdicts, working)
        : { why: "disabled" as const, reason: `Toolset "${toolset}" is off` };
      if (obstacle) hidden.push({ name, toolset, ...obstacle });
      else shown.push(entry);
    }
    const facts = { environments: working, tools: shown.map(({ tool }) => tool.name) };
    const visible: VisibleTool[] = [];
    for (const { tool, inputSchema } of shown) {
      const description = describe(tool, facts);
      if (typeof description !== "string") {
        hidden.push({ name: tool.name, toolset: tool.toolset, why: "fault", reason: description.fault });
        continue;
      }
      const several = environments.length > 1 && tool.needsEnvironment !== false;
      visible.push({
        name: tool.name,
        ...(tool.title === undefined ? {} : { title: tool.title }),
        toolset: tool.toolset,
        description,
        parameters: several ? withEnvironment(inputSchema, working, environments[0]) : inputSchema,
      });
    }
    hidden.sort((a, b) => (a.name < b.name ? -1 : 1));
    return {
      generation: registry.generation,
      verdicts,
      listing: { visible, hidden },
      entries: new Map(shown.map((entry) => [entry.tool.name, entry])),
      formatted: {},
    };
  }

  /** Why a tool cannot work now; null when it can. */
  #obstacle(
    { tool }: RegisteredTool,
    verdicts: ReadonlyMap<string, Verdict>,
    working: readonly string[],
  ): Pick<HiddenTool, "why" | "reason"> | null {
    const own = verdicts.get(toolKey(tool.name));
    if (own && own.available !== true) return toObstacle(own);
    if (tool.needsEnvironment === false || working.length > 0) return null;
    const { environments } = this.#parts;
    const obstacles = environments.flatMap((name) => {
      const verdict = verdicts.get(environmentKey(name));
      return verdict && verdict.available !== true ? [{ name, ...toObstacle(verdict) }] : [];
    });
    const reasons = obstacles.map(({ name, reason }) =>
      obstacles.length > 1 ? `${name}: ${reason}` : reason,
    );
    return {
      why: obstacles.some(({ why }) => why === "fault") ? "fault" : "unavailable",
      reason: reasons.join("; ") || "There is no environment",
    };
  }
}

const FORMATS: {
  readonly [Format in keyof ToolFormats]: (
    visible: VisibleTool,
    entry: RegisteredTool,
  ) => ToolFormats[Format];
} = {
  openai: ({ name, description, parameters }) => ({
    type: "function",
    function: { name, description, parameters },
  }),
  anthropic: ({ name, description, parameters }) => ({ name, description, input_schema: parameters }),
  mcp: ({ name, title, description, parameters }, { tool, outputSchema }) => ({
    name,
    ...(title === undefined ? {} : { title }),
    description,
    inputSchema: parameters,
    ...(outputSchema === null ? {} : { outputSchema }),
    annotations: {
      readOnlyHint: tool.access === "read",
      destructiveHint: tool.mutates !== false || tool.access === "dangerous",
      idempotentHint: tool.idempotent,
      openWorldHint: tool.permissions?.some((permission: string) => OPEN_WORLD.has(permission)) ?? false,
    },
  }),
};

/** Permissions with which a call can reach beyond the environment. */
const OPEN_WORLD = new Set(["terminal:execute", "network:use"]);

function hasCondition(tool: RegisteredTool["tool"]): boolean {
  return Boolean(tool.availability ?? tool.requiredEnv);
}

function describe(
  tool: RegisteredTool["tool"],
  facts: { readonly environments: readonly string[]; readonly tools: readonly string[] },
): string | { readonly fault: string } {
  if (!tool.dynamicDescription) return tool.description;
  try {
    return tool.dynamicDescription(facts);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { fault: `Its description cannot be made: ${reason}` };
  }
}

function withEnvironment(
  schema: JsonSchema,
  working: readonly string[],
  first: string | undefined,
): JsonSchema {
  const properties = typeof schema.properties === "object" ? schema.properties : {};
  const environment = {
    type: "string",
    enum: working,
    description: `Environment to use. Without it: ${first}.`,
  };
  return { ...schema, properties: { ...properties, environment } };
}

function toObstacle(verdict: Exclude<Verdict, { available: true }>): Pick<HiddenTool, "why" | "reason"> {
  return verdict.available === null
    ? { why: "fault", reason: verdict.fault.message }
    : { why: "unavailable", reason: verdict.reason };
}

/** Verdicts are kept as objects by the cache, so the same object means the same answer. */
function sameVerdicts(a: ReadonlyMap<string, Verdict>, b: ReadonlyMap<string, Verdict>): boolean {
  if (a.size !== b.size) return false;
  for (const [key, verdict] of b) {
    const other = a.get(key);
    if (other !== verdict && !(other?.available === true && verdict.available === true)) return false;
  }
  return true;
}
