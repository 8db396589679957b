/** The suite on this machine, by one of its shells: a file for each, so that they run side by side. */
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { createLocalEnvironment } from "../../environments/local/index.ts";
import { type Area, describeEnvironment } from "./index.ts";
import { leftovers } from "./leftovers.ts";
import { temporaryRoot } from "./root.ts";

/** Registers the suite, or a part of it, for one shell of this machine. */
export function describeLocal(shell: "bash" | "sh", areas?: readonly Area[]): void {
  const root = temporaryRoot();
  const marks = new Map<string, { mark: string; stateDir: string }>();
  describeEnvironment({
    name: `local ${shell}`,
    ...(areas && { areas }),
    create: async () => {
      const workspace = await mkdtemp(join(root, "workspace-"));
      const stateDir = await mkdtemp(join(root, "state-"));
      const mark = `CONFORMANCE_MARK=${stateDir}`;
      const environment = createLocalEnvironment({
        shell,
        workspace,
        stateDir,
        env: { CONFORMANCE_MARK: stateDir },
      });
      marks.set(environment.id, { mark, stateDir });
      return environment;
    },
    facts: {
      leftovers: async ({ id }) => {
        const made = marks.get(id);
        if (!made) throw new Error(`No environment ${id} was made here`);
        return leftovers(made.mark, made.stateDir);
      },
    },
  });
}
