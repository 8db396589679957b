/** Failures on the way to an authenticated connection, with servers that misbehave as told. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket, type Server as TcpServer } from "node:net";
import { join } from "node:path";
import ssh2, { type AuthContext, type Server } from "ssh2";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { BaseEnvironment } from "../../../environments/base.ts";
import { createSshEnvironment, type SshOptions } from "../../../environments/ssh/index.ts";
import { createMoorage } from "../../../src/moorage.ts";
import { freePort, makeKey, publicKey, temporaryFolder } from "./sshd.ts";

let folder: ReturnType<typeof temporaryFolder>;
const closing: (() => unknown)[] = [];

beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  folder[Symbol.dispose]();
});

function environment(port: number, more: Partial<SshOptions> = {}): BaseEnvironment {
  const made = createSshEnvironment({
    host: "127.0.0.1",
    port,
    user: "me",
    configFile: null,
    identityFiles: [],
    agent: null,
    knownHostsFiles: [join(folder.path, "known_hosts")],
    stateDir: join(folder.path, "state"),
    ...more,
  });
  closing.push(() => made.stop());
  return made;
}

/** One that waits for a second. */
function impatient(port: number): BaseEnvironment {
  const configFile = join(folder.path, "config");
  writeFileSync(configFile, "ConnectTimeout 1\n");
  return environment(port, { configFile });
}

async function portOf(server: TcpServer | Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("A TCP server has a port");
  return address.port;
}

async function listen(onConnection: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    onConnection(socket);
  });
  closing.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return portOf(server);
}

interface Fake {
  readonly port: number;
  /** Methods that clients tried, in order. */
  readonly tried: string[];
}

/** A server of ssh2's with one host key of each type named. */
async function fakeServer(
  onAuthentication: (context: AuthContext) => void,
  { types = ["ed25519"], known = types, onExec }: FakeOptions = {},
): Promise<Fake> {
  const keys = types.map((type) => makeKey(folder.path, `host_${type}`, type));
  const tried: string[] = [];
  const server = new ssh2.Server({ hostKeys: keys.map((path) => readFileSync(path)) }, (client) => {
    client.on("error", () => {});
    client.on("authentication", (context) => {
      tried.push(context.method);
      onAuthentication(context);
    });
    client.on("session", (accept) => {
      const session = accept();
      session.on("exec", (acceptExec, _, { command }) => {
        const channel = acceptExec();
        onExec?.(channel, command);
      });
    });
  });
  closing.push(() => server.close());
  const port = await portOf(server);
  const lines = known.map((type) => `[127.0.0.1]:${port} ${publicKey(join(folder.path, `host_${type}`))}`);
  writeFileSync(join(folder.path, "known_hosts"), `${lines.join("\n")}\n`);
  return { port, tried };
}

interface FakeOptions {
  readonly types?: readonly string[];
  readonly known?: readonly string[];
  readonly onExec?: (channel: ssh2.ServerChannel, command: string) => void;
}

describe("start()", () => {
  it("tells a port on which nobody listens from everything else, by code, host and reason", async () => {
    const port = await freePort();
    await expect(environment(port).start()).rejects.toMatchObject({
      code: "SSH_UNREACHABLE",
      retryable: true,
      message: `Cannot reach 127.0.0.1:${port}: the connection was refused`,
      details: { host: "127.0.0.1", port, phase: "connect" },
    });
  });

  it("tells a host that has no address", async () => {
    await expect(environment(22, { host: "no-such-host.invalid" }).start()).rejects.toMatchObject({
      code: "SSH_UNREACHABLE",
      message: expect.stringContaining("no-such-host.invalid:22"),
    });
  });

  it("SSH-05: gives a silent listener up in time, naming address and phase", async () => {
    const port = await listen(() => {});
    await expect(impatient(port).start()).rejects.toMatchObject({
      code: "SSH_HANDSHAKE_FAILED",
      message: `Cannot connect to 127.0.0.1:${port}: no answer within 1000 ms in the phase "banner"`,
    });
  });

  it("SSH-05: tells a listener that is silent after its banner", async () => {
    const port = await listen((socket) => socket.write("SSH-2.0-Silent\r\n"));
    await expect(impatient(port).start()).rejects.toMatchObject({
      code: "SSH_HANDSHAKE_FAILED",
      message: expect.stringContaining('in the phase "key exchange"'),
    });
  });

  it.each([
    ["closes", (socket: Socket) => socket.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")],
    ["stays", (socket: Socket) => socket.write("HTTP/1.1 400 Bad Request\r\n\r\n")],
  ])("SSH-05: tells what a web server said that %s", async (_, answer) => {
    const port = await listen(answer);
    await expect(environment(port).start()).rejects.toMatchObject({
      code: "SSH_HANDSHAKE_FAILED",
      message: expect.stringMatching(
        new RegExp(`127.0.0.1:${port}.*(HTTP/1.1 400 Bad Request|phase "banner")`),
      ),
    });
  });

  it("SSH-05: leaves nothing that keeps the process alive", async () => {
    const port = await listen((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    const program = `
      import { createSshEnvironment } from ${JSON.stringify(join(import.meta.dirname, "../../../environments/ssh/index.ts"))};
      const environment = createSshEnvironment({ host: "127.0.0.1", port: ${port}, user: "me", configFile: null, agent: null, stateDir: ${JSON.stringify(folder.path)} });
      await environment.start().catch((error) => console.log(error.code));`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let output = "";
    child.stdout.on("data", (chunk) => {
      output += String(chunk);
    });
    const [code] = await once(child, "close");
    expect({ code, output }).toEqual({ code: 0, output: "SSH_HANDSHAKE_FAILED\n" });
  });

  it("SSH-06: names every method that was refused, and what could not be tried", async () => {
    const { port, tried } = await fakeServer((context) => context.reject(["publickey"]));
    const key = makeKey(folder.path, "id");
    const locked = makeKey(folder.path, "locked", "ed25519", "secret");
    await expect(environment(port, { identityFiles: [key, locked] }).start()).rejects.toMatchObject({
      code: "SSH_AUTHENTICATION_FAILED",
      retryable: false,
      message: expect.stringMatching(
        new RegExp(
          `^Cannot authenticate to me@127.0.0.1:${port}: no method is left; tried publickey ${key} \\(SHA256:[^)]+\\); the server accepts publickey; not tried: ${locked} is encrypted; load it into an agent$`,
        ),
      ),
    });
    expect(tried).toEqual(["none", "publickey"]);
  });

  it("takes a network that fails while a key is judged for no refusal of the key", async () => {
    const sockets: Socket[] = [];
    const { port } = await fakeServer((context) => {
      if (context.method === "none") return context.reject(["publickey"]);
      for (const socket of sockets) socket.resetAndDestroy();
    });
    const network = createServer((socket) => {
      sockets.push(socket);
      const behind = connect(port, "127.0.0.1");
      for (const side of [socket, behind]) side.on("error", () => {});
      socket.on("close", () => behind.destroy());
      socket.pipe(behind).pipe(socket);
    });
    closing.push(() => network.close());
    const between = await portOf(network);
    const [host = ""] = readFileSync(join(folder.path, "known_hosts"), "utf8").split("\n");
    writeFileSync(join(folder.path, "known_hosts"), `${host.replace(String(port), String(between))}\n`);
    const key = makeKey(folder.path, "id");
    await expect(environment(between, { identityFiles: [key] }).start()).rejects.toMatchObject({
      code: "SSH_HANDSHAKE_FAILED",
      retryable: true,
      message: expect.stringContaining("ECONNRESET"),
    });
  });

  it("SSH-06: ends at once when the server takes only passwords and none was given", async () => {
    const { port, tried } = await fakeServer((context) =>
      context.reject(["password", "keyboard-interactive"]),
    );
    const key = makeKey(folder.path, "id");
    await expect(environment(port, { identityFiles: [key] }).start()).rejects.toMatchObject({
      code: "SSH_AUTHENTICATION_FAILED",
      message: expect.stringContaining(
        "nothing could be tried; the server accepts password, keyboard-interactive",
      ),
    });
    expect(tried).toEqual(["none"]);
  });

  it("says where keys were looked for when there is none to try", async () => {
    const { port } = await fakeServer((context) => context.reject(["publickey"]));
    const missing = join(folder.path, "missing");
    await expect(environment(port, { identityFiles: [missing] }).start()).rejects.toMatchObject({
      code: "SSH_AUTHENTICATION_FAILED",
      message: expect.stringContaining(
        `nothing could be tried (no key at ${missing}; no agent); the server accepts publickey`,
      ),
    });
    const agent = join(folder.path, "agent");
    await expect(environment(port, { agent }).start()).rejects.toMatchObject({
      message: expect.stringContaining(
        `nothing could be tried (no key file is named; no key to use in the agent at ${agent}); the server accepts publickey; not tried: the agent at ${agent} does not answer`,
      ),
    });
  });

  it("opens an encrypted key with the passphrase, and tells a wrong one", async () => {
    const key = makeKey(folder.path, "locked", "ed25519", "secret");
    const { port } = await fakeServer((context) => context.reject(["publickey"]));
    await expect(
      environment(port, { identityFiles: [key], passphrase: "secret" }).start(),
    ).rejects.toMatchObject({
      message: expect.stringContaining(`tried publickey ${key}`),
    });
    await expect(
      environment(port, { identityFiles: [key], passphrase: "wrong" }).start(),
    ).rejects.toMatchObject({
      message: expect.stringContaining(`${key} is encrypted, and the passphrase does not open it`),
    });
  });

  it("sends a password only when one is given, after all keys, and never shows it", async () => {
    const seen: string[] = [];
    const { port, tried } = await fakeServer((context) => {
      if (context.method === "password") seen.push(context.password);
      context.reject(["publickey", "password"]);
    });
    const key = makeKey(folder.path, "id");
    const failure = await environment(port, { identityFiles: [key], password: "hunter2" })
      .start()
      .catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: "SSH_AUTHENTICATION_FAILED" });
    expect(JSON.stringify(failure) + String(failure)).not.toContain("hunter2");
    expect({ tried, seen }).toEqual({ tried: ["none", "publickey", "password"], seen: ["hunter2"] });
  });

  it("gives a server that asks on the password once, and no other secret in its place", async () => {
    const answers: (readonly string[])[] = [];
    const { port } = await fakeServer((context) => {
      if (context.method !== "keyboard-interactive") return context.reject(["keyboard-interactive"]);
      const ask = (prompts: { prompt: string; echo: boolean }[]) =>
        context.prompt(prompts, (given: readonly string[]) => {
          answers.push(given);
          if (answers.length < 4)
            ask([{ prompt: answers.length === 1 ? "Code: " : "Password: ", echo: false }]);
          else context.reject([]);
        });
      ask([{ prompt: "Password: ", echo: false }]);
    });
    await expect(environment(port, { password: "hunter2" }).start()).rejects.toMatchObject({
      code: "SSH_AUTHENTICATION_FAILED",
      message: expect.stringContaining('the server asked "Password:"'),
    });
    expect(answers).toEqual([["hunter2"], [], [], []]);
  });

  it("tells a demanded new password", async () => {
    const { port } = await fakeServer((context) => {
      if (context.method === "password") context.requestChange("Your password has expired.", () => {});
      else context.reject(["password"]);
    });
    await expect(environment(port, { password: "old" }).start()).rejects.toMatchObject({
      code: "SSH_PASSWORD_EXPIRED",
      message: expect.stringContaining("Your password has expired."),
    });
  });

  it("SSH-26: quotes a server that answers every command with a demand for a new password", async () => {
    const { port } = await fakeServer((context) => context.accept(), {
      onExec: (channel) => {
        channel.stderr.write("Password change required but no TTY available.\n");
        channel.exit(1);
        channel.end();
      },
    });
    await expect(environment(port).start()).rejects.toMatchObject({
      code: "SSH_PASSWORD_EXPIRED",
      message: expect.stringContaining("Password change required but no TTY available."),
    });
  });

  it("that succeeded is followed by commands whose end is unknown when the server tells of none", async () => {
    const { port } = await fakeServer((context) => context.accept(), {
      onExec: (channel, command) => {
        const child = spawn("/bin/sh", ["-c", command]);
        channel.pipe(child.stdin).on("error", () => {});
        child.stdout.pipe(channel, { end: false });
        child.stderr.pipe(channel.stderr, { end: false });
        // Neither a code nor a signal.
        child.once("close", () => channel.end());
        closing.push(() => child.kill("SIGKILL"));
      },
    });
    const made = environment(port);
    expect(await made.exec("exit 3")).toMatchObject({ exitCode: 3 });
    await expect(made.exec("echo said; kill -KILL $$; sleep 0.1")).rejects.toMatchObject({
      code: "EXECUTION_UNKNOWN",
      details: { output: "said\n" },
    });
    expect(await made.exec("echo next")).toMatchObject({ output: "next\n", exitCode: 0 });
  });

  it("quotes a server that gives no shell", async () => {
    const { port } = await fakeServer((context) => context.accept(), {
      onExec: (channel) => {
        channel.write("Hi me! You've successfully authenticated, but there is no shell access.\n");
        channel.exit(1);
        channel.end();
      },
    });
    await expect(environment(port).start()).rejects.toMatchObject({
      code: "SSH_SESSION_REFUSED",
      message: expect.stringContaining("there is no shell access"),
    });
  });

  it("sends no credential to a host whose key is unknown, changed or revoked", async () => {
    const key = makeKey(folder.path, "id");
    const options = { identityFiles: [key], password: "hunter2" };
    const { port, tried } = await fakeServer((context) => context.reject());
    const file = join(folder.path, "known_hosts");
    const good = readFileSync(file, "utf8");
    writeFileSync(file, "");
    await expect(environment(port, options).start()).rejects.toMatchObject({ code: "SSH_HOST_KEY_UNKNOWN" });
    writeFileSync(file, `[127.0.0.1]:${port} ${publicKey(key)}\n`);
    await expect(environment(port, options).start()).rejects.toMatchObject({
      code: "SSH_HOST_KEY_CHANGED",
      message: expect.stringMatching(new RegExp(`SHA256:\\S+ in ${file}:1 to SHA256:`)),
    });
    await expect(environment(port, { ...options, knownHosts: "accept-new" }).start()).rejects.toMatchObject({
      code: "SSH_HOST_KEY_CHANGED",
    });
    writeFileSync(file, `${good}@revoked * ${publicKey(join(folder.path, "host_ed25519"))}\n`);
    await expect(environment(port, options).start()).rejects.toMatchObject({ code: "SSH_HOST_KEY_REVOKED" });
    expect(tried).toEqual([]);
  });

  it("SSH-14: does not even connect when a known_hosts file cannot be read", async () => {
    let connections = 0;
    const port = await listen((socket) => {
      connections += 1;
      socket.destroy();
    });
    mkdirSync(join(folder.path, "known_hosts"));
    for (const knownHosts of ["strict", "accept-new"] as const) {
      await expect(environment(port, { knownHosts }).start()).rejects.toMatchObject({
        code: "SSH_KNOWN_HOSTS_UNREADABLE",
      });
    }
    expect(connections).toBe(0);
  });

  it("SSH-15: agrees on the type by which the host is known", async () => {
    const { port, tried } = await fakeServer((context) => context.reject(["publickey"]), {
      types: ["rsa", "ed25519"],
      known: ["rsa"],
    });
    await expect(environment(port).start()).rejects.toMatchObject({ code: "SSH_AUTHENTICATION_FAILED" });
    expect(tried).toEqual(["none"]);
  });

  it("records a new host's key when asked to, once it has proved that it holds it", async () => {
    const { port } = await fakeServer((context) => context.reject([]));
    const file = join(folder.path, "known_hosts");
    writeFileSync(file, "");
    for (const _ of [1, 2]) {
      await expect(environment(port, { knownHosts: "accept-new" }).start()).rejects.toMatchObject({
        code: "SSH_AUTHENTICATION_FAILED",
      });
    }
    const [type, base64] = publicKey(join(folder.path, "host_ed25519")).split(" ");
    expect(readFileSync(file, "utf8")).toBe(`[127.0.0.1]:${port} ${type} ${base64}\n`);
  });

  it("goes on with the keys of files when the agent does not answer", async () => {
    const { port, tried } = await fakeServer((context) => context.reject(["publickey"]));
    const key = makeKey(folder.path, "id");
    const agent = join(folder.path, "agent");
    await expect(environment(port, { identityFiles: [key], agent }).start()).rejects.toMatchObject({
      message: expect.stringContaining(`not tried: the agent at ${agent} does not answer`),
    });
    expect(tried).toEqual(["none", "publickey"]);
  });
});

describe("createSshEnvironment()", () => {
  it.each([
    ["a host that looks like an option", { host: "-oProxyCommand=touch x" }],
    ["a user that looks like an option", { user: "-x" }],
    ["a host with a space", { host: "a b" }],
    ["a port that is none", { port: 70_000 }],
    ["a workspace that is relative", { workspace: "srv/app" }],
    ["a workspace of the kernel's", { workspace: "/proc/self" }],
  ])("refuses %s", (_, more) => {
    expect(() => environment(22, more)).toThrow(expect.objectContaining({ code: "INVALID_SPEC" }));
  });
});

describe("health()", () => {
  it("tells a server that answers from one that does not, without logging in", async () => {
    const { port, tried } = await fakeServer((context) => context.reject());
    await expect(environment(port).health()).resolves.toMatchObject({ healthy: true });
    await expect(environment(await freePort()).health()).resolves.toMatchObject({
      healthy: false,
      code: "SSH_UNREACHABLE",
    });
    const silent = await listen(() => {});
    await expect(environment(silent).health()).resolves.toMatchObject({
      healthy: false,
      code: "SSH_HANDSHAKE_FAILED",
    });
    expect(tried).toEqual([]);
  });

  it("does not call a host healthy that has just refused, until it lets in", async () => {
    let isOpen = false;
    const { port } = await fakeServer((context) => {
      if (isOpen) context.accept();
      else context.reject(["publickey"]);
    });
    const refused = environment(port);
    await expect(refused.start()).rejects.toMatchObject({ code: "SSH_AUTHENTICATION_FAILED" });
    await expect(refused.health()).resolves.toMatchObject({
      healthy: false,
      code: "SSH_AUTHENTICATION_FAILED",
    });
    isOpen = true;
    await expect(refused.health()).resolves.toMatchObject({ healthy: true });
  });

  it.each([
    ["SSH_AUTHENTICATION_FAILED", "known_hosts"],
    ["SSH_HOST_KEY_UNKNOWN", "no_known_hosts"],
  ])("hides the tools at once where a start met %s, though the host answered before", async (code, file) => {
    const { port } = await fakeServer((context) => context.reject(["publickey"]));
    const box = environment(port, { knownHostsFiles: [join(folder.path, file)] });
    await using moorage = await createMoorage({
      environments: { box },
      stateDir: join(folder.path, "state"),
    });
    // All that is known is that a server answers.
    expect((await moorage.tools()).hidden).toEqual([]);
    await expect(moorage.start()).rejects.toMatchObject({ code });
    expect((await moorage.tools()).visible).toEqual([]);
    // Nor does another question that comes between bring them back.
    await moorage.health();
    await expect(moorage.start()).rejects.toMatchObject({ code });
    expect((await moorage.tools()).visible).toEqual([]);
  });
});
