/** What is left of an environment whose orchestrator was killed, and who cleans it up. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { createLocalEnvironment } from "../../environments/local/index.ts";
import { carriers, commandLine } from "../carriers.ts";

const ORCHESTRATOR = fileURLToPath(new URL("fixtures/orchestrator.ts", import.meta.url));
const root = await mkdtemp(join(tmpdir(), "moorage-orphans-"));
afterAll(() => rm(root, { recursive: true, force: true }));

/** Command lines of the processes that carry the mark. */
async function marked(mark: string): Promise<readonly string[]> {
  return Promise.all((await carriers(`ORPHAN_MARK=${mark}`)).map(commandLine));
}

/** Starts an orchestrator, and resolves once its command runs. Disposed, it is killed if it still lives. */
async function orchestrator(stateDir: string, id: string) {
  const workspace = await mkdtemp(join(root, "workspace-"));
  const child = spawn(process.execPath, [ORCHESTRATOR, stateDir, workspace, id], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  const kill = async () => {
    child.kill("SIGKILL");
    await exited;
  };
  let said = "";
  for await (const chunk of child.stdout) {
    said += String(chunk);
    if (said.includes("ready")) break;
  }
  expect(said, "the orchestrator says that it is ready").toBe("ready\n");
  return { workspace, kill, [Symbol.asyncDispose]: kill };
}

async function emptied(mark: string, deadlineMs: number): Promise<readonly string[]> {
  const deadline = performance.now() + deadlineMs;
  for (;;) {
    const left = await marked(mark);
    if (left.length === 0 || performance.now() > deadline) return left;
    await delay(50);
  }
}

describe("an orchestrator that is killed in the middle of a command", { timeout: 120_000 }, () => {
  it("leaves nothing behind after the next start (SH-42)", async () => {
    const stateDir = await mkdtemp(join(root, "state-"));
    await using killed = await orchestrator(stateDir, "killed");
    expect((await marked(stateDir)).length).toBeGreaterThan(5);
    await killed.kill();
    await using next = createLocalEnvironment({ stateDir, workspace: killed.workspace });
    await next.start();
    expect(await emptied(stateDir, 10_000)).toEqual([]);
    expect((await next.exec("cat over 2>/dev/null || echo never")).output).toBe("never\n");
    expect((await next.processes.list()).filter(({ status }) => status === "running")).toEqual([]);
  });

  it("loses nothing of another orchestrator that lives", { tags: ["slow"] }, async () => {
    const stateDir = await mkdtemp(join(root, "state-"));
    await using live = await orchestrator(stateDir, "live");
    const before = (await marked(stateDir)).length;
    {
      await using next = createLocalEnvironment({ stateDir, workspace: live.workspace });
      await next.start();
      expect((await next.exec("echo on")).output).toBe("on\n");
    }
    expect((await marked(stateDir)).length).toBe(before);
    await live.kill();
    await using last = createLocalEnvironment({ stateDir, workspace: live.workspace });
    await last.start();
    expect(await emptied(stateDir, 10_000)).toEqual([]);
  });
});

describe("an orchestrator that is killed and begins again under the same id", () => {
  it("finds its background processes with their output, and ends them when it stops", async () => {
    const stateDir = await mkdtemp(join(root, "state-"));
    await using killed = await orchestrator(stateDir, "again");
    await killed.kill();
    {
      await using next = createLocalEnvironment({ id: "again", stateDir, workspace: killed.workspace });
      const [found] = (await next.processes.list()).filter(({ status }) => status === "running");
      expect(found?.command).toContain("setsid sleep 1000");
      const process = await next.processes.get(found?.id ?? "");
      expect((await process.wait({ timeoutMs: 100 })).reason).toBe("timeout");
      // Of all that the earlier orchestrator ran, its shell and its two programs are left.
      expect(await marked(stateDir)).toHaveLength(3);
    }
    expect(await emptied(stateDir, 10_000)).toEqual([]);
  });
});
