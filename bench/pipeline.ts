/** What the pipeline itself costs: a call of a tool that does nothing, and a listing from cache. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { createMoorage, type Moorage } from "../src/moorage.ts";
import { type AnyTool, ToolRegistry } from "../src/registry.ts";
import { amount, type Figure, type Measured, median } from "./measure.ts";

const ROUNDS = 50;
const CALLS_PER_ROUND = 1_000;

/** A tool with parameters of the usual kinds, which does nothing. */
function idle(name: string): AnyTool {
  return {
    name,
    toolset: "bench",
    description: "Does nothing.",
    parameters: z.object({
      path: z.string(),
      limit: z.int().min(1).default(10),
      deep: z.boolean().optional(),
      tags: z.array(z.string()).optional(),
    }),
    handler: async () => ({ done: true }),
    access: "read",
    mutates: false,
    idempotent: true,
    parallel: "safe",
  };
}

async function withRuntime(
  tools: number,
  measure: (moorage: Moorage) => Promise<Measured>,
): Promise<Measured> {
  const registry = new ToolRegistry();
  for (let n = 0; n < tools; n += 1) registry.register(idle(`idle-${n}`));
  const stateDir = await mkdtemp(join(tmpdir(), "moorage-bench-"));
  try {
    await using moorage = await createMoorage({ environments: "local", stateDir, registry });
    return await measure(moorage);
  } finally {
    await rm(stateDir, { recursive: true });
  }
}

/** Microseconds of one run, as the median over rounds. */
async function microseconds(run: () => Promise<unknown>): Promise<Measured> {
  const rounds: number[] = [];
  for (let round = -5; round < ROUNDS; round += 1) {
    const startedAt = performance.now();
    for (let call = 0; call < CALLS_PER_ROUND; call += 1) await run();
    if (round >= 0) rounds.push(((performance.now() - startedAt) / CALLS_PER_ROUND) * 1_000);
  }
  return amount(median(rounds), ROUNDS * CALLS_PER_ROUND);
}

export const figures: readonly Figure[] = [
  {
    name: "pipeline-noop",
    goal: 100,
    unit: "µs",
    measure: () =>
      withRuntime(1, (moorage) =>
        microseconds(() =>
          moorage.call({ name: "idle-0", arguments: '{"path":"/a/b","limit":"20","tags":["x","y"]}' }),
        ),
      ),
  },
  {
    name: "list-tools",
    goal: 50,
    unit: "µs",
    measure: () => withRuntime(50, (moorage) => microseconds(() => moorage.tools("openai"))),
  },
];
