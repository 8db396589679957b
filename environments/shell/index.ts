/** What a backend of one's own is made of: `moorage/backend`. docs/write-a-backend.md shows one. */

export type {
  PlaceBackend,
  Recovery,
  ScriptBackend,
  ScriptRequest,
  ShellBackend,
} from "./backend.ts";
export { createShellEnvironment, type ShellEnvironmentOptions } from "./environment.ts";
export type { ShellStream, StreamEnd, StreamRequest } from "./stream.ts";
