/** What is probed for availability, and under which key. */
import type { BaseEnvironment } from "../environments/base.ts";
import type { AvailabilityCache } from "./availability.ts";
import type { Clock } from "./clock.ts";
import { limits } from "./limits.ts";
import type { Availability, ToolRegistry } from "./registry.ts";

/** Key of an environment's health. */
export function environmentKey(name: string): string {
  return `environment:${name}`;
}

/** Key of a tool's own availability, beside its environment's. */
export function toolKey(name: string): string {
  return `tool:${name}`;
}

/**
 * Probes an environment by its health. One whose start failed is started again from time to time, behind the probe:
 * while its tools are hidden no call would.
 */
export function defineEnvironment(
  cache: AvailabilityCache,
  name: string,
  environment: BaseEnvironment,
  clock: Clock,
): void {
  let triedAt: number | null = null;
  cache.define(environmentKey(name), async () => {
    const health = await environment.health();
    if (health.healthy) {
      triedAt = null;
      return { available: true };
    }
    const { reason, suggestion, neverStarted } = health;
    if (neverStarted) {
      triedAt ??= clock.now();
      if (clock.now() - triedAt >= limits.startRetryMs) {
        triedAt = clock.now();
        // The next probe tells what came of it.
        environment.start().catch(() => {});
      }
    }
    return {
      available: false,
      reason,
      ...(suggestion !== undefined && { suggestion }),
      ...(neverStarted && { neverWorked: true }),
    };
  });
}

/** Probes the tools that have a condition of their own. Asks the registry each time, so a replaced tool is seen. */
export function defineTools(
  cache: AvailabilityCache,
  registry: ToolRegistry,
  hostEnv: Readonly<Record<string, string | undefined>>,
): void {
  for (const { name, availability, requiredEnv } of registry.list()) {
    if (!availability && !requiredEnv) continue;
    cache.define(toolKey(name), async (): Promise<Availability> => {
      const tool = registry.get(name);
      const missing = tool?.requiredEnv?.filter((variable: string) => !hostEnv[variable]) ?? [];
      if (missing.length > 0) return { available: false, reason: `${missing.join(", ")} is not set` };
      return tool?.availability?.() ?? { available: true };
    });
  }
}
