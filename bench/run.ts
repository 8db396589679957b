/**
 * `npm run bench` takes every figure, `npm run bench -- NAME...` those whose name begins with NAME or has it inside.
 *
 * Prints one JSON line about the machine, then one per figure. `--check` makes a passed goal, or a figure that could
 * not be taken, an exit code of 1. Modules of this folder that export `figures` are found by themselves.
 */
import { execFile } from "node:child_process";
import { readdir } from "node:fs/promises";
import { arch, cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import type { Figure } from "./measure.ts";

async function discover(): Promise<readonly Figure[]> {
  const names = (await readdir(import.meta.dirname))
    .filter((name) => name.endsWith(".ts") && name !== "run.ts")
    .sort();
  const found: Figure[] = [];
  for (const name of names) {
    const module: { figures?: readonly Figure[] } = await import(
      pathToFileURL(join(import.meta.dirname, name)).href
    );
    found.push(...(module.figures ?? []));
  }
  return found;
}

/** @returns whether its goal was met */
async function take({ name, goal, unit, obstacle, measure }: Figure): Promise<boolean> {
  const round = (value: number) => Number(value.toPrecision(4));
  const head = { name, goal: round(goal), unit };
  try {
    const reason = (await obstacle?.()) ?? null;
    if (reason !== null) {
      print({ ...head, value: null, notTaken: reason });
      return false;
    }
    const { value, ours, baseline, runs } = await measure();
    print({
      name,
      value: round(value),
      goal: head.goal,
      ours: round(ours),
      baseline: baseline === null ? null : round(baseline),
      unit,
      runs,
    });
    return value <= goal;
  } catch (error) {
    print({ ...head, value: null, notTaken: describe(error) });
    process.stderr.write(`${error instanceof Error ? error.stack : error}\n`);
    return false;
  }
}

/** When a clean-up fails on the way out of a failure, the first failure is the one to know. */
function describe(error: unknown): string {
  if (error instanceof SuppressedError) return `${describe(error.suppressed)}; then ${describe(error.error)}`;
  return error instanceof Error ? error.message : String(error);
}

function print(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function machine(): Promise<object> {
  const version = async (program: string, ...argv: string[]) =>
    promisify(execFile)(program, argv).then(
      ({ stdout }) => stdout.trim().split("\n")[0],
      () => null,
    );
  const [docker, bash] = await Promise.all([
    version("docker", "version", "--format", "{{.Server.Version}} (client {{.Client.Version}})"),
    version("bash", "--version"),
  ]);
  return {
    machine: {
      cpu: cpus()[0]?.model ?? null,
      cores: cpus().length,
      memoryMiB: Math.round(totalmem() / 1024 / 1024),
      kernel: release(),
      arch: arch(),
    },
    versions: { node: process.version, docker, bash },
    takenAt: new Date().toISOString(),
  };
}

async function main(argv: readonly string[]): Promise<number> {
  const check = argv.includes("--check");
  const wanted = argv.filter((argument) => argument !== "--check");
  const strange = wanted.find((argument) => argument.startsWith("-"));
  const all = await discover();
  const matching = (part: string) => {
    const beginning = all.filter(({ name }) => name.startsWith(part));
    return beginning.length > 0 ? beginning : all.filter(({ name }) => name.includes(part));
  };
  const unknown = wanted.filter((part) => matching(part).length === 0);
  if (strange !== undefined || unknown.length > 0) {
    const names = all.map(({ name }) => name).join("\n  ");
    process.stderr.write(
      `bench: there is no figure "${strange ?? unknown.join(", ")}"; there are\n  ${names}\n`,
    );
    return 2;
  }
  print(await machine());
  let met = true;
  const chosen =
    wanted.length === 0
      ? all
      : all.filter((figure) => wanted.some((part) => matching(part).includes(figure)));
  for (const figure of chosen) {
    met = (await take(figure)) && met;
  }
  return check && !met ? 1 : 0;
}

process.exitCode = await main(process.argv.slice(2));
