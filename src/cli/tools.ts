/** `moor tools`: what a model sees, and what it does not see and why. */
import type { ToolFormats } from "../listing.ts";
import { EXIT } from "./exit.ts";
import type { ToolOptions } from "./options.ts";
import { printJson, printLine, printText } from "./output.ts";
import { withMoorage } from "./runtime.ts";

export interface ToolsOptions extends ToolOptions {
  readonly format?: keyof ToolFormats;
}

export async function listTools(options: ToolsOptions): Promise<number> {
  return withMoorage(options, async ({ moorage, start }) => {
    const { format, json } = options;
    // Only a start shows whether an environment can be had; the listing then says why not.
    await Promise.allSettled(moorage.environments.map(start));
    const { visible, hidden } = await moorage.tools();
    const tools = format === undefined ? visible : await moorage.tools(format);
    if (json) {
      printJson({ tools, hidden });
      return EXIT.ok;
    }
    if (format !== undefined) printText(JSON.stringify(tools, null, 2));
    else for (const { name, description } of visible) printText(`${name.padEnd(14)} ${summary(description)}`);
    for (const [reason, tools] of Map.groupBy(hidden, (each) => each.reason)) {
      const names = tools.map(({ name }) => name).join(", ");
      printLine(`moor: ${names} ${tools.length === 1 ? "is" : "are"} hidden: ${reason}`);
    }
    return EXIT.ok;
  });
}

function summary(description: string): string {
  const [line = ""] = description.split("\n");
  return /^(.*?[.!?])(\s|$)/.exec(line)?.[1] ?? line;
}
