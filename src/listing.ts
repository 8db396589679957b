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

export type JsonSchema = { readonly [key: string]: unknown };

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
  readonly description: string;
  readonly parameters: JsonSchema;
}

/** A tool that a model does not see, and why. */
export interface HiddenTool {
  readonly name: string;
  readonly toolset: string;
  readonly why: "disabled" | "unavailable" | "fault";
  readonly reason: string;
}

export interface ToolListing {
  /** In order of name. */
  readonly visible: readonly VisibleTool[];
  readonly hidden: readonly HiddenTool[];
}
