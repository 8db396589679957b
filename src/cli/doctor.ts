/** `moor doctor`: what works here, and what to do about the rest. */
import type { Health } from "../../environments/base.ts";
import { upkeep } from "../../environments/upkeep.ts";
import { ERRORS, toMoorageError } from "../errors.ts";
import type { HiddenTool } from "../listing.ts";
import { stateDir } from "../paths.ts";
import { EXIT } from "./exit.ts";
import type { ToolOptions } from "./options.ts";
import { printJson, printText } from "./output.ts";
import { withMoorage } from "./runtime.ts";
import { version } from "./version.ts";

interface Finding {
  readonly name: string;
  readonly works: boolean;
  /** What works, or why it does not. */
  readonly reason: string;
  /** What to do; null when it works. */
  readonly suggestion: string | null;
}

interface Findings {
  readonly version: string;
  readonly node: string;
  readonly platform: string;
  readonly stateDir: string;
  readonly backends: readonly Finding[];
  readonly environments: readonly Finding[];
  readonly tools: readonly Finding[];
}

export async function doctor(options: ToolOptions): Promise<number> {
  const named = options.environment !== undefined || options.config !== undefined;
  const backends = await checkBackends();
  const { environments, tools } = named ? await checkNamed(options) : { environments: [], tools: [] };
  const findings: Findings = {
    version: version(),
    node: process.version,
    platform: `${process.platform} ${process.arch}`,
    stateDir: stateDir(),
    backends,
    environments,
    tools,
  };
  if (options.json) printJson(findings);
  else print(findings);
  return [...environments, ...tools].every(({ works }) => works) ? EXIT.ok : EXIT.failed;
}

async function checkBackends(): Promise<readonly Finding[]> {
  const checks = upkeep({ stateDir: stateDir() }).map(async ({ backend, forms, check }) =>
    fromHealth(`${backend} (${forms.join(", ")})`, await checked(check)),
  );
  return Promise.all(checks);
}

/** An environment that is named is started: only that shows whether its image is there and has a shell. */
async function checkNamed(options: ToolOptions): Promise<Pick<Findings, "environments" | "tools">> {
  let environments: readonly Finding[] = [];
  let tools: readonly Finding[] = [];
  await withMoorage(options, async ({ moorage, lifetime: { abortSignal }, start }) => {
    const checks = moorage.environments.map(async (name) => {
      const environment = moorage.environment(name);
      const health = await checked(async () => {
        await start(name);
        await environment.exec("true", { abortSignal });
        return environment.health();
      });
      const { description, workspace, shell, warnings = [] } = environment.info();
      const facts = `${description}, ${shell ?? "no shell"}, workspace ${workspace}`;
      return fromHealth(name, health, [facts, ...warnings.map((text) => `warning: ${text}`)].join("; "));
    });
    environments = await Promise.all(checks);
    const { visible, hidden } = await moorage.tools();
    tools = [...visible.map(fromVisible), ...hidden.map(fromHidden)];
    return EXIT.ok;
  });
  return { environments, tools };
}

async function checked(check: () => Promise<Health>): Promise<Health> {
  try {
    return await check();
  } catch (error) {
    const { code, message, suggestion } = toMoorageError(error);
    return { healthy: false, code, reason: message, suggestion };
  }
}

function fromHealth(name: string, health: Health, detail?: string): Finding {
  if (health.healthy) {
    return { name, works: true, reason: detail ?? health.detail ?? "works", suggestion: null };
  }
  const { code, reason, suggestion } = health;
  return {
    name,
    works: false,
    reason: `${code}: ${reason}`,
    suggestion: suggestion ?? ERRORS[code].suggestion,
  };
}

function fromVisible({ name }: { readonly name: string }): Finding {
  return { name, works: true, reason: "listed", suggestion: null };
}

function fromHidden({ name, why, reason }: HiddenTool): Finding {
  return { name, works: why === "disabled", reason: `hidden: ${reason}`, suggestion: ADVICE[why] };
}

const ADVICE: Readonly<Record<HiddenTool["why"], string>> = {
  disabled: "Name its toolset in --toolsets or in the configuration file.",
  unavailable: "Mend what the reason names; the tool comes back by itself.",
  fault: "Report this fault to the tool's author.",
};

/** Findings of which the same is to be said, as one. */
function together(findings: readonly Finding[]): readonly Finding[] {
  const groups = Map.groupBy(findings, ({ works, reason, suggestion }) =>
    JSON.stringify([works, reason, suggestion]),
  );
  return [...groups.values()].flatMap(([first, ...others]) =>
    first ? { ...first, name: [first, ...others].map(({ name }) => name).join(", ") } : [],
  );
}

function print({
  version: own,
  node,
  platform,
  stateDir: state,
  backends,
  environments,
  tools,
}: Findings): void {
  printText(`moor ${own}, Node ${node}, ${platform}, records in ${state}`);
  for (const [title, findings] of [
    ["Backends", backends],
    ["Environments", environments],
    ["Tools", together(tools)],
  ] as const) {
    if (findings.length > 0) printText(`\n${title}`);
    for (const { name, works, reason, suggestion } of findings) {
      printText(`  ${works ? "ok" : "no"}  ${name.padEnd(14)} ${reason}`);
      if (suggestion !== null) printText(`      ${suggestion}`);
    }
  }
  if (environments.length === 0)
    printText("\nName an environment to check it and its tools: moor doctor -e SPEC");
}
