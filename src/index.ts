/** What the package offers. */

export type * from "../environments/base.ts";
export { BaseEnvironment } from "../environments/base.ts";
export type { EnvironmentSpec } from "../environments/spec.ts";
export type { SyncOptions, SyncReport } from "../environments/sync/mirror.ts";
export type { FolderWatch, WatchOptions } from "../environments/sync/watch.ts";
export {
  type CallOptions,
  type CallResult,
  fromOpenAi,
  type OpenAiToolCall,
  type OpenAiToolMessage,
  type ToolCall,
  toOpenAi,
} from "./call.ts";
export type { CheckpointSettings, RestoreOptions, RestoreReport } from "./checkpoints/checkpoints.ts";
export type { CheckpointInfo } from "./checkpoints/store.ts";
export { type Config, configPath, readConfig } from "./config.ts";
export { type ErrorCode, type ErrorKind, type ErrorReport, isMoorageError, MoorageError } from "./errors.ts";
export type { EventListener, MoorageEvent } from "./events.ts";
export { limits } from "./limits.ts";
export type { HiddenTool, ToolFormats, ToolListing, VisibleTool } from "./listing.ts";
export type { CallInProgress, Middleware, Next } from "./middleware.ts";
export { createMoorage, type Moorage, type MoorageOptions, type SyncCallOptions } from "./moorage.ts";
export {
  type Availability,
  defineTool,
  registerTool,
  type Tool,
  type ToolContext,
  type ToolOutput,
  ToolRegistry,
} from "./registry.ts";
export { parseSpec } from "./spec.ts";
