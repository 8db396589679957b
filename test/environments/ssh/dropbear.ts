/** A small server without sftp, as routers and small boxes have it. */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { accepts, freePort, type Sshd, until } from "./sshd.ts";

export function dropbearObstacle(): string | null {
  for (const program of ["/usr/sbin/dropbear", "/usr/bin/dropbearkey"]) {
    try {
      accessSync(program);
    } catch {
      return `not installed: ${program}`;
    }
  }
  return null;
}

export type Dropbear = Pick<Sshd, "address" | "port" | "hostKeys"> & AsyncDisposable;

export async function dropbear(folder: string): Promise<Dropbear> {
  const hostKey = join(folder, "dropbear_ed25519");
  const made = execFileSync("dropbearkey", ["-t", "ed25519", "-f", hostKey], { encoding: "utf8" });
  const line = made.split("\n").find((each) => each.startsWith("ssh-ed25519 "));
  if (line === undefined) throw new Error(`dropbearkey shows no key: ${made}`);
  writeFileSync(`${hostKey}.pub`, `${line}\n`);
  const port = await freePort();
  const child = spawn(
    "/usr/sbin/dropbear",
    ["-F", "-E", "-s", "-m", "-r", hostKey, "-P", join(folder, "dropbear.pid"), "-p", `127.0.0.1:${port}`],
    {
      stdio: "ignore",
    },
  );
  await until(() => accepts(port), "dropbear listens");
  return {
    address: "127.0.0.1",
    port,
    hostKeys: [hostKey],
    [Symbol.asyncDispose]: async () => {
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
    },
  };
}
