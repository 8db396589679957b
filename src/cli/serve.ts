/** `moor serve`: the Vercel Sandbox HTTP API over an environment specification, until a signal. */
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { MoorageError } from "../errors.ts";
import { ensureStateDir, stateDir } from "../paths.ts";
import { makeEnvironment } from "../places.ts";
import type { PlaceFactory } from "../serve/place.ts";
import { createSandboxServer } from "../serve/server.ts";
import { parseSpec } from "../spec.ts";
import { EXIT } from "./exit.ts";
import { badUsage, printFailure } from "./failure.ts";
import { watchLifetime } from "./lifetime.ts";
import type { JsonOption } from "./options.ts";
import { printJson, printLine } from "./output.ts";

export interface ServeOptions extends JsonOption {
  readonly environment?: string;
  readonly host: string;
  readonly port: number;
  readonly tokenEnv: string;
}

/** Memory that comes with a processor, bytes. */
const BYTES_PER_VCPU = 2 * 1024 ** 3;

export async function serve(options: ServeOptions): Promise<number> {
  const { environment: spec = "", host, port, tokenEnv } = options;
  if (spec === "") throw badUsage("No environment is named", "Say where sandboxes run: `-e docker:IMAGE`.");
  const token = process.env[tokenEnv] ?? "";
  if (token === "") {
    throw badUsage(
      `The variable ${tokenEnv} holds no token`,
      `Set ${tokenEnv} to a secret that clients send as their VERCEL_TOKEN.`,
    );
  }
  using lifetime = watchLifetime();
  const state = await ensureStateDir(stateDir());
  const folder = await mkdtemp(join(state, "sandboxes-"));
  const server = createSandboxServer({
    makePlace: placeFactory(spec, folder),
    grants: [{ token }],
    stateDir: state,
    onProblem: (error) => printFailure(error),
  });
  try {
    const address = await server.listen({ host, port });
    printLine(`moor: Serving ${spec} at ${address}`);
    if (options.json) printJson({ address });
    await new Promise<void>((resolve) => {
      const { abortSignal } = lifetime;
      abortSignal.addEventListener("abort", () => resolve(), { once: true });
      if (abortSignal.aborted) resolve();
    });
  } finally {
    await server.close();
    await rm(folder, { recursive: true, force: true });
  }
  return lifetime.exitCode ?? EXIT.ok;
}

/** One environment for each session; on this machine itself, each in a folder of its own. */
function placeFactory(spec: string, folder: string): PlaceFactory {
  const { backend, options } = parseSpec(spec);
  return async ({ sandboxId, egress, vcpus, image }) => {
    if (image !== null && spec.split("?")[0] !== `${backend}:${image}`) {
      throw new MoorageError("UNSUPPORTED", `Cannot use image "${image}": this server runs ${spec}`);
    }
    if (vcpus !== null && backend !== "docker") {
      throw new MoorageError("UNSUPPORTED", `Cannot give ${vcpus} processors: ${backend} sets no such bound`);
    }
    const overrides = {
      ...(egress !== "open" && { egress }),
      ...(vcpus !== null && { cpus: vcpus, memory: vcpus * BYTES_PER_VCPU }),
    };
    if (backend !== "local" || options.workspace !== undefined) {
      return { environment: await makeEnvironment(spec, { overrides }) };
    }
    const hostFolder = join(folder, sandboxId);
    await mkdir(hostFolder, { mode: 0o700 });
    const remove = (): Promise<void> => rm(hostFolder, { recursive: true, force: true });
    try {
      return { environment: await makeEnvironment(spec, { overrides, hostFolder }), remove };
    } catch (error) {
      await remove();
      throw error;
    }
  };
}
