/** Environments in remote sandboxes, Vercel's own or those of a server that speaks the same API. */
import type { BaseEnvironment } from "../base.ts";
import {
  createShellEnvironment,
  randomEnvironmentId,
  type ShellEnvironmentOptions,
} from "../shell/environment.ts";
import { VercelBackend } from "./backend.ts";
import type { VercelOptions } from "./settings.ts";

/**
 * An environment in a sandbox behind the Vercel Sandbox API. Each command is one request, never sent twice; one whose
 * answer breaks off is EXECUTION_UNKNOWN. Output travels as text: bytes that are no UTF-8 arrive as U+FFFD, except in
 * files. No interactive login is ever begun.
 *
 * @throws {MoorageError} INVALID_SPEC when an option is wrong
 */
export function createVercelEnvironment(options: VercelOptions & ShellEnvironmentOptions): BaseEnvironment {
  const { id = randomEnvironmentId(), keep = false, stateDir, workspace } = options;
  const backend = new VercelBackend(options, { id, keep, stateDir }, workspace);
  return createShellEnvironment(backend, { ...options, id });
}

export { checkVercel, listVercel, reapVercel } from "./reap.ts";
export type { VercelCredentials, VercelOptions } from "./settings.ts";
