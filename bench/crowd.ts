/** A hundred environments at once, twenty commands each: all answer, and nothing stays behind. */
import type { BaseEnvironment } from "../environments/base.ts";
import {
  dockerEnvironment,
  dockerObstacle,
  idleContainer,
  localEnvironment,
  processesOf,
  temporaryFolder,
} from "./environments.ts";
import { amount, type Figure, type Measured } from "./measure.ts";

const ENVIRONMENTS = 100;
const COMMANDS = 20;

export const figures: readonly Figure[] = [
  { name: "local-crowd-failures", goal: 0, unit: "failures", measure: localCrowd },
  {
    name: "docker-crowd-failures",
    goal: 0,
    unit: "failures",
    obstacle: dockerObstacle,
    measure: dockerCrowd,
  },
];

async function localCrowd(): Promise<Measured> {
  await using folder = await temporaryFolder();
  const environments = Array.from({ length: ENVIRONMENTS }, () => localEnvironment(folder.path));
  const failures = await crowd(environments);
  const left = await processesOf(environments.map(({ id }) => id));
  return amount(failures + left.length, ENVIRONMENTS * COMMANDS);
}

/** All in one container, since a hundred containers would measure the engine. */
async function dockerCrowd(): Promise<Measured> {
  await using folder = await temporaryFolder();
  await using idle = await idleContainer();
  const before = await processCount(idle.container);
  const environments = Array.from({ length: ENVIRONMENTS }, () =>
    dockerEnvironment(folder.path, { attach: idle.id, workspace: "/tmp" }),
  );
  const failures = await crowd(environments);
  const left = (await processCount(idle.container)) - before;
  return amount(failures + left, ENVIRONMENTS * COMMANDS);
}

/** @returns how many commands and stops failed, each told on stderr */
async function crowd(environments: readonly BaseEnvironment[]): Promise<number> {
  let failures = 0;
  const fail = (error: unknown) => {
    failures += 1;
    process.stderr.write(`crowd: ${error instanceof Error ? error.message : String(error)}\n`);
  };
  await Promise.all(
    environments.map(async (environment, index) => {
      try {
        const session = await environment.openSession();
        for (let count = 0; count < COMMANDS; count += 1) {
          const { output } = await session.exec(`N=$((\${N:-0} + 1)); export N; echo ${index}:$N`);
          if (output !== `${index}:${count + 1}\n`)
            fail(`command ${count} of ${index} answered ${JSON.stringify(output)}`);
        }
      } catch (error) {
        fail(error);
      }
      await environment.stop().catch(fail);
    }),
  );
  return failures;
}

async function processCount(
  container: Awaited<ReturnType<typeof idleContainer>>["container"],
): Promise<number> {
  const { Processes: processes } = await container.top();
  return processes.length;
}
