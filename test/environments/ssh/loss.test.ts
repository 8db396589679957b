/** Connections that break, servers that allow little, and what is left of it all. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { listSsh, reapSsh } from "../../../environments/ssh/index.ts";
import { isMoorageError } from "../../../src/errors.ts";
import { makePlace } from "./places.ts";
import { canRun, processesWith, sshdObstacle, uniqueSeconds, until } from "./sshd.ts";

/** Sockets that this process has open. */
function openSockets(): number {
  return readdirSync("/proc/self/fd").filter((descriptor) => {
    try {
      return readlinkSync(`/proc/self/fd/${descriptor}`).startsWith("socket:");
    } catch {
      return false;
    }
  }).length;
}

describe.runIf(canRun("ssh losses", sshdObstacle()))("a connection", () => {
  it("that is killed in mid-command gives EXECUTION_UNKNOWN, and the session comes back as it was", async () => {
    await using place = await makePlace();
    const environment = place.make();
    const session = await environment.openSession();
    await session.exec("cd /usr; export KEPT=yes; f() { echo function; }");
    const background = await environment.processes.start("while :; do echo tick; sleep 0.1; done");
    const seconds = uniqueSeconds();
    const cut = session.exec(`echo before; sleep ${seconds}; echo after`);
    const failure = cut.catch((error: unknown) => error);
    await until(() => processesWith(`sleep\0${seconds}`).length > 0, "the command runs");
    await place.sshd.dropConnections();
    expect(await failure).toMatchObject({ code: "EXECUTION_UNKNOWN", details: { output: "before\n" } });
    const next = await session.exec("pwd; echo $KEPT; f");
    expect(next).toMatchObject({ exitCode: 0, output: "/usr\nyes\nfunction\n", cwd: "/usr" });
    expect(next.notes).toEqual([expect.stringMatching(/was lost: .*made again/)]);
    expect(processesWith(`sleep\0${seconds}`)).toEqual([]);
    expect((await session.exec("true")).notes).toEqual([]);
    expect(await background.info()).toMatchObject({ status: "running" });
    const { totalBytes } = await background.log();
    await until(
      async () => (await background.log()).totalBytes > totalBytes,
      "the background process goes on",
    );
    await background.kill();
  });

  it("that is killed ends, with what it leaves behind, nothing that runs on the one after it", async () => {
    await using place = await makePlace();
    const environment = place.make();
    for (let at = 0; at < 2; at += 1) {
      // Our own shell is there too, and cleans up when it finds itself alone.
      await environment.files.writeFile("a", "b");
      const seconds = uniqueSeconds();
      const cut = environment.exec(`sleep ${seconds}`).catch((error: unknown) => error);
      await until(() => processesWith(`sleep\0${seconds}`).length > 0, "the command runs");
      await place.sshd.dropConnections();
      expect(await cut).toMatchObject({ code: "EXECUTION_UNKNOWN" });
      // Longer than such a shell waits between its wish and its blow.
      expect(await environment.exec("echo before; sleep 2.5; echo after; exit 7")).toMatchObject({
        exitCode: 7,
        output: "before\nafter\n",
      });
    }
  });

  it("that is lost ends nothing that runs on another one beside it", { timeout: 60_000 }, async () => {
    await using place = await makePlace();
    const environment = place.make();
    // The shell that cleans up after a loss is on the first connection, which has no room for so many.
    await environment.files.writeFile("first", "");
    const running = Array.from({ length: 14 }, (_, at) =>
      environment.exec(`touch on-${at}; sleep 6; echo ${at}`).then(
        ({ exitCode, output }) => `${exitCode} ${output.trim()}`,
        (error: unknown) => (isMoorageError(error) ? error.code : String(error)),
      ),
    );
    const begun = () =>
      readdirSync(place.account.home).filter((name) => name.startsWith("on-")).length === 14;
    await until(begun, "all commands run");
    const isCleaner = (pid: number) =>
      /MOORAGE_WORKER=[^\0]*\.s\./.test(readFileSync(`/proc/${pid}/environ`, "latin1"));
    const parentOf = (pid: number) =>
      Number(/^PPid:\t(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
    const servers = processesWith(`MOORAGE_WORKER=${environment.id}.`).filter(isCleaner).map(parentOf);
    const server = place.sshd.connections.find((pid) => servers.includes(pid));
    if (server === undefined) throw new Error("The shell that cleans up is on no connection");
    process.kill(server, "SIGKILL");
    const ends = await Promise.all(running);
    const lost = ends.filter((end) => end === "EXECUTION_UNKNOWN").length;
    expect(lost).toBeGreaterThan(0);
    expect(lost).toBeLessThan(14);
    expect(ends).toEqual(ends.map((end, at) => (end === "EXECUTION_UNKNOWN" ? end : `0 ${at}`)));
  });

  it("that was cut between two calls costs no call", async () => {
    await using place = await makePlace();
    const before = openSockets();
    const environment = place.make();
    const session = await environment.openSession();
    await session.exec("cd /usr");
    await place.sshd.kill();
    await until(() => openSockets() <= before, "we have noticed");
    await place.sshd.run();
    const { output, notes } = await session.exec("pwd");
    expect({ output, notes: notes.length }).toEqual({ output: "/usr\n", notes: 1 });
    await environment.files.writeFile("a", "b");
    expect(await environment.health()).toMatchObject({ healthy: true });
  });

  it("that was cut is come back to by files alone, and the next command still hears of it", async () => {
    await using place = await makePlace();
    const before = openSockets();
    const environment = place.make();
    await environment.files.writeFile("a", "b");
    await place.sshd.dropConnections();
    await until(() => openSockets() <= before, "we have noticed");
    expect((await environment.files.readFile("a")).bytes.toString()).toBe("b");
    expect((await environment.exec("true")).notes).toHaveLength(1);
  });

  it("whose loss left a command running that cannot be ended makes stop() say so", async () => {
    await using place = await makePlace();
    const environment = place.make();
    const seconds = uniqueSeconds();
    const running = environment.exec(`sleep ${seconds}`).catch((error: unknown) => error);
    await until(() => processesWith(`sleep\0${seconds}`).length > 0, "the command runs");
    await place.sshd.kill();
    expect(await running).toMatchObject({ code: "EXECUTION_UNKNOWN" });
    await expect(environment.stop()).rejects.toMatchObject({ code: "CLEANUP_FAILED" });
  });

  it("whose loss left a command running is cleaned up after by stop()", async () => {
    await using place = await makePlace();
    const environment = place.make();
    const seconds = uniqueSeconds();
    const running = environment.exec(`setsid sleep ${seconds}`).catch((error: unknown) => error);
    await until(() => processesWith(`sleep\0${seconds}`).length > 0, "the command runs");
    await place.sshd.dropConnections();
    expect(await running).toMatchObject({ code: "EXECUTION_UNKNOWN" });
    await environment.stop();
    expect(processesWith(`sleep\0${seconds}`)).toEqual([]);
  });
});

describe.runIf(canRun("ssh limits", sshdObstacle()))("a server", () => {
  it("SSH-03: with one session per connection runs 200 commands in turn and 30 at once", {
    tags: ["slow"],
    timeout: 120_000,
  }, async () => {
    await using place = await makePlace({ config: ["MaxSessions 1"] });
    const environment = place.make();
    const session = await environment.openSession();
    for (let count = 0; count < 200; count += 1) {
      expect((await session.exec(`echo ${count}`)).output).toBe(`${count}\n`);
    }
    const outputs = await Promise.all(
      Array.from({ length: 30 }, (_, count) => environment.exec(`sleep 0.2; seq ${count} ${count + 2_000}`)),
    );
    for (const [count, { output, exitCode }] of outputs.entries()) {
      expect({ exitCode, lines: output.split("\n").length, first: output.split("\n", 1)[0] }).toEqual({
        exitCode: 0,
        lines: 2_002,
        first: String(count),
      });
    }
  });

  it("with one session per connection ends a command that takes too long, however many run", {
    tags: ["slow"],
    timeout: 60_000,
  }, async () => {
    await using place = await makePlace({ config: ["MaxSessions 1"] });
    const environment = place.make({ maxConnections: 3 });
    const results = await Promise.all(
      Array.from({ length: 6 }, () => environment.exec("sleep 600", { timeoutMs: 2_000 })),
    );
    expect(results.map(({ timedOut }) => timedOut)).toEqual(results.map(() => true));
    expect(results.flatMap(({ survivors }) => survivors)).toEqual([]);
  });

  it("SSH-01: with ten sessions per connection runs 14 commands at once", async () => {
    await using place = await makePlace();
    const environment = place.make();
    const outputs = await Promise.all(
      Array.from({ length: 14 }, (_, count) => environment.exec(`sleep 1; echo ${count}`)),
    );
    expect(outputs.map(({ output }) => output)).toEqual(outputs.map((_, count) => `${count}\n`));
  });

  it("is left without a socket, a connection or a process", { tags: ["slow"], timeout: 60_000 }, async () => {
    await using place = await makePlace();
    const before = openSockets();
    const environment = place.make();
    const session = await environment.openSession();
    for (let count = 0; count < 50; count += 1) await session.exec("true");
    const atRest = { sockets: openSockets(), sessions: place.sshd.connections.length };
    for (let count = 0; count < 150; count += 1) await session.exec("true");
    expect({ sockets: openSockets(), sessions: place.sshd.connections.length }).toEqual(atRest);
    expect(atRest.sockets - before).toBe(1);
    await Promise.all(Array.from({ length: 30 }, () => environment.exec("sleep 0.5 & true")));
    await environment.stop();
    await until(() => place.sshd.connections.length === 0, "the server has no connection left");
    expect(openSockets()).toBe(before);
    const left = () => processesWith(`MOORAGE_WORKER=${environment.id}.`);
    await until(() => left().length === 0, "shells whose connection is gone have ended");
  });

  it("that lets nobody have a session is told so", async () => {
    await using place = await makePlace({ config: ["MaxSessions 0"] });
    await expect(place.make().start()).rejects.toMatchObject({ code: "SSH_SESSION_REFUSED" });
    await until(() => place.sshd.connections.length === 0, "the server is left");
  });
});

describe.runIf(canRun("ssh orphans", sshdObstacle()))("an orchestrator", () => {
  it.each([
    ["leaves nothing running for longer than until the next start", false],
    ["and was to be kept leaves what runs until it is named", true],
  ])("that was killed %s", async (_, keep) => {
    await using place = await makePlace();
    const seconds = uniqueSeconds();
    const stateDir = join(place.folder, "state");
    const options = {
      host: "127.0.0.1",
      port: place.sshd.port,
      user: place.account.name,
      configFile: null,
      agent: null,
      identityFiles: [place.key],
      knownHostsFiles: [place.knownHosts],
      stateDir,
      id: "left",
      keep,
    };
    const program = `
      import { createSshEnvironment } from ${JSON.stringify(join(import.meta.dirname, "../../../environments/ssh/index.ts"))};
      const environment = createSshEnvironment(${JSON.stringify(options)});
      await environment.exec("setsid sleep ${seconds}");`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
      stdio: ["ignore", "inherit", "inherit"],
    });
    await until(() => processesWith(`sleep\0${seconds}`).length > 0, "the command runs");
    child.kill("SIGKILL");
    await once(child, "exit");
    expect((await listSsh({ stateDir })).map(({ owner }) => owner)).toEqual(["dead"]);
    const environment = place.make();
    await environment.start();
    if (keep) {
      expect(processesWith(`sleep\0${seconds}`)).toHaveLength(1);
      const connection = {
        configFile: null,
        agent: null,
        identityFiles: [place.key],
        knownHostsFiles: [place.knownHosts],
      };
      expect(await reapSsh({ stateDir, kept: ["other"] }, connection)).toEqual([]);
      expect(await reapSsh({ stateDir, kept: ["left"] }, connection)).toMatchObject([
        { id: "left", problem: null },
      ]);
    }
    expect(processesWith(`sleep\0${seconds}`)).toEqual([]);
    expect((await listSsh({ stateDir })).map(({ id, owner }) => ({ id, owner }))).toEqual([
      { id: environment.id, owner: "self" },
    ]);
    await environment.stop();
    expect(await listSsh({ stateDir })).toEqual([]);
  });
});
