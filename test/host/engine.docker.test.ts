import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { findProgram } from "../../images/find-program.ts";
import { type EngineOptions, findEngine } from "./engine.ts";

const obstacle =
  process.getuid?.() !== 0
    ? "only root may start one"
    : findProgram("dockerd") === null
      ? "dockerd is not installed"
      : null;

describe.skipIf(obstacle !== null)(
  `findEngine() with an engine of its own${obstacle ? ` (${obstacle})` : ""}`,
  () => {
    let folder: string;
    beforeEach(async () => {
      folder = await mkdtemp(join(tmpdir(), "moorage-engine-"));
    });
    afterEach(() => rm(folder, { recursive: true }));

    function options(lines: string[], ...more: string[]): EngineOptions {
      const socketPath = join(folder, "docker.sock");
      return {
        socketPath,
        logDir: folder,
        log: (line: string) => lines.push(line),
        // Namespaces of its own: an engine takes the machine's bridge, firewall and mounts for its own.
        daemon: [
          "unshare",
          "--net",
          "--mount",
          "dockerd",
          `--host=unix://${socketPath}`,
          `--data-root=${folder}/data`,
          `--exec-root=${folder}/exec`,
          `--pidfile=${folder}/docker.pid`,
          "--bridge=none",
          "--iptables=false",
          "--storage-driver=vfs",
          ...more,
        ],
      };
    }

    it("only looks when it may not start one", async () => {
      const lines: string[] = [];
      expect(await findEngine(options(lines), false)).toEqual({
        available: false,
        reason: `no engine answers at unix://${folder}/docker.sock`,
      });
      expect(lines).toEqual([]);
    });

    it("starts one, says so, and finds it the next time", async () => {
      const lines: string[] = [];
      const first = await findEngine(options(lines));
      if (!first.available) throw new Error(first.reason);
      const pid = first.startedPid;
      if (pid === null) throw new Error("It was not started by this call");
      try {
        expect(lines).toEqual([`starting dockerd, log in ${folder}/dockerd.log`]);
        expect(await findEngine(options(lines))).toMatchObject({ available: true, startedPid: null });
        expect(lines).toHaveLength(1);
      } finally {
        process.kill(pid, "SIGTERM");
        await vi.waitUntil(() => !isRunning(pid), { timeout: 30_000 });
      }
    });

    it("tells what the daemon said when it does not start", async () => {
      const state = await findEngine(options([], "--storage-driver=none-of-that-name"));
      expect(state).toEqual({ available: false, reason: expect.stringContaining("none-of-that-name") });
      expect(await readFile(join(folder, "dockerd.log"), "utf8")).toContain("none-of-that-name");
    });
  },
);

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
