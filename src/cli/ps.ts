/** `moor ps`: what lives now. */

import { type RecordedEnvironment, upkeep } from "../../environments/upkeep.ts";
import { stateDir } from "../paths.ts";
import { EXIT } from "./exit.ts";
import { printJson, printLine, printText } from "./output.ts";
import type { JsonOption } from "./program.ts";

export async function ps({ json }: JsonOption): Promise<number> {
  const environments: RecordedEnvironment[] = [];
  let allAsked = true;
  for (const { backend, list } of upkeep({ stateDir: stateDir() })) {
    try {
      environments.push(...(await list()));
    } catch (error) {
      allAsked = false;
      printLine(`moor: ${backend} was not asked: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  if (json) printJson({ environments });
  else print(environments, allAsked);
  return EXIT.ok;
}

const OWNER = { self: "live", live: "live", dead: "orphan", unknown: "elsewhere" } as const;

function print(environments: readonly RecordedEnvironment[], allAsked: boolean): void {
  if (environments.length === 0) {
    printLine(allAsked ? "moor: Nothing lives" : "moor: Nothing was found where it could be looked for");
  }
  for (const { id, backend, description, createdAt, owner, keep, processes } of environments) {
    const state = keep && owner === "dead" ? "kept" : OWNER[owner];
    printText(`${id}  ${backend.padEnd(8)} ${state.padEnd(9)} ${createdAt}  ${description}`);
    for (const { pid, command } of processes) printText(`  ${String(pid).padStart(8)}  ${command}`);
  }
  if (environments.some(({ owner, keep }) => owner === "dead" && !keep)) {
    printLine("moor: `moor reap` removes orphans");
  }
}
