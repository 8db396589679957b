/** Losses whose tests wait for most of their time; they wait side by side. */
import { describe, expect, it } from "vitest";
import { makePlace } from "./places.ts";
import { canRun, processesWith, sshdObstacle, uniqueSeconds, until } from "./sshd.ts";

describe.runIf(canRun("ssh silences", sshdObstacle())).concurrent("a connection", () => {
  it("to a server that is gone fails within its time, tells why, and recovers with it", async () => {
    await using place = await makePlace();
    const environment = place.make();
    await environment.start();
    await place.sshd.kill();
    await until(async () => !(await environment.health()).healthy, "we have noticed");
    const startedAt = performance.now();
    await expect(environment.exec("true")).rejects.toMatchObject({
      code: "SSH_UNREACHABLE",
      retryable: true,
    });
    expect(performance.now() - startedAt).toBeLessThan(30_000);
    expect(await environment.health()).toMatchObject({ healthy: false, code: "SSH_UNREACHABLE" });
    const aborted = await environment.exec("true", { timeoutMs: 500 });
    expect(aborted).toMatchObject({ timedOut: true, exitCode: null });
    await place.sshd.run();
    expect(await environment.exec("echo back")).toMatchObject({ output: "back\n" });
  }, 60_000);

  it("SSH-04: that nobody answers on is lost within 30 seconds", async () => {
    await using place = await makePlace();
    const environment = place.make();
    const seconds = uniqueSeconds();
    const running = environment.exec(`sleep ${seconds}`).catch((error: unknown) => error);
    await until(() => processesWith(`sleep\0${seconds}`).length > 0, "the command runs");
    const startedAt = performance.now();
    await place.sshd.dropConnections("SIGSTOP");
    expect(await running).toMatchObject({
      code: "EXECUTION_UNKNOWN",
      message: expect.stringContaining("no sign of life"),
    });
    expect(performance.now() - startedAt).toBeLessThan(30_000);
    await place.sshd.dropConnections();
  }, 60_000);
});
