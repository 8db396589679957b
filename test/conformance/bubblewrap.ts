/** The suite in sandboxes on this machine. */
import { mkdtemp, readdir } from "node:fs/promises";
import { join } from "node:path";
import { createBubblewrapEnvironment } from "../../environments/local/bubblewrap/index.ts";
import { probeBubblewrap } from "../../environments/local/bubblewrap/probe.ts";
import { type Conformance, describeEnvironment } from "./index.ts";
import { leftovers } from "./leftovers.ts";
import { temporaryRoot } from "./root.ts";

const health = await probeBubblewrap();

/** Folders that hold a place in the workspace for what is protected. */
async function heldPlaces(workspace: string): Promise<string[]> {
  const names = (await readdir(workspace)).filter((name) => name.startsWith("."));
  return names.map((name) => `held ${name}`);
}

export interface BubblewrapPlace {
  readonly name: string;
  readonly shell: "bash" | "sh";
  readonly egress: "open" | { readonly allow: readonly string[] };
  /** @default all */
  readonly areas?: Conformance["areas"];
}

/** Commands of bash, with the host's network. */
export const PLAIN: BubblewrapPlace = { name: "bubblewrap bash, egress open", shell: "bash", egress: "open" };
/** Commands of a POSIX shell, behind a policy for the network. */
export const BEHIND_A_POLICY: BubblewrapPlace = {
  name: "bubblewrap sh, egress allow-list",
  shell: "sh",
  egress: { allow: ["allowed.test"] },
};

/** Registers the suite, or a part of it, for sandboxes of one kind. */
export function describeBubblewrap({ name, shell, egress, areas }: BubblewrapPlace): void {
  const root = temporaryRoot();
  const made = new Map<string, { mark: string; stateDir: string; workspace: string }>();
  describeEnvironment({
    name,
    create: async () => {
      const workspace = await mkdtemp(join(root, "workspace-"));
      const stateDir = await mkdtemp(join(root, "state-"));
      const environment = createBubblewrapEnvironment({
        shell,
        egress,
        workspace,
        stateDir,
        env: { CONFORMANCE_MARK: stateDir },
      });
      made.set(environment.id, { mark: `CONFORMANCE_MARK=${stateDir}`, stateDir, workspace });
      return environment;
    },
    ...(!health.healthy && { unavailable: health.reason }),
    gaps: {
      "writeFile() takes a mode for a new file and keeps that of an old one (FT-23)":
        "without capabilities nobody writes a file of mode 0400, root neither",
    },
    ...(areas && { areas }),
    facts: {
      leftovers: async ({ id }) => {
        const facts = made.get(id);
        if (!facts) throw new Error(`No environment ${id} was made here`);
        return [...(await leftovers(facts.mark, facts.stateDir)), ...(await heldPlaces(facts.workspace))];
      },
    },
  });
}
