/** `moor batch`: the tool calls of a chat model in, its `tool` messages out. */
import { fromOpenAi, toOpenAi } from "../call.ts";
import { limits } from "../limits.ts";
import { EXIT } from "./exit.ts";
import { readText } from "./input.ts";
import { printJson } from "./output.ts";
import type { ToolOptions } from "./program.ts";
import { withMoorage } from "./runtime.ts";
import { parseCalls } from "./tool-calls.ts";

export async function batch(file: string, options: ToolOptions): Promise<number> {
  return withMoorage(options, async ({ moorage, lifetime: { abortSignal } }) => {
    const calls = parseCalls(await readText(file, limits.mcpMessageMaxBytes, abortSignal));
    const results = await moorage.batch(calls.map(fromOpenAi), { abortSignal });
    const messages = results.map(toOpenAi);
    if (options.json) printJson(messages);
    else for (const message of messages) printJson(message);
    return results.every(({ ok }) => ok) ? EXIT.ok : EXIT.failed;
  });
}
