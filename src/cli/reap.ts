/** `moor reap`: removes what dead owners left behind. */

import { type Removal, upkeep } from "../../environments/upkeep.ts";
import { stateDir } from "../paths.ts";
import { EXIT } from "./exit.ts";
import type { JsonOption } from "./options.ts";
import { printJson, printLine, printText } from "./output.ts";

/** @param ids of environments that were to be kept and are to go too */
export async function reap(ids: readonly string[], { json }: JsonOption): Promise<number> {
  const removals: Removal[] = [];
  let allAsked = true;
  for (const each of upkeep({ stateDir: stateDir() })) {
    try {
      removals.push(...(await each.reap(ids)));
    } catch (error) {
      allAsked = false;
      printLine(
        `moor: ${each.backend} was not asked: ${error instanceof Error ? error.message : String(error)}`,
      );
    }
  }
  const found = new Set(removals.map(({ id }) => id));
  const missed = ids.filter((id) => !found.has(id));
  const left = removals.flatMap((removal) => removal.left);
  if (json) printJson({ reaped: removals });
  else print(removals, allAsked);
  for (const what of left) printLine(`moor: CLEANUP_FAILED: Cannot remove ${what}`);
  for (const id of missed) {
    printLine(`moor: Not removed: "${id}" is no environment without a living owner; \`moor ps\` lists them`);
  }
  return left.length === 0 && missed.length === 0 ? EXIT.ok : EXIT.failed;
}

function print(removals: readonly Removal[], allAsked: boolean): void {
  if (removals.length === 0) {
    printLine(
      allAsked ? "moor: Nothing was left behind" : "moor: Nothing was found where it could be looked for",
    );
  }
  for (const { id, backend, removed } of removals) {
    printText(`${id}  ${backend}  ${removed.length === 0 ? "its record" : removed.join(", ")}`);
  }
}
