import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

/**
 * `unit` needs nothing but this machine; `engine` needs a Docker engine and the test images, which its global
 * set-up brings or explains; `slow` are the long random tests.
 */
export default defineConfig({
  test: {
    // Tests wait for processes more than they compute.
    maxWorkers: availableParallelism() + 1,
    // A test waits for conditions, so a longer limit costs nothing but on a failure, and holds on a busy machine.
    testTimeout: 120_000,
    hookTimeout: 180_000,
    projects: [
      {
        extends: true,
        test: {
          name: "unit",
          include: ["test/**/*.test.ts"],
          exclude: ["test/**/*.docker.test.ts", "test/**/*.slow.test.ts"],
        },
      },
      {
        extends: true,
        test: {
          name: "engine",
          include: ["test/**/*.docker.test.ts", "examples/**/*.docker.test.ts"],
          // Its reaper needs an image that may not be had here; our own sweep takes its place.
          env: { TESTCONTAINERS_RYUK_DISABLED: "true" },
          globalSetup: ["test/host/global-setup.ts"],
        },
      },
      {
        extends: true,
        test: {
          name: "slow",
          include: ["test/**/*.slow.test.ts"],
          testTimeout: 600_000,
        },
      },
    ],
  },
});
