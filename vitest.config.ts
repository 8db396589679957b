import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { emptyHome } from "./test/host/home.ts";

/**
 * Begins with the conformance suites. Without times of an earlier run the largest files come first, and theirs are the
 * smallest and take the longest: what begins last is waited for with idle workers.
 */
class SuitesFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isSuite = ({ moduleId }: TestSpecification) => moduleId.includes("conformance");
    const projects = Map.groupBy(await super.sort(files), ({ project }) => project);
    return [...projects.values()].flatMap((each) => [
      ...each.filter(isSuite),
      ...each.filter((file) => !isSuite(file)),
    ]);
  }
}

const VARIABLES = emptyHome();

/** For tests that may need a Docker engine. */
const ENGINE = {
  // testcontainers' reaper needs an image that may not be had here; each test removes what it started.
  env: { ...VARIABLES, TESTCONTAINERS_RYUK_DISABLED: "true" },
  globalSetup: ["test/host/global-setup.ts"],
};

/**
 * `unit` needs nothing but this machine; `engine` needs a Docker engine and the test images, which its global
 * set-up brings or explains; `slow` are the long random tests, and those that repeat claims through further shells and
 * servers.
 */
export default defineConfig({
  test: {
    // Tests wait for processes more than they compute.
    maxWorkers: availableParallelism() + 2,
    sequence: { sequencer: SuitesFirst },
    tags: [
      { name: "slow", description: "Asked by `npm run test:all` alone, like the project of that name." },
    ],
    // A test waits for conditions, so a longer limit costs nothing but on a failure, and holds on a busy machine.
    testTimeout: 120_000,
    hookTimeout: 180_000,
    env: VARIABLES,
    projects: [
      {
        extends: true,
        test: {
          name: "unit",
          // Files share a process: to start one for each, and to load everything again, took a quarter of the time.
          isolate: false,
          include: ["test/**/*.test.ts"],
          exclude: ["test/**/*.docker.test.ts", "test/**/*.slow.test.ts"],
        },
      },
      {
        extends: true,
        test: {
          name: "engine",
          include: ["test/**/*.docker.test.ts", "examples/**/*.docker.test.ts"],
          ...ENGINE,
        },
      },
      {
        extends: true,
        test: {
          name: "slow",
          include: ["test/**/*.slow.test.ts"],
          ...ENGINE,
          testTimeout: 600_000,
        },
      },
    ],
  },
});
