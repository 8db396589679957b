/** A small command in a session, against the ways to run one without. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { buffer } from "node:stream/consumers";
import {
  dockerEnvironment,
  dockerObstacle,
  expectEqual,
  idleContainer,
  localEnvironment,
  run,
  temporaryFolder,
} from "./environments.ts";
import { type Figure, type Measured, paired, type Side } from "./measure.ts";

const RUNS = 60;

export const figures: readonly Figure[] = [
  { name: "local-echo-vs-spawn", goal: 0.4, unit: "ms", measure: localEcho },
  {
    name: "docker-echo-vs-cli",
    goal: 1 / 30,
    unit: "ms",
    obstacle: dockerObstacle,
    measure: () =>
      dockerEcho((id) => async () => expectEqual(await run("docker", "exec", id, "echo", "hi"), "hi\n")),
  },
  {
    name: "docker-echo-vs-dockerode",
    goal: 1 / 15,
    unit: "ms",
    obstacle: dockerObstacle,
    measure: () => dockerEcho((_, container) => () => execAndInspect(container)),
  },
];

async function localEcho(): Promise<Measured> {
  await using folder = await temporaryFolder();
  await using environment = localEnvironment(folder.path);
  await using session = await environment.openSession();
  return await paired(
    { run: async () => expectEqual((await session.exec("echo hi")).output, "hi\n") },
    {
      run: async () => {
        const child = spawn("bash", ["-c", "echo hi"], { stdio: ["ignore", "pipe", "inherit"] });
        const [output] = await Promise.all([buffer(child.stdout), once(child, "close")]);
        expectEqual(output.toString(), "hi\n");
      },
    },
    RUNS,
  );
}

type Container = Awaited<ReturnType<typeof idleContainer>>["container"];

/** Both sides work in the same container. */
async function dockerEcho(baseline: (id: string, container: Container) => Side["run"]): Promise<Measured> {
  await using folder = await temporaryFolder();
  await using idle = await idleContainer();
  await using environment = dockerEnvironment(folder.path, { attach: idle.id });
  await using session = await environment.openSession();
  return await paired(
    { run: async () => expectEqual((await session.exec("echo hi")).output, "hi\n") },
    { run: baseline(idle.id, idle.container) },
    RUNS,
  );
}

/** What a program does that uses the engine's API as it comes. */
async function execAndInspect(container: Container): Promise<void> {
  const exec = await container.exec({ Cmd: ["echo", "hi"], AttachStdout: true, AttachStderr: true });
  const stream = await exec.start({ hijack: true, stdin: false });
  const output = await buffer(stream);
  // Eight bytes of header come before the text.
  expectEqual(output.subarray(8).toString(), "hi\n");
  const { ExitCode: exitCode } = await exec.inspect();
  expectEqual(exitCode, 0);
}
