/** `moor call`: one tool call through the whole pipeline. */
import { limits } from "../limits.ts";
import { EXIT } from "./exit.ts";
import { printReport } from "./failure.ts";
import { readText } from "./input.ts";
import type { ToolOptions } from "./options.ts";
import { printJson, printLine, printText } from "./output.ts";
import { withMoorage } from "./runtime.ts";

/** Fields of a result that tell of something still running. */
const RUNS_ON = ["session_id", "left_running"] as const;

/** Arguments that are no JSON are the pipeline's to judge: its answer is the one that a model would get. */
export async function call(tool: string, args: string, options: ToolOptions): Promise<number> {
  return withMoorage(options, async ({ moorage, lifetime: { abortSignal } }) => {
    const text = args === "-" ? await readText("-", limits.mcpMessageMaxBytes, abortSignal) : args;
    const result = await moorage.call({ name: tool, arguments: text }, { abortSignal });
    if (abortSignal.aborted) return EXIT.failed;
    const value = result.ok ? result.content : { error: result.error };
    if (options.json) printJson(value);
    else printText(JSON.stringify(value, null, 2));
    if (result.ok) {
      const kept = options.environment?.some((spec) => /[?&]keep(?:=true)?(?:&|$)/.test(spec)) ?? false;
      if (!kept && RUNS_ON.some((key) => key in result.content)) {
        printLine(
          "moor: What this call started ends with this command, unless its environment is kept (?keep)",
        );
      }
      return EXIT.ok;
    }
    printReport(result.error);
    return EXIT.failed;
  });
}
