/** `moor ps`: what lives now. */

import {
  type EgressRecord,
  egressOfEnvironments,
  type RecordedEnvironment,
  upkeep,
} from "../../environments/upkeep.ts";
import { stateDir } from "../paths.ts";
import { EXIT } from "./exit.ts";
import type { JsonOption } from "./options.ts";
import { printJson, printLine, printText, visible } from "./output.ts";

/** Decisions that a list for people shows. */
const DECISIONS_SHOWN = 5;

type Listed = RecordedEnvironment & { readonly egress?: EgressRecord };

export async function ps({ json }: JsonOption): Promise<number> {
  const found: RecordedEnvironment[] = [];
  let allAsked = true;
  for (const { backend, list } of upkeep({ stateDir: stateDir() })) {
    try {
      found.push(...(await list()));
    } catch (error) {
      allAsked = false;
      printLine(`moor: ${backend} was not asked: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  const decided = await egressOfEnvironments({ stateDir: stateDir() });
  const environments = found.map((environment): Listed => {
    const egress = decided.get(environment.id);
    return egress ? { ...environment, egress } : environment;
  });
  if (json) printJson({ environments });
  else print(environments, allAsked);
  return EXIT.ok;
}

const OWNER = { self: "live", live: "live", dead: "orphan", unknown: "elsewhere" } as const;

function print(environments: readonly Listed[], allAsked: boolean): void {
  if (environments.length === 0) {
    printLine(allAsked ? "moor: Nothing lives" : "moor: Nothing was found where it could be looked for");
  }
  for (const each of environments) {
    const { id, backend, description, workspace, createdAt, owner, keep, processes, egress } = each;
    const state = keep && owner === "dead" ? "kept" : OWNER[owner];
    const where = workspace === null ? "" : `, ${visible(workspace)}`;
    printText(`${id}  ${backend.padEnd(8)} ${state.padEnd(9)} ${createdAt}  ${description}${where}`);
    for (const { pid, command } of processes) printText(`  ${String(pid).padStart(8)}  ${visible(command)}`);
    if (egress) printEgress(egress);
  }
  if (environments.some(({ owner, keep }) => owner === "dead" && !keep)) {
    printLine("moor: `moor reap` removes orphans");
  }
}

function printEgress({ policy, allowed, denied, decisions }: EgressRecord): void {
  printText(`    egress  ${policy}: ${allowed} allowed, ${denied} denied`);
  for (const { at, host, port, allowed: isAllowed, rule } of decisions.slice(-DECISIONS_SHOWN)) {
    // The host may be anything that a hostile client sent.
    const target = JSON.stringify(`${host}:${port}`);
    printText(`    ${at}  ${isAllowed ? "allowed" : "denied "}  ${target}  ${rule}`);
  }
}
