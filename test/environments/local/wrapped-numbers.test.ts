import { accessSync, constants, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect, it } from "vitest";
import { createLocalEnvironment } from "../../../environments/local/index.ts";

/** What the kernel gave last; the next process gets the next free number. */
const LAST_NUMBER = "/proc/sys/kernel/ns_last_pid";

function isSettable(): boolean {
  try {
    accessSync(LAST_NUMBER, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

it.skipIf(!isSettable())(
  `a timeout ends a shell before its children, also where their numbers have begun anew${isSettable() ? "" : ` (not tested: ${LAST_NUMBER} cannot be written)`}`,
  async () => {
    const root = await mkdtemp(join(tmpdir(), "moorage-test-"));
    try {
      await using environment = createLocalEnvironment({ stateDir: join(root, "state"), workspace: root });
      await using session = await environment.openSession();
      for (let call = 0; call < 8; call += 1) {
        await session.exec("true");
        // The subshell of the next call is forked by then.
        await delay(30);
        writeFileSync(LAST_NUMBER, "300");
        const command = "bash -c 'for i in {1..60}; do sleep 60 & done; wait'";
        const { output, timedOut } = await session.exec(command, { timeoutMs: 600 });
        // A shell that outlives its child tells of the signal that ended it.
        expect({ output, timedOut }).toEqual({ output: "", timedOut: true });
      }
    } finally {
      await rm(root, { recursive: true, force: true });
    }
  },
);
