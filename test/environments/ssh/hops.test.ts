/** ProxyJump and agents against real servers, configured as a user would. */
import { execFileSync, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it, vi } from "vitest";
import { createSshEnvironment } from "../../../environments/ssh/index.ts";
import { makePlace } from "./places.ts";
import { canRun, makeKey, publicKey, Sshd, sshdObstacle, until } from "./sshd.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

async function startAgent(socket: string, key: string): Promise<AsyncDisposable> {
  const agent = spawn("ssh-agent", ["-D", "-a", socket], { stdio: "ignore" });
  const add = () => {
    try {
      execFileSync("ssh-add", ["-q", key], {
        env: { ...process.env, SSH_AUTH_SOCK: socket },
        stdio: "ignore",
      });
      return true;
    } catch {
      return false;
    }
  };
  await until(add, "the agent has the key");
  return {
    [Symbol.asyncDispose]: async () => {
      const ended = once(agent, "exit");
      agent.kill();
      await ended;
    },
  };
}

describe.runIf(canRun("ssh hops", sshdObstacle("/usr/bin/ssh-agent")))("a route over a jump host", () => {
  it("SSH-16: connects as ssh does, with every hop checked under its own name", async () => {
    await using place = await makePlace();
    await using target = await Sshd.start();
    const home = join(place.folder, "home");
    mkdirSync(join(home, ".ssh"), { recursive: true, mode: 0o700 });
    vi.stubEnv("HOME", home);
    vi.stubEnv("SSH_AUTH_SOCK", "");
    // The key is in an agent alone, whose socket only the configuration names.
    const socket = join(place.folder, "agent");
    await using _agent = await startAgent(socket, place.key);
    const { name } = place.account;
    const lines = {
      jump: `[127.0.0.1]:${place.sshd.port} ${publicKey(place.sshd.hostKeys[0] ?? "")}`,
      target: `target-key ${publicKey(target.hostKeys[0] ?? "")}`,
    };
    const knownHosts = join(home, ".ssh", "known_hosts");
    writeFileSync(knownHosts, `${lines.jump}\n${lines.target}\n`);
    const common = `  User ${name}\n  IdentityAgent ${socket}\n  UserKnownHostsFile ${knownHosts}\n`;
    writeFileSync(
      join(home, ".ssh", "hosts"),
      `Host jump\n  HostName 127.0.0.1\n  Port ${place.sshd.port}\n${common}`,
      { mode: 0o600 },
    );
    writeFileSync(
      join(home, ".ssh", "config"),
      `Include hosts\nHost t\n  HostName 127.0.0.1\n  Port ${target.port}\n  ProxyJump jump\n  HostKeyAlias target-key\n${common}`,
      { mode: 0o600 },
    );
    const make = () => createSshEnvironment({ host: "t", stateDir: join(place.folder, "state") });
    {
      await using environment = make();
      expect(await environment.exec("whoami; echo $SSH_CONNECTION")).toMatchObject({
        output: expect.stringMatching(new RegExp(`^${name}\n.* ${target.port}\n$`)),
      });
      // A packet is written twice on its way, and what it was made in is used again.
      const stdin = randomBytes(8_000_003);
      const digest = createHash("sha256").update(stdin).digest("hex");
      expect(await environment.exec("tee copy | sha256sum; sha256sum <copy", { stdin })).toMatchObject({
        output: `${digest}  -\n${digest}  -\n`,
      });
      expect((await environment.files.readFile("copy")).bytes.equals(stdin)).toBe(true);
      expect(place.sshd.log).toContain(`Accepted publickey for ${name}`);
      expect(await environment.health()).toMatchObject({ healthy: true });
    }
    await until(() => place.sshd.connections.length === 0, "the jump host is left");

    writeFileSync(knownHosts, `${lines.target}\n`);
    await expect(make().start()).rejects.toMatchObject({
      code: "SSH_HOST_KEY_UNKNOWN",
      message: expect.stringContaining(`[127.0.0.1]:${place.sshd.port}`),
    });
    const wrong = publicKey(makeKey(place.folder, "wrong"));
    writeFileSync(knownHosts, `${lines.jump}\ntarget-key ${wrong}\n`);
    await expect(make().start()).rejects.toMatchObject({
      code: "SSH_HOST_KEY_CHANGED",
      message: expect.stringContaining("target-key"),
    });
    await until(() => place.sshd.connections.length === 0, "the jump host is left after a failure");
  });

  it("names the hop from which the next one cannot be reached", async () => {
    await using place = await makePlace({ config: ["AllowTcpForwarding yes"] });
    const configFile = join(place.folder, "config");
    writeFileSync(
      configFile,
      `Host gate\n  HostName 127.0.0.1\n  Port ${place.sshd.port}\n  IdentityFile ${place.key}\n  User ${place.account.name}\nHost t\n  HostName 127.0.0.1\n  ProxyJump gate\n`,
    );
    await expect(place.make({ configFile, host: "t", port: 1 }).start()).rejects.toMatchObject({
      code: "SSH_UNREACHABLE",
      message: expect.stringMatching(/^Cannot reach t \(127\.0\.0\.1:1\) from the host before it/),
    });
  });
});
