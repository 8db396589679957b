/** What an MCP client tells its model about this server: where commands run, and what stands around them. */
import type { Isolation } from "../../environments/base.ts";
import type { Moorage } from "../moorage.ts";

const ISOLATION: Readonly<Record<Isolation, string>> = {
  none: "with no isolation: they act on that machine itself, as its user",
  process: "in a process sandbox",
  container: "in a container, apart from the host",
  vm: "in a virtual machine, apart from the host",
};

/** One line per environment, and how to choose one when there are several. Starts nothing. */
export function createInstructions(runtime: Pick<Moorage, "environment" | "environments">): string {
  const lines = runtime.environments.map((name) => {
    const { backend, description, isolation, workspace } = runtime.environment(name).info();
    const what = description === "" || description === backend ? backend : `${backend}, ${description}`;
    return `- ${name} (${what}): commands run ${ISOLATION[isolation]}; the workspace is ${workspace}`;
  });
  const choice =
    lines.length > 1
      ? `Tools take "environment"; without it they use "${runtime.environments[0]}".`
      : "Every tool works in this environment, never outside it.";
  return [
    "Tools that run commands and work on files in these environments:",
    ...lines,
    choice,
    "Relative paths start at the shell's working directory, which begins at the workspace and is kept between commands.",
    "A command that outlasts the call's time goes on as a background process; use the process tool with its id.",
  ].join("\n");
}
