/** From nothing to the first result, against `docker run` of the same command; and the same from a pool. */
import { randomUUID } from "node:crypto";
import { DockerPool } from "../environments/docker/index.ts";
import {
  dockerEnvironment,
  dockerObstacle,
  expectEqual,
  IMAGE,
  run,
  temporaryFolder,
} from "./environments.ts";
import { type Figure, type Measured, paired, type Side } from "./measure.ts";

export const figures: readonly Figure[] = [
  { name: "docker-cold-start-vs-run", goal: 1.1, unit: "ms", obstacle: dockerObstacle, measure: cold },
  { name: "docker-pool-start-vs-run", goal: 1 / 20, unit: "ms", obstacle: dockerObstacle, measure: pooled },
];

/** `docker run` without `--rm`: taking the container away is not part of either side. */
function dockerRun(): Side {
  let name = "";
  return {
    before: async () => {
      name = `moorage-bench-${randomUUID()}`;
    },
    run: async () => expectEqual(await run("docker", "run", "--name", name, IMAGE, "echo", "hi"), "hi\n"),
    after: async () => {
      await run("docker", "rm", "--force", name);
    },
  };
}

async function cold(): Promise<Measured> {
  await using folder = await temporaryFolder();
  return await paired(
    freshEnvironment(() => dockerEnvironment(folder.path)),
    dockerRun(),
    10,
    1,
  );
}

async function pooled(): Promise<Measured> {
  await using folder = await temporaryFolder();
  const options = { image: IMAGE, pull: "never" } as const;
  await using pool = new DockerPool(options, 1);
  const ours = freshEnvironment(() => dockerEnvironment(folder.path, { ...options, pool }));
  // The pool fills its place while nothing is timed.
  return await paired({ ...ours, before: () => pool.fill() }, { ...dockerRun(), ...filled(pool) }, 10, 1);
}

function filled(pool: DockerPool): Side {
  const baseline = dockerRun();
  return {
    ...baseline,
    before: async () => {
      await pool.fill();
      await baseline.before?.();
    },
  };
}

function freshEnvironment(create: () => ReturnType<typeof dockerEnvironment>): Side {
  let environment: ReturnType<typeof dockerEnvironment> | null = null;
  return {
    run: async () => {
      environment = create();
      const session = await environment.openSession();
      expectEqual((await session.exec("echo hi")).output, "hi\n");
    },
    after: async () => {
      await environment?.stop();
    },
  };
}
