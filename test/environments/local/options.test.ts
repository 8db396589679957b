import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect, it } from "vitest";
import { createLocalEnvironment } from "../../../environments/local/index.ts";

it.each([{ "not-a-name": "1" }, { "A=B": "1" }, { "": "1" }, { A: "a\0b" }])(
  "createLocalEnvironment() refuses the variables %j",
  (env) => {
    expect(() => createLocalEnvironment({ stateDir: "/nowhere", env })).toThrow(
      expect.objectContaining({ name: "MoorageError", code: "INVALID_ARGUMENTS" }),
    );
  },
);

it.each([
  ["C.UTF-8", "1"],
  ["C", "2"],
])("commands and background processes have an LC_ALL that is given: %s", async (locale, length) => {
  const root = await mkdtemp(join(tmpdir(), "moorage-test-"));
  try {
    await using environment = createLocalEnvironment({
      stateDir: join(root, "state"),
      workspace: root,
      env: { LC_ALL: locale },
    });
    await using session = await environment.openSession();
    for (let call = 0; call < 3; call += 1) {
      const { output } = await session.exec("x=ä; echo ${#x}; env | grep ^LC_ALL=");
      expect(output).toBe(`${length}\nLC_ALL=${locale}\n`);
      // The next subshell is forked by then.
      await delay(20);
    }
    const process = await environment.processes.start("env | grep ^LC_ALL=");
    await process.wait();
    expect((await process.log()).text).toBe(`LC_ALL=${locale}\n`);
  } finally {
    await rm(root, { recursive: true, force: true });
  }
});
