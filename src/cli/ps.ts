/** `moor ps`: what lives now. */

import { type RecordedEnvironment, upkeep } from "../../environments/upkeep.ts";
import { stateDir } from "../paths.ts";
import { EXIT } from "./exit.ts";
import { printJson, printLine, printText } from "./output.ts";
import type { JsonOption } from "./program.ts";

export async function ps({ json }: JsonOption): Promise<number> {
  const environments: RecordedEnvironment[] = [];
  for (const { backend, list } of upkeep({ stateDir: stateDir() })) {
    try {
      environments.push(...(await list()));
    } catch (error) {
      // A machine without an engine has no containers either.
      printLine(`moor: ${backend} was not asked: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  if (json) printJson({ environments });
  else print(environments);
  return EXIT.ok;
}

const OWNER = { self: "live", live: "live", dead: "orphan", unknown: "elsewhere" } as const;

function print(environments: readonly RecordedEnvironment[]): void {
  if (environments.length === 0) printLine("moor: Nothing lives");
  for (const { id, backend, description, createdAt, owner, keep, processes } of environments) {
    const state = keep && owner === "dead" ? "kept" : OWNER[owner];
    printText(`${id}  ${backend.padEnd(8)} ${state.padEnd(9)} ${createdAt}  ${description}`);
    for (const { pid, command } of processes) printText(`  ${String(pid).padStart(8)}  ${command}`);
  }
  if (environments.some(({ owner, keep }) => owner === "dead" && !keep)) {
    printLine("moor: `moor reap` removes orphans");
  }
}
