/**
 * The tools of a runtime as an MCP server. Lists what the runtime lists, in its order; a call goes through the whole
 * pipeline, whether the tool is listed at the moment or not, so that a hidden tool answers with the reason.
 */
import { setTimeout as sleep } from "node:timers/promises";
import {
  type CallToolResult,
  type ListToolsResult,
  type Progress,
  Server,
  type ServerContext,
} from "@modelcontextprotocol/server";
import type { CallResult } from "../call.ts";
import { type ErrorReport, MoorageError } from "../errors.ts";
import { limits } from "../limits.ts";
import type { Moorage } from "../moorage.ts";
import { createInstructions } from "./instructions.ts";
import { createProgressReporter } from "./progress.ts";

/** What this server needs of a runtime. */
type McpRuntime = Pick<Moorage, "tools" | "call" | "start" | "onEvent" | "environment" | "environments">;

export interface McpServerOptions {
  readonly version: string;
  /** Whose shell session calls use. @default the runtime's own default */
  readonly caller?: string;
  /** Told of every listing, after its answer: a client that lists will call. */
  readonly onList?: () => void;
  /** Told what goes wrong beside the protocol: a message that cannot be sent, a broken one that came. */
  readonly onError?: (error: Error) => void;
}

/**
 * Makes a server for one connection. The runtime stays the caller's: closing the server aborts its calls and stops
 * no environment.
 */
export function createMcpServer(runtime: McpRuntime, options: McpServerOptions): Server {
  const server = new Server(
    { name: "moorage", title: "Moorage", version: options.version },
    {
      capabilities: { tools: { listChanged: true } },
      instructions: createInstructions(runtime),
      // Several environments lost at once are one change.
      debouncedNotificationMethods: ["notifications/tools/list_changed"],
    },
  );
  let listed = false;
  server.setRequestHandler("tools/list", async () => {
    listed = true;
    // The listing's schemas are JSON Schema objects, which the SDK types as what it parsed them to.
    const tools = (await runtime.tools("mcp")) as unknown as ListToolsResult["tools"];
    if (options.onList) setImmediate(options.onList);
    return { tools: [...tools] };
  });
  server.setRequestHandler("tools/call", (request, context) =>
    callTool(runtime, request.params.name, request.params.arguments ?? {}, context, options.caller),
  );
  const unlisten = runtime.onEvent((event) => {
    // A client that has not listed has nothing that could have changed.
    if (event.type !== "tools-changed" || !listed) return;
    server.sendToolListChanged().catch((error: unknown) => {
      options.onError?.(error instanceof Error ? error : new Error(String(error)));
    });
  });
  server.onclose = unlisten;
  if (options.onError) server.onerror = options.onError;
  return server;
}

async function callTool(
  runtime: McpRuntime,
  name: string,
  args: Readonly<Record<string, unknown>>,
  context: ServerContext,
  caller: string | undefined,
): Promise<CallToolResult> {
  const { signal: abortSignal, _meta, notify } = context.mcpReq;
  const progressToken = _meta?.progressToken;
  const call = { name, arguments: args, ...(caller !== undefined && { caller }) };
  if (progressToken === undefined) {
    const unready = await stillStarting(runtime, name, args.environment, abortSignal);
    if (unready) return failure(unready.report());
    return toMcpResult(await runtime.call(call, { abortSignal, yieldMs: limits.mcpYieldMs }));
  }
  // A client that asked for progress sees that the call lives, so that it may take its time.
  using reporter = createProgressReporter((message) => {
    const params: Progress & { progressToken: string | number } = { progressToken, ...message };
    return notify({ method: "notifications/progress", params });
  });
  const unlisten = runtime.onEvent((event) => {
    if (event.type !== "environment-progress") return;
    const share = event.fraction === undefined ? "" : ` ${Math.floor(event.fraction * 100)} %`;
    reporter.report(`${event.message}${share}`);
  });
  try {
    const onProgress = ({ message }: { readonly message: string }): void => reporter.report(message);
    return toMcpResult(await runtime.call(call, { abortSignal, onProgress }));
  } finally {
    unlisten();
  }
}

/**
 * Waits until the call's environment is up, but no longer than a client without progress waits: an image may take
 * minutes to come. What makes a call fail, a start or a tool that is hidden, is the call's own to tell.
 */
async function stillStarting(
  runtime: McpRuntime,
  tool: string,
  named: unknown,
  abortSignal: AbortSignal,
): Promise<MoorageError | null> {
  const { visible } = await runtime.tools();
  if (!visible.some((each) => each.name === tool)) return null;
  const name = runtime.environments.find((each) => each === named) ?? runtime.environments[0];
  if (name === undefined) return null;
  let step = "";
  const unlisten = runtime.onEvent((event) => {
    if (event.type === "environment-progress" && event.environment === name) step = `: ${event.message}`;
  });
  const done = new AbortController();
  const limit = AbortSignal.any([abortSignal, done.signal]);
  try {
    const waited = sleep(limits.mcpYieldMs, "waited", { signal: limit }).catch(() => "aborted");
    const settled = runtime.start(name).then(
      () => "settled",
      () => "settled",
    );
    if ((await Promise.race([settled, waited])) !== "waited") return null;
    return new MoorageError("TOOL_UNAVAILABLE", `Environment "${name}" is still starting${step}`, {
      suggestion: "Nothing was run; call again in a while.",
    });
  } finally {
    done.abort();
    unlisten();
  }
}

/** Content as an object for programs and as the same JSON in text for models; a failure is marked as one. */
export function toMcpResult(result: CallResult): CallToolResult {
  if (!result.ok) return failure(result.error);
  return { content: [{ type: "text", text: result.text }], structuredContent: { ...result.content } };
}

function failure(report: ErrorReport): CallToolResult {
  const structuredContent = { error: { ...report } };
  return {
    content: [{ type: "text", text: JSON.stringify(structuredContent) }],
    structuredContent,
    isError: true,
  };
}
