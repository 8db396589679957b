/** A cable that is pulled and put back: a server in a network namespace of its own, behind a pair of interfaces. */
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { makePlace } from "./places.ts";
import { canRun, processesWith, sshdObstacle, until } from "./sshd.ts";

interface Network extends Disposable {
  readonly name: string;
  readonly address: string;
  readonly cut: () => void;
  readonly heal: () => void;
}

function ip(...args: readonly string[]): void {
  execFileSync("ip", args, { stdio: ["ignore", "ignore", "pipe"] });
}

function makeNetwork(): Network {
  const id = randomBytes(3).toString("hex");
  const name = `moor-${id}`;
  const [ours, theirs] = [`mo${id}`, `mt${id}`];
  // A block for examples in documents, so that no real network is hidden.
  const [third] = randomBytes(1);
  const network = `198.18.${third ?? 0}`;
  ip("netns", "add", name);
  ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name);
  ip("addr", "add", `${network}.1/24`, "dev", ours);
  ip("link", "set", ours, "up");
  ip("-n", name, "addr", "add", `${network}.2/24`, "dev", theirs);
  ip("-n", name, "link", "set", theirs, "up");
  ip("-n", name, "link", "set", "lo", "up");
  return {
    name,
    address: `${network}.2`,
    // On their side, so that our packets vanish instead of failing.
    cut: () => ip("-n", name, "link", "set", theirs, "down"),
    heal: () => ip("-n", name, "link", "set", theirs, "up"),
    [Symbol.dispose]: () => ip("netns", "del", name),
  };
}

/** That a machine makes no namespaces does not mean that ssh is not tested. */
function networkIsThere(): boolean {
  if (!canRun("ssh networks", sshdObstacle())) return false;
  try {
    makeNetwork()[Symbol.dispose]();
    return true;
  } catch (error) {
    process.stderr.write(
      `ssh networks: not tested here: no network namespace can be made: ${String(error)}\n`,
    );
    return false;
  }
}

describe.runIf(networkIsThere())("a network", () => {
  it("that is cut for a moment loses nothing", async () => {
    using network = makeNetwork();
    await using place = await makePlace({
      address: network.address,
      wrapper: ["ip", "netns", "exec", network.name],
    });
    const session = await place.make().openSession();
    const running = session.exec("for i in $(seq 1 40); do echo $i; sleep 0.10007; done");
    await until(() => processesWith("sleep\x000.10007").length > 0, "the command runs");
    network.cut();
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    network.heal();
    const lines = Array.from({ length: 40 }, (_, index) => `${index + 1}\n`);
    expect(await running).toMatchObject({ exitCode: 0, output: lines.join(""), notes: [] });
  });

  it("that stays cut loses the connection within 30 seconds, and everything comes back with it", async () => {
    using network = makeNetwork();
    await using place = await makePlace({
      address: network.address,
      wrapper: ["ip", "netns", "exec", network.name],
    });
    const environment = place.make();
    const session = await environment.openSession();
    await session.exec("cd /usr; export KEPT=yes");
    const background = await environment.processes.start("sleep 600");
    const running = session.exec("sleep 50047").catch((error: unknown) => error);
    await until(() => processesWith("sleep\x0050047").length > 0, "the command runs");
    network.cut();
    const startedAt = performance.now();
    expect(await running).toMatchObject({ code: "EXECUTION_UNKNOWN" });
    expect(performance.now() - startedAt).toBeLessThan(30_000);
    const failedAt = performance.now();
    await expect(session.exec("true")).rejects.toMatchObject({ code: "SSH_UNREACHABLE" });
    expect(performance.now() - failedAt).toBeLessThan(45_000);
    expect(await environment.health()).toMatchObject({ healthy: false, code: "SSH_UNREACHABLE" });
    network.heal();
    await until(async () => (await environment.health()).healthy, "the network is back");
    const { output, notes } = await session.exec("pwd; echo $KEPT");
    expect(output).toBe("/usr\nyes\n");
    expect(notes).toEqual([expect.stringMatching(/no sign of life.*made again/)]);
    expect(processesWith("sleep\x0050047")).toEqual([]);
    expect(await background.info()).toMatchObject({ status: "running" });
    await background.kill();
  });
});
