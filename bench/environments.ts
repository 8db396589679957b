/** Environments, containers and folders for figures, and what stands in the way of having them. */
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type Docker from "dockerode";
import type { BaseEnvironment } from "../environments/base.ts";
import { createDockerEnvironment, type DockerOptions, openEngine } from "../environments/docker/index.ts";
import { createLocalEnvironment } from "../environments/local/index.ts";

export const IMAGE = "moorage/workbench:latest";

export interface TemporaryFolder extends AsyncDisposable {
  readonly path: string;
}

export async function temporaryFolder(): Promise<TemporaryFolder> {
  const path = await mkdtemp(join(tmpdir(), "moorage-bench-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

export function localEnvironment(folder: string): BaseEnvironment {
  return createLocalEnvironment({ stateDir: join(folder, "state"), workspace: folder });
}

export function dockerEnvironment(
  folder: string,
  options: DockerOptions = { image: IMAGE },
): BaseEnvironment {
  return createDockerEnvironment({ stateDir: join(folder, "state"), ...options });
}

/** Why there is no engine with the workbench image, or null. */
export async function dockerObstacle(): Promise<string | null> {
  try {
    await (await openEngine()).docker.getImage(IMAGE).inspect();
    return null;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return `no engine with ${IMAGE} (npm run host): ${reason}`;
  }
}

export interface IdleContainer extends AsyncDisposable {
  readonly container: Docker.Container;
  readonly id: string;
}

/** A container that does nothing, for both sides of a comparison to work in. */
export async function idleContainer(): Promise<IdleContainer> {
  const { docker } = await openEngine();
  const container = await docker.createContainer({
    Image: IMAGE,
    Cmd: ["sleep", "infinity"],
    HostConfig: { Init: true },
    Labels: { "moorage.bench": "true" },
  });
  await container.start();
  return {
    container,
    id: container.id,
    [Symbol.asyncDispose]: async () => {
      await container.remove({ force: true });
    },
  };
}

/** Processes of this machine that carry the mark of one of these environments. */
export async function processesOf(environmentIds: readonly string[]): Promise<readonly number[]> {
  const found: number[] = [];
  for (const entry of await readdir("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    const variables = await readFile(`/proc/${entry}/environ`, "latin1").catch(() => "");
    const worker = variables.split("\0").find((variable) => variable.startsWith("MOORAGE_WORKER="));
    if (worker && environmentIds.some((id) => worker.startsWith(`MOORAGE_WORKER=${id}.`)))
      found.push(Number(entry));
  }
  return found;
}

/** Runs a program to its end. @throws {Error} when it fails */
export async function run(program: string, ...argv: string[]): Promise<string> {
  return (await promisify(execFile)(program, argv, { maxBuffer: 64 * 1024 * 1024 })).stdout;
}

/** @throws {Error} when a measured command did not do what it was asked, so that nothing wrong is measured */
export function expectEqual(actual: unknown, expected: unknown): void {
  if (actual !== expected)
    throw new Error(`Expected ${JSON.stringify(expected)}, got ${JSON.stringify(actual)}`);
}
