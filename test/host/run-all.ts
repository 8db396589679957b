/**
 * What has to pass, in order, with one count at the end.
 *
 *   node test/host/run-all.ts           what `npm test` does: the host, then every test but the slow ones
 *   node test/host/run-all.ts --all     what `npm run test:all` does: those as well
 *   node test/host/run-all.ts --ci      what `.ci/run` does: lint, types, unused code and the demo as well
 *
 * A check that is not a test runner counts as one test. The last line is `N passed, N failed`.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { addCounts, type Counts, countsOf, NO_COUNTS } from "./counts.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const BIN = join(ROOT, "node_modules", ".bin");
/** In one run, so that no worker waits for the last files of a project while others have not begun. */
const ORDINARY = ["unit", "engine"];
const SLOW = ["slow"];
const STEP_TIMEOUT_MS = 40 * 60_000;

interface Step {
  readonly name: string;
  readonly argv: readonly [program: string, ...rest: string[]];
}

const HOST: Step = { name: "host", argv: [process.execPath, "test/host/prepare.ts"] };
const CHECKS: readonly Step[] = [
  { name: "lint", argv: [join(BIN, "biome"), "ci", "."] },
  { name: "types", argv: [join(BIN, "tsc"), "--noEmit"] },
  { name: "unused code", argv: [join(BIN, "knip")] },
];
const DEMO: Step = { name: "demo", argv: [process.execPath, "examples/demo/run.ts"] };

/** @returns whether it ended with 0 */
async function run({ name, argv: [program, ...argv] }: Step): Promise<boolean> {
  console.log(`\n== ${name}`);
  const startedAt = performance.now();
  const child = spawn(program, argv, {
    cwd: ROOT,
    stdio: ["ignore", "inherit", "inherit"],
    timeout: STEP_TIMEOUT_MS,
    env: { ...process.env, PATH: `${BIN}:${process.env.PATH ?? ""}`, NO_COLOR: "1" },
  });
  const [code, signal] = await once(child, "close");
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  const ending = code === 0 ? "passed" : `failed with ${signal ?? `exit code ${code}`}`;
  console.log(`== ${name} ${ending} in ${seconds} s`);
  return code === 0;
}

async function check(step: Step): Promise<Counts> {
  const passed = await run(step);
  return { ...NO_COUNTS, [passed ? "passed" : "failed"]: 1 };
}

/**
 * @param isWhole whether the tests that are tagged as slow run too
 * @param again whether a test that failed is asked up to twice more, with the machine it then has: here every second
 *   test waits for real processes on two cores, and one that met the loss of a connection hears of it once again. The
 *   report still tells which needed it.
 */
async function tests(
  projects: readonly string[],
  { folder, isWhole, again }: { readonly folder: string; readonly isWhole: boolean; readonly again: boolean },
): Promise<Counts> {
  const report = join(folder, `${projects.join("-")}.json`);
  const ended = await run({
    name: `${projects.join(" and ")} tests`,
    argv: [
      process.execPath,
      join(ROOT, "node_modules", "vitest", "vitest.mjs"),
      "run",
      ...projects.map((name) => `--project=${name}`),
      ...(isWhole ? [] : ["--tags-filter=!slow"]),
      "--passWithNoTests",
      ...(again ? ["--retry=2"] : []),
      "--reporter=default",
      "--reporter=json",
      `--outputFile.json=${report}`,
    ],
  });
  return countsOf(await readFile(report, "utf8").catch(() => null), ended);
}

async function main(argv: readonly string[]): Promise<number> {
  const isCi = argv.includes("--ci");
  const all = isCi || argv.includes("--all");
  const strange = argv.filter((argument) => argument !== "--ci" && argument !== "--all");
  if (strange.length > 0) {
    console.error(`run-all: unknown argument ${strange.join(" ")}; there are --all and --ci`);
    return 2;
  }
  const folder = await mkdtemp(join(tmpdir(), "moorage-run-"));
  let total = NO_COUNTS;
  try {
    total = addCounts(total, await check(HOST));
    for (const step of isCi ? CHECKS : []) total = addCounts(total, await check(step));
    for (const projects of [ORDINARY, ...(all ? [SLOW] : [])]) {
      total = addCounts(total, await tests(projects, { folder, isWhole: all, again: isCi }));
    }
    if (isCi) total = addCounts(total, await check(DEMO));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  const skipped = total.skipped > 0 ? `, ${total.skipped} skipped` : "";
  if (!all) console.log("\nThe slow tests were not run; `npm run test:all` runs them too.");
  console.log(`\n${total.passed} passed, ${total.failed} failed${skipped}`);
  return total.failed === 0 ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));
