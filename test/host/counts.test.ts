import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { countsOf } from "./counts.ts";

const ROOT = join(import.meta.dirname, "..", "..");
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "moorage-counts-"));
  await symlink(join(ROOT, "node_modules"), join(folder, "node_modules"));
});
afterAll(() => rm(folder, { recursive: true }));

/** Runs the real runner on test files and counts its real report. */
async function countOf(files: Record<string, string>) {
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  const report = join(folder, "report.json");
  const endedWell = await new Promise<boolean>((resolve) => {
    execFile(
      process.execPath,
      [
        join(ROOT, "node_modules", "vitest", "vitest.mjs"),
        "run",
        ...["--root", folder, "--reporter=json", `--outputFile=${report}`],
        ...Object.keys(files).map((name) => join(folder, name)),
      ],
      { env: { ...process.env, VITEST: undefined } },
      (error) => resolve(error === null),
    );
  });
  try {
    return countsOf(await readFile(report, "utf8").catch(() => null), endedWell);
  } finally {
    for (const name of [report, ...Object.keys(files)]) await rm(resolve(folder, name), { force: true });
  }
}

const IMPORT = 'import { describe, expect, it } from "vitest";\n';

it("countsOf() counts passed, failed, skipped and todo tests", async () => {
  const text = `${IMPORT}it("a", () => {}); it("b", () => expect(1).toBe(2)); it.skip("c", () => {}); it.todo("d");
    describe.skip("e", () => { it("f", () => {}); });`;
  expect(await countOf({ "mixed.test.js": text })).toEqual({ passed: 1, failed: 1, skipped: 3 });
});

it("countsOf() counts a file that cannot be loaded as a failure", { tags: ["slow"] }, async () => {
  const good = `${IMPORT}it("a", () => {});`;
  expect(await countOf({ "good.test.js": good, "broken.test.js": "import './missing.js';" })).toEqual({
    passed: 1,
    failed: 1,
    skipped: 0,
  });
});

it("countsOf() counts an unhandled rejection of a green run as a failure", { tags: ["slow"] }, async () => {
  const text = `${IMPORT}it("a", () => { Promise.reject(new Error("late")); });`;
  expect(await countOf({ "late.test.js": text })).toEqual({ passed: 1, failed: 1, skipped: 0 });
});

it("countsOf() counts a missing or broken report as a failure", () => {
  const failure = { passed: 0, failed: 1, skipped: 0 };
  expect(countsOf(null, true)).toEqual(failure);
  expect(countsOf("", true)).toEqual(failure);
  expect(countsOf('{"numPassedTests": 3, "testRes', true)).toEqual(failure);
  expect(countsOf("[]", true)).toEqual(failure);
});
