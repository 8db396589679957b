import { z } from "zod";
import type { AnyTool } from "../../src/registry.ts";

/** A tool that does nothing but what a test says. */
export function noop(changes: Partial<AnyTool> = {}): AnyTool {
  return {
    name: "noop",
    toolset: "test",
    description: "Does nothing.",
    parameters: z.object({}),
    handler: async () => ({ done: true }),
    access: "read",
    mutates: false,
    idempotent: true,
    parallel: "safe",
    needsEnvironment: false,
    ...changes,
  };
}
