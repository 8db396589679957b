/** Finds a Docker engine, or starts one and leaves it running for the next run. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, open, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import type Docker from "dockerode";
import {
  type DockerEngine,
  endpointOf,
  openEngine,
  resolveEndpoint,
} from "../../environments/docker/index.ts";
import { findProgram } from "../../images/find-program.ts";
import { isMoorageError } from "../../src/errors.ts";
import { mountCgroups } from "./cgroups.ts";

const PING_TIMEOUT_MS = 5_000;
const START_TIMEOUT_MS = 90_000;
const DEFAULT_SOCKET = "unix:///var/run/docker.sock";

export interface EngineOptions {
  /** Where an engine is looked for and started. @default where the docker backend looks */
  readonly socketPath?: string;
  /** How the daemon is started. @default `dockerd` */
  readonly daemon?: readonly [program: string, ...argv: string[]];
  /** Folder of the daemon's log. @default a folder for this in the temporary folder */
  readonly logDir?: string;
  readonly log: (line: string) => void;
}

export type EngineState =
  | {
      readonly available: true;
      readonly engine: DockerEngine;
      /** Version and address, for people. */
      readonly description: string;
      /** Process id of the daemon, when this call started it. */
      readonly startedPid: number | null;
    }
  | { readonly available: false; readonly reason: string };

/**
 * Asks the engine, and starts one where none answers and this user may.
 *
 * A named engine (`DOCKER_HOST`, a context) is only asked: whoever named it looks after it.
 *
 * @param mayStart false only asks. @default true
 */
export async function findEngine(options: EngineOptions, mayStart = true): Promise<EngineState> {
  const engine = await chosenEngine(options);
  if (typeof engine === "string") return unavailable(engine);
  const { docker, endpoint } = engine;
  const { url, source } = endpoint;
  const refusal = await ping(docker);
  if (refusal === null) return available(engine, null);
  if (/EACCES/.test(refusal)) return unavailable(`this user may not use ${url} (group docker)`);
  if (options.socketPath === undefined && url !== DEFAULT_SOCKET)
    return unavailable(`the engine at ${url} (from ${source}) does not answer: ${refusal}`);
  const silence = `no engine answers at ${url}`;
  if (!mayStart) return unavailable(silence);
  if (process.platform !== "linux") return unavailable(`${silence}, and only on Linux one is started here`);
  if (process.getuid?.() !== 0) return unavailable(`${silence}, and only root may start one`);
  if (findProgram("dockerd") === null) return unavailable(`${silence}, and dockerd is not installed`);
  try {
    const pid = await startEngine(docker, options);
    return await available(engine, pid);
  } catch (error) {
    return unavailable(
      `${silence}, and dockerd does not start: ${error instanceof Error ? error.message : error}`,
    );
  }
}

/** @returns why the variables or files that choose an engine cannot be followed, as text */
async function chosenEngine({ socketPath }: EngineOptions): Promise<DockerEngine | string> {
  try {
    return await openEngine(
      socketPath === undefined ? resolveEndpoint() : endpointOf(`unix://${socketPath}`, "the options"),
    );
  } catch (error) {
    if (isMoorageError(error)) return error.message;
    throw error;
  }
}

async function available(engine: DockerEngine, startedPid: number | null): Promise<EngineState> {
  const { Version: version, ApiVersion: api } = await engine.docker.version();
  const description = `Docker ${version}, API ${api}, ${engine.endpoint.url}`;
  return { available: true, engine, description, startedPid };
}

function unavailable(reason: string): EngineState {
  return { available: false, reason };
}

/** @returns why it does not answer, or null when it does */
async function ping(docker: Docker): Promise<string | null> {
  try {
    // The client takes options here, which its types leave out.
    const pingWith = docker.ping.bind(docker) as (options: { abortSignal: AbortSignal }) => Promise<unknown>;
    await pingWith({ abortSignal: AbortSignal.timeout(PING_TIMEOUT_MS) });
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** @returns the daemon's process id, or null when the service manager started it */
async function startEngine(docker: Docker, options: EngineOptions): Promise<number | null> {
  const {
    log,
    daemon: [program, ...argv] = ["dockerd"],
    logDir = join(tmpdir(), "moorage-test-host"),
  } = options;
  if (await mountCgroups()) log("mounted the control groups");
  if (existsSync("/run/systemd/system") && options.socketPath === undefined) {
    log("starting the docker service");
    await promisify(execFile)("systemctl", ["start", "docker"]);
    await untilAnswer(docker, async () => null);
    return null;
  }
  await mkdir(logDir, { recursive: true, mode: 0o700 });
  const logFile = join(logDir, "dockerd.log");
  await using output = await open(logFile, "w", 0o600);
  log(`starting dockerd, log in ${logFile}`);
  const daemon = spawn(program, argv, {
    detached: true,
    stdio: ["ignore", output.fd, output.fd],
    env: { ...process.env, PATH: `${process.env.PATH ?? ""}:/usr/sbin:/sbin` },
  });
  daemon.unref();
  let end: string | null = null;
  once(daemon, "exit").then(
    ([code, signal]) => {
      end = `it ended with ${signal ?? `exit code ${code}`}`;
    },
    (error: Error) => {
      end = error.message;
    },
  );
  await untilAnswer(docker, async () => end && `${end}: ${await lastWords(logFile)}`);
  return daemon.pid ?? null;
}

async function untilAnswer(docker: Docker, failure: () => Promise<string | null>): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    const refusal = await ping(docker);
    if (refusal === null) return;
    const failed = await failure();
    if (failed !== null) throw new Error(failed);
    if (performance.now() > deadline) {
      throw new Error(`it did not answer within ${START_TIMEOUT_MS / 1000} s: ${refusal}`);
    }
    await delay(100);
  }
}

/** The error lines of a daemon's log, or its end. */
async function lastWords(logFile: string): Promise<string> {
  const lines = (await readFile(logFile, "utf8")).trim().split("\n");
  const failures = lines.filter((line) => /level=(error|fatal)|^failed|^Status:/.test(line));
  return (failures.length > 0 ? failures : lines).slice(-2).join(" | ");
}
