/** The suite in sandboxes on this machine. */
import { mkdtemp, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { createBubblewrapEnvironment } from "../../environments/local/bubblewrap/index.ts";
import { probeBubblewrap } from "../../environments/local/bubblewrap/probe.ts";
import { type Conformance, describeEnvironment } from "./index.ts";
import { temporaryRoot } from "./root.ts";

const health = await probeBubblewrap();

/** Processes that carry the environment's mark, and files that the sandbox left. */
async function leftovers(mark: string, stateDir: string, workspace: string): Promise<string[]> {
  const processes = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const marked = await Promise.all(
    processes.map(async (pid) => {
      const environ = await readFile(`/proc/${pid}/environ`, "utf8").catch(() => "gone, or not ours");
      return environ.includes(mark) ? [`process ${pid}`] : [];
    }),
  );
  const files = await readdir(stateDir, { recursive: true, withFileTypes: true });
  const records = files.filter(
    (file) => !file.isDirectory() && file.parentPath !== join(stateDir, "outputs"),
  );
  const held = (await readdir(workspace)).filter((name) => name.startsWith("."));
  return [
    ...marked.flat(),
    ...records.map(({ name }) => `file ${name}`),
    ...held.map((name) => `held ${name}`),
  ];
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
        return leftovers(facts.mark, facts.stateDir, facts.workspace);
      },
    },
  });
}
