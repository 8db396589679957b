/** What tests that need a Docker engine ask for. */
import { describe, inject } from "vitest";

/** Nothing but BusyBox: no bash, no GNU tools. */
export const BUSYBOX_IMAGE = "moorage/busybox:latest";
/** bash, git, ripgrep, python3, node and the usual tools. */
export const WORKBENCH_IMAGE = "moorage/workbench:latest";
/** The workbench with OpenSSH, dropbear and further login shells. */
export const SSHD_IMAGE = "moorage/sshd:latest";

/** Whether the tests have an engine with the images above. */
export type EngineAccess =
  | { readonly available: true }
  | { readonly available: false; readonly reason: string };

declare module "vitest" {
  interface ProvidedContext {
    engine: EngineAccess;
  }
}

/** Tells whether there is an engine, and prints the reason when there is none. */
export function requireEngine(): EngineAccess {
  const engine = inject("engine");
  if (!engine.available) console.warn(`docker: not tested: ${engine.reason}`);
  return engine;
}

/** A group of tests that runs where there is an engine; elsewhere it is skipped with the reason in its title. */
export function describeWithEngine(title: string, body: () => void): void {
  const engine = requireEngine();
  if (engine.available) describe(title, body);
  else describe.skip(`${title} (not tested: ${engine.reason})`, body);
}
