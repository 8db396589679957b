/** What is promised for a time does not depend on the clock of the machine, which somebody may set. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, expect, it, vi } from "vitest";
import { createLocalEnvironment } from "../../environments/local/index.ts";

const root = await mkdtemp(join(tmpdir(), "moorage-clock-"));
afterAll(() => rm(root, { recursive: true, force: true }));
afterEach(() => void vi.useRealTimers());

const HOUR_MS = 3600_000;

it.each([
  ["forward", 2 * HOUR_MS],
  ["back", -2 * HOUR_MS],
])(
  "a command that was yielded keeps its record, and its length, when the clock is set %s",
  async (_, jumpMs) => {
    const [workspace, stateDir] = await Promise.all(["w-", "s-"].map((name) => mkdtemp(join(root, name))));
    await using environment = createLocalEnvironment({
      workspace: String(workspace),
      stateDir: String(stateDir),
    });
    const { processId } = await environment.exec("sleep 0.5; exit 3", { yieldMs: 50 });
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + jumpMs });
    const yielded = await environment.processes.get(String(processId));
    expect(await yielded.wait({ timeoutMs: 20_000 })).toMatchObject({ reason: "exit" });
    vi.setSystemTime(Date.now() + jumpMs);
    const all = await environment.processes.list();
    const info = all.find(({ id }) => id === processId);
    expect(info).toMatchObject({ status: "exited", exitCode: 3 });
    const lengthMs = Date.parse(String(info?.endedAt)) - Date.parse(String(info?.startedAt));
    expect(lengthMs).toBeGreaterThanOrEqual(0);
    expect(lengthMs).toBeLessThan(60_000);
  },
);
