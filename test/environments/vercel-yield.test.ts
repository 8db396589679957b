/** A command behind an API that is yielded before it has begun, and an environment that stops. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { environmentOf, serveLocal } from "../serve/served.ts";

it("stop() ends a command that was yielded and has not begun yet", { timeout: 30_000 }, async () => {
  const stateDir = await mkdtemp(join(tmpdir(), "moorage-yield-"));
  await using served = await serveLocal();
  for (let turns = 0; turns < 8; turns += 1) {
    const environment = environmentOf(served, { id: `yielding-${turns}`, stateDir });
    await environment.start();
    const call = environment.exec("cat; sleep 1000", { stdin: "x", yieldSignal: AbortSignal.abort() });
    for (let turn = 0; turn < turns * 4; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    await environment.stop();
    expect(await call).toMatchObject({ exitCode: null });
  }
  await rm(stateDir, { recursive: true, force: true });
});
