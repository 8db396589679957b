/**
 * Makes this machine ready for the tests: programs, a Docker engine, images. Does nothing for what is there, says
 * what it did, and says of every backend that cannot be tested why.
 *
 *   node test/host/prepare.ts            installs, starts, builds
 *   node test/host/prepare.ts --check    only looks
 *
 * `MOORAGE_REQUIRE=local,docker,ssh,vercel` makes it fail when one of these cannot be tested.
 */
import { buildImages, listImages } from "../../images/build.ts";
import { aptObstacle, installPackages } from "./apt.ts";
import { type EngineOptions, type EngineState, findEngine } from "./engine.ts";
import { supplyNative } from "./native.ts";
import { missingPrograms } from "./programs.ts";
import { type BackendName, parseRequired } from "./required.ts";

type BackendStatus = { readonly tested: true } | { readonly tested: false; readonly reason: string };

export interface HostReport {
  readonly backends: Readonly<Record<BackendName, BackendStatus>>;
  readonly engine: EngineState;
  /** Programs that are still missing; tests that need one say so. */
  readonly missing: readonly string[];
}

export interface PrepareOptions {
  readonly log: (line: string) => void;
  /** Whether anything may be installed, started or built. @default true */
  readonly mayChange?: boolean;
  readonly engine?: Omit<EngineOptions, "log">;
}

/** Never throws for what a machine lacks: the report says it. Idempotent. */
export async function prepareHost({ log, mayChange = true, engine }: PrepareOptions): Promise<HostReport> {
  const missing = await supplyPrograms(log, mayChange);
  await supplyNative(log, mayChange);
  const found = await findEngine({ ...engine, log }, mayChange);
  const supply = (...names: string[]) =>
    found.available ? supplyImages(found, names, log, mayChange) : untested(found.reason);
  const docker = await supply("busybox", "workbench");
  const ssh = sshStatus(missing);
  const local = localStatus(missing);
  const backends = {
    local,
    docker,
    // Some servers run here, and others in containers.
    ssh: ssh.tested ? await supply("sshd") : ssh,
    // The hosted service is played by our own server over the local backend.
    vercel: local,
  };
  return { backends, engine: found, missing };
}

/** Required backends that cannot be tested, each with its reason. */
export function unmetRequirements(report: HostReport, required: readonly BackendName[]): readonly string[] {
  return required.flatMap((name) => {
    const status = report.backends[name];
    return status.tested ? [] : [`${name}: ${status.reason}`];
  });
}

function untested(reason: string): BackendStatus {
  return { tested: false, reason };
}

function localStatus(missing: readonly string[]): BackendStatus {
  if (process.platform === "win32") return untested("there is no POSIX shell on Windows");
  const lacking = ["bash", "ps"].filter((program) => missing.includes(program));
  return lacking.length === 0 ? { tested: true } : untested(`${lacking.join(" and ")} missing`);
}

/** The servers are real ones on loopback, with accounts of their own. */
function sshStatus(missing: readonly string[]): BackendStatus {
  if (process.getuid?.() !== 0) return untested("starting a server and making accounts needs root");
  const needed = ["ssh", "sshd", "dropbear", "dash", "fish", "tcsh"];
  const lacking = needed.filter((program) => missing.includes(program));
  return lacking.length === 0 ? { tested: true } : untested(`${lacking.join(" and ")} missing`);
}

/** @returns names of the programs that are missing afterwards */
async function supplyPrograms(log: (line: string) => void, mayChange: boolean): Promise<readonly string[]> {
  const missing = await missingPrograms();
  if (missing.length === 0) return [];
  const names = missing.map(({ program }) => program);
  const obstacle = mayChange ? await aptObstacle() : "only looking";
  if (obstacle !== null) {
    log(`missing: ${names.join(", ")} (not installed: ${obstacle})`);
    return names;
  }
  try {
    await installPackages(
      missing.map(({ packages }) => packages),
      log,
    );
  } catch (error) {
    log(`cannot install packages: ${error instanceof Error ? error.message : error}`);
  }
  const still = (await missingPrograms()).map(({ program }) => program);
  if (still.length > 0) log(`missing: ${still.join(", ")}`);
  return still;
}

async function supplyImages(
  { engine }: Extract<EngineState, { available: true }>,
  names: readonly string[],
  log: (line: string) => void,
  mayChange: boolean,
): Promise<BackendStatus> {
  try {
    const images = mayChange
      ? await buildImages({ engine, names, onProgress: log })
      : (await listImages({ engine })).filter(({ name }) => names.includes(name));
    const absent = images.filter(({ id }) => id === null);
    if (absent.length === 0) return { tested: true };
    return untested(`image ${absent.map(({ tag }) => tag).join(", ")} is not built`);
  } catch (error) {
    return untested(error instanceof Error ? error.message : String(error));
  }
}

async function main(argv: readonly string[]): Promise<number> {
  const strange = argv.filter((argument) => argument !== "--check");
  if (strange.length > 0) {
    console.error(`host: unknown argument ${strange.join(" ")}; there is --check`);
    return 2;
  }
  const log = (line: string) => console.log(`host: ${line}`);
  let required: readonly BackendName[];
  try {
    required = parseRequired(process.env.MOORAGE_REQUIRE);
  } catch (error) {
    console.error(`host: ${error instanceof Error ? error.message : error}`);
    return 2;
  }
  const report = await prepareHost({ log, mayChange: !argv.includes("--check") });
  for (const [name, status] of Object.entries(report.backends)) {
    const detail = name === "docker" && report.engine.available ? ` (${report.engine.description})` : "";
    log(status.tested ? `${name}: ready${detail}` : `${name}: not tested: ${status.reason}`);
  }
  const unmet = unmetRequirements(report, required);
  for (const requirement of unmet) console.error(`host: required, but not tested: ${requirement}`);
  return unmet.length === 0 ? 0 : 1;
}

if (process.argv[1] === import.meta.filename) process.exitCode = await main(process.argv.slice(2));
