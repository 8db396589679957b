/**
 * Real servers on loopback with configuration, keys and accounts of their own, made and removed by the test: for what
 * cuts them off, starts them again or looks at their processes. The conformance suite runs in `container.ts`.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  accessSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { canTest } from "../../host/required.ts";

/** Why no server can be started here; null when one can. */
export function sshdObstacle(...programs: readonly string[]): string | null {
  if (process.getuid?.() !== 0) return "starting a server and making accounts needs root";
  const missing = ["/usr/sbin/sshd", "/usr/bin/ssh-keygen", ...programs].filter(
    (program) => !exists(program),
  );
  return missing.length > 0 ? `not installed: ${missing.join(", ")}` : null;
}

/** Whether a file's tests run; see `canTest`. */
export function canRun(subject: string, obstacle: string | null): boolean {
  return canTest("ssh", subject, obstacle);
}

function exists(path: string): boolean {
  try {
    accessSync(path);
    return true;
  } catch {
    return false;
  }
}

export function temporaryFolder(): { readonly path: string; readonly [Symbol.dispose]: () => void } {
  const path = mkdtempSync(join(tmpdir(), "moorage-ssh-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

/** A new key pair. @returns the path of the private key */
export function makeKey(folder: string, name: string, type = "ed25519", passphrase = ""): string {
  const path = join(folder, name);
  execFileSync("ssh-keygen", ["-q", "-t", type, "-N", passphrase, "-C", name, "-f", path]);
  return path;
}

export function publicKey(path: string): string {
  return readFileSync(`${path}.pub`, "utf8").split(" ").slice(0, 2).join(" ");
}

export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("A TCP server has a port");
  return address.port;
}

export interface Account {
  readonly name: string;
  readonly home: string;
  readonly remove: () => void;
}

/** A throw-away account that only its key opens. */
export function makeAccount(shell: string, authorizedKey: string): Account {
  const name = `moor${randomBytes(5).toString("hex")}`;
  const home = mkdtempSync(join(tmpdir(), "moorage-home-"));
  execFileSync("useradd", [
    "--no-create-home",
    "--home-dir",
    home,
    "--shell",
    shell,
    "--password",
    "*",
    name,
  ]);
  mkdirSync(join(home, ".ssh"), { mode: 0o700 });
  writeFileSync(join(home, ".ssh", "authorized_keys"), `${authorizedKey}\n`, { mode: 0o600 });
  execFileSync("chown", ["-R", `${name}:`, home]);
  execFileSync("chmod", ["755", home]);
  const remove = () => {
    for (const pid of processesOf(name)) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // Gone meanwhile.
      }
    }
    execFileSync("userdel", ["--force", name], { stdio: "ignore" });
    rmSync(home, { recursive: true, force: true });
  };
  return { name, home, remove };
}

/** Processes of an account. */
export function processesOf(name: string): number[] {
  const uid = execFileSync("id", ["-u", name], { encoding: "utf8" }).trim();
  return readdirSync("/proc")
    .filter((pid) => /^\d+$/.test(pid))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/status`, "utf8").includes(`\nUid:\t${uid}\t`);
      } catch {
        return false;
      }
    })
    .map(Number);
}

/** Processes whose command line or initial variables hold `text`. */
export function processesWith(text: string): number[] {
  return readdirSync("/proc")
    .filter((pid) => /^\d+$/.test(pid) && Number(pid) !== process.pid)
    .filter((pid) =>
      ["cmdline", "environ"].some((file) => {
        try {
          return readFileSync(`/proc/${pid}/${file}`, "latin1").includes(text);
        } catch {
          return false;
        }
      }),
    )
    .map(Number);
}

/** Seconds for a `sleep` that can be told from every other process. */
export function uniqueSeconds(): string {
  return String(1_000_000 + Math.floor(Math.random() * 1_000_000));
}

/** Lines of sshd_config that every server of the tests has; one that stands before them wins. */
export const SSHD_CONFIG: readonly string[] = [
  "PidFile none",
  "UsePAM no",
  "PasswordAuthentication no",
  "KbdInteractiveAuthentication no",
  "PermitRootLogin prohibit-password",
  "MaxStartups 100",
  "StrictModes no",
  "LogLevel VERBOSE",
];

export interface SshdOptions {
  /** Lines of sshd_config beside those that every server here has. */
  readonly config?: readonly string[];
  readonly hostKeys?: readonly string[];
  readonly address?: string;
  readonly port?: number;
  /** Program and arguments that come before sshd, such as one that enters a network namespace. */
  readonly wrapper?: readonly string[];
}

/** One sshd in the foreground. */
export class Sshd {
  readonly port: number;
  readonly hostKeys: readonly string[];
  readonly folder: string;
  readonly address: string;
  readonly #wrapper: readonly string[];
  #child: ChildProcess | null = null;
  #log = "";

  private constructor(folder: string, port: number, hostKeys: readonly string[], options: SshdOptions) {
    this.folder = folder;
    this.port = port;
    this.hostKeys = hostKeys;
    this.address = options.address ?? "127.0.0.1";
    this.#wrapper = options.wrapper ?? [];
  }

  static async start(options: SshdOptions = {}): Promise<Sshd> {
    mkdirSync("/run/sshd", { recursive: true, mode: 0o755 });
    const folder = mkdtempSync(join(tmpdir(), "moorage-sshd-"));
    const hostKeys = options.hostKeys ?? [makeKey(folder, "host_ed25519")];
    const port = options.port ?? (await freePort());
    const sshd = new Sshd(folder, port, hostKeys, options);
    writeFileSync(
      join(folder, "sshd_config"),
      [
        ...(options.config ?? []),
        `Port ${port}`,
        `ListenAddress ${sshd.address}`,
        ...hostKeys.map((path) => `HostKey ${path}`),
        ...SSHD_CONFIG,
        "",
      ].join("\n"),
    );
    await sshd.run();
    return sshd;
  }

  /** Starts it, again after `kill`. */
  async run(): Promise<void> {
    const [program = "", ...args] = [
      ...this.#wrapper,
      "/usr/sbin/sshd",
      "-D",
      "-e",
      "-f",
      join(this.folder, "sshd_config"),
    ];
    const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
    this.#child = child;
    const listening = Promise.withResolvers<void>();
    child.stderr.on("data", (chunk: Buffer) => {
      this.#log += chunk.toString();
      if (this.#log.includes("Server listening")) listening.resolve();
    });
    child.once("exit", (code) => listening.reject(new Error(`sshd ended with ${code}: ${this.#log}`)));
    listening.promise.catch(() => undefined);
    await listening.promise;
    this.#log = "";
  }

  get log(): string {
    return this.#log;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Processes of its connections, all the way down to the privilege-separated ones, without what users started. */
  get connections(): number[] {
    return descendants(this.pid).filter((pid) => nameOf(pid).startsWith("sshd"));
  }

  /** Cuts every connection as a dying server does; the listener goes on. */
  async dropConnections(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const pids = this.connections;
    for (const pid of pids) signalQuietly(pid, signal);
    if (signal === "SIGKILL")
      await until(() => pids.every((pid) => nameOf(pid) === ""), "the connections end");
  }

  /** Ends the listener and every connection. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (!child) return;
    this.#child = null;
    const pids = descendants(child.pid ?? 0).filter((pid) => nameOf(pid).startsWith("sshd"));
    const ended = child.exitCode === null && child.signalCode === null ? once(child, "exit") : null;
    child.kill("SIGKILL");
    for (const pid of pids) signalQuietly(pid, "SIGKILL");
    await ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function signalQuietly(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // Gone meanwhile.
  }
}

function nameOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return /\) Z /.test(stat) ? "" : stat.slice(stat.indexOf("(") + 1, stat.lastIndexOf(")"));
  } catch {
    return "";
  }
}

export function descendants(root: number): number[] {
  // Of nobody; the parent of all has the number 0.
  if (root === 0) return [];
  const parents = new Map<number, number>();
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
      parents.set(Number(pid), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
    } catch {
      // Gone meanwhile.
    }
  }
  const found: number[] = [];
  for (let level = [root]; level.length > 0; ) {
    level = [...parents].filter(([, parent]) => level.includes(parent)).map(([pid]) => pid);
    found.push(...level);
  }
  return found;
}

export async function until(
  condition: () => boolean | Promise<boolean>,
  claim: string,
  deadlineMs = 20_000,
): Promise<void> {
  const deadline = performance.now() + deadlineMs;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`Not within ${deadlineMs} ms: ${claim}`);
    await delay(20);
  }
}

/** A known_hosts file for servers that have those host keys. */
export function writeKnownHosts(
  path: string,
  servers: readonly Pick<Sshd, "address" | "port" | "hostKeys">[],
  more: readonly string[] = [],
): void {
  const lines = servers.flatMap(({ address, port, hostKeys }) =>
    hostKeys.map((key) => `[${address}]:${port} ${publicKey(key)}`),
  );
  writeFileSync(path, `${[...lines, ...more].join("\n")}\n`);
}
