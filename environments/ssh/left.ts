/** Ends what commands on a lost connection left running: the server does not, when there was no terminal. */
import { randomBytes } from "node:crypto";
import { limits } from "../../src/limits.ts";
import type { LeftProcess } from "../base.ts";
import { endTree, findProcesses } from "../shell/processes/process-tree.ts";
import { ResidentWorker } from "../shell/resident.ts";
import type { ShellStream } from "../shell/stream.ts";
import { ResidentSystemShell } from "../shell/system.ts";

export interface EndedLeft {
  readonly ended: readonly LeftProcess[];
  readonly survivors: readonly LeftProcess[];
}

/** @throws {MoorageError} when no shell can be had for it */
export async function endLeft(
  markers: readonly string[],
  open: (argv: readonly string[], env: Readonly<Record<string, string>>) => Promise<ShellStream>,
): Promise<EndedLeft> {
  const worker = await ResidentWorker.open({
    id: `end.${randomBytes(8).toString("hex")}`,
    shell: "auto",
    library: "",
    login: false,
    open,
  });
  try {
    const system = new ResidentSystemShell({
      acquire: async () => worker,
      release: () => {},
      discard: () => worker.close(),
      endCall: async () => {},
      facts: () => worker.facts,
      environmentId: "end",
    });
    const ended = await findProcesses(system, { marker: markers });
    const survivors =
      ended.length === 0 ? [] : await endTree(system, { marker: markers, graceMs: limits.killGraceMs });
    return { ended, survivors };
  } finally {
    await worker.close();
  }
}
