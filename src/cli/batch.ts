/** `moor batch`: the tool calls of a chat model in, its `tool` messages out. */
import { fromOpenAi, type OpenAiToolMessage, toOpenAi } from "../call.ts";
import { limits } from "../limits.ts";
import { EXIT } from "./exit.ts";
import { readText } from "./input.ts";
import type { ToolOptions } from "./options.ts";
import { printJson, printLine } from "./output.ts";
import { withMoorage } from "./runtime.ts";
import { parseCalls } from "./tool-calls.ts";

export async function batch(file: string, options: ToolOptions): Promise<number> {
  return withMoorage(options, async ({ moorage, lifetime: { abortSignal } }) => {
    const calls = parseCalls(await readText(file, limits.mcpMessageMaxBytes, abortSignal));
    const messages: OpenAiToolMessage[] = [];
    let allOk = true;
    for (const call of calls) {
      if ("refusal" in call) {
        const content = JSON.stringify({ error: call.refusal.report() });
        messages.push({ role: "tool", tool_call_id: call.id, content });
        allOk = false;
        continue;
      }
      const result = await moorage.call(fromOpenAi(call), { abortSignal });
      messages.push(toOpenAi(result));
      allOk &&= result.ok;
    }
    if (calls.length === 0) printLine("moor: There are no tool calls in what was given");
    if (options.json) printJson(messages);
    else for (const message of messages) printJson(message);
    return allOk ? EXIT.ok : EXIT.failed;
  });
}
