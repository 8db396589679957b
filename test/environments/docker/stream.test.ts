import util from "node:util";
import { describe, expect, it, vi } from "vitest";
import { DockerClient } from "../../../environments/docker/client.ts";
import { openExec } from "../../../environments/docker/stream.ts";
import type { ShellStream } from "../../../environments/shell/stream.ts";
import { CONTAINER_ID, FakeDaemon, type FakeExec, frame } from "./fake-daemon.ts";
import { fakeTarget, finish, until } from "./read-stream.ts";

const request = { argv: ["program", "with space"], env: { TOKEN: "secret" } };

async function open(daemon: FakeDaemon, options?: { tty?: boolean }) {
  const target = await fakeTarget(new DockerClient(() => daemon.endpoint));
  return { target, stream: await openExec(target, request, options) };
}

/** A program that reads and drops its input until its end. */
const reader = ({ socket }: FakeExec) => {
  socket.on("end", () => socket.end()).resume();
};

const ended = (exitCode: number) => ({ exitCode, signal: null, lost: null });

describe("openExec()", () => {
  it("gives the bytes of each stream without their headers (DK-01)", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = ({ socket, report }) => {
      socket.write(Buffer.concat([frame(1, "hel"), frame(2, "oops"), frame(1, "lo")]));
      report({ Running: false, ExitCode: 0 });
      socket.end();
    };
    const { stream } = await open(daemon);
    expect(await finish(stream)).toEqual({ ...ended(0), stdout: "hello", stderr: "oops" });
  });

  it("costs the same however many connections are open beside it", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = reader;
    const target = await fakeTarget(new DockerClient(() => daemon.endpoint));
    const streams: ShellStream[] = [];
    for (let open = 0; open < 8; open += 1) streams.push(await openExec(target, request));
    // The library's log, which is made whether somebody reads it or not.
    const printed = vi.spyOn(util, "inspect");
    try {
      streams.push(await openExec(target, request));
      const lengths = printed.mock.results.map(({ value }) => String(value).length);
      expect(Math.max(0, ...lengths)).toBeLessThan(10_000);
    } finally {
      printed.mockRestore();
    }
    await Promise.all(streams.map((stream) => stream.close()));
  });

  it("passes variables in the program's environment and never in its arguments", async () => {
    await using daemon = await FakeDaemon.listen();
    const { stream } = await open(daemon);
    await finish(stream);
    const [create] = daemon.asked("POST", /\/exec$/);
    expect(create?.body).toMatchObject({ Cmd: request.argv, Env: ["TOKEN=secret"], WorkingDir: "/" });
    expect(daemon.requests.map(({ path, query }) => `${path}?${query}`).join()).not.toContain("secret");
  });

  it("reads raw bytes with a terminal (DK-03)", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = ({ socket, report }) => {
      report({ Running: false, ExitCode: 0 });
      socket.end("\x02xyz12345");
    };
    const { stream } = await open(daemon, { tty: true });
    expect((await finish(stream)).stdout).toBe("\x02xyz12345");
  });

  it.each([0, 7])("waits for exit code %i when the engine's record lags (DK-05, DK-06)", async (exitCode) => {
    await using daemon = await FakeDaemon.listen();
    daemon.staleInspects = 2;
    daemon.onExec = ({ socket, report }) => {
      report({ Running: false, ExitCode: exitCode });
      socket.end();
    };
    const { stream } = await open(daemon);
    expect(await finish(stream)).toEqual({ ...ended(exitCode), stdout: "", stderr: "" });
    expect(daemon.asked("GET", /^\/exec\//).length).toBe(3);
  });

  it("keeps output that comes after the end of stdin (DK-07, DK-08)", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = ({ socket, report }) => {
      let got = "";
      socket.on("data", (chunk) => {
        got += chunk;
      });
      socket.on("end", () => {
        setTimeout(() => {
          report({ Running: false, ExitCode: 4 });
          socket.end(frame(1, `late ${got.length}\n`));
        }, 300);
      });
    };
    const { stream } = await open(daemon);
    expect(await finish(stream, "test\n")).toEqual({ ...ended(4), stdout: "late 5\n", stderr: "" });
  });

  it.each([
    ["before", undefined],
    ["after", true],
  ])(
    "tells whether bytes written %s the container's end had a taker, also when its news are late",
    async (when, undelivered) => {
      await using daemon = await FakeDaemon.listen();
      const taken = Promise.withResolvers<void>();
      daemon.onExec = ({ socket }) => {
        socket.once("data", () => taken.resolve());
      };
      const { stream } = await open(daemon);
      const margin = () => new Promise((resolve) => setTimeout(resolve, 20)); // two clocks are compared
      let endedAt = Date.now();
      await margin();
      stream.stdin.write("bytes");
      await taken.promise;
      await margin();
      if (when === "before") endedAt = Date.now();
      daemon.emit("die", {}, endedAt);
      const { lost } = await stream.ended;
      expect({ code: lost?.code, undelivered: lost?.details.undelivered }).toEqual({
        code: "ENVIRONMENT_LOST",
        undelivered,
      });
    },
  );

  it("knows bytes as undelivered that it had not sent when it learned of the container's end", async () => {
    await using daemon = await FakeDaemon.listen();
    const { stream, target } = await open(daemon);
    // Both are met in one turn: the write, which first looks for news, and the news themselves.
    await new Promise<void>((resolve) => {
      target.watch.listen({
        gone: () => {
          stream.stdin.write("bytes");
          resolve();
        },
      });
      daemon.emit("die");
    });
    expect((await stream.ended).lost?.details).toMatchObject({ undelivered: true });
  });

  it("holds the engine back while the reader lags (DK-04)", async () => {
    await using daemon = await FakeDaemon.listen();
    const block = frame(1, Buffer.alloc(256 * 1024));
    let sent = 0;
    daemon.onExec = ({ socket, report }) => {
      const send = (): void => {
        while (sent < 64_000_000) {
          sent += block.length;
          if (socket.write(block)) continue;
          socket.once("drain", send);
          return;
        }
        report({ Running: false, ExitCode: 0 });
        socket.end();
      };
      send();
    };
    const { stream } = await open(daemon);
    stream.stderr.resume();
    let before = -1;
    // Nobody reads: what was sent stops growing long before all of it.
    await until(async () => {
      const settled = sent === before;
      before = sent;
      await new Promise((resolve) => setTimeout(resolve, 50));
      return settled;
    });
    expect(sent).toBeLessThan(8_000_000);
    let received = 0;
    let held = 0;
    for await (const chunk of stream.stdout) {
      received += chunk.length;
      held = Math.max(held, sent - received);
    }
    expect(received).toBeGreaterThan(63_000_000);
    expect(held).toBeLessThan(8_000_000);
    expect(await stream.ended).toEqual(ended(0));
    await stream.close();
  });

  it("ends with the program while children hold its stream", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = ({ id, socket, report }) => {
      reader({ id, socket, report, config: {} });
      socket.write(frame(1, "done"));
      report({ Running: false, ExitCode: 3 });
      daemon.emit("exec_die", { execID: id, exitCode: "3" });
    };
    const { stream } = await open(daemon);
    stream.stdout.resume();
    expect(await stream.ended).toEqual(ended(3));
    await stream.close();
    await until(() => daemon.connections.size === 1); // the watch's own
  });

  it("tells output that was cut inside a frame as lost, whatever the exit code", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = ({ socket, report }) => {
      report({ Running: false, ExitCode: 0 });
      socket.end(frame(1, "hello").subarray(0, 10));
    };
    const { stream } = await open(daemon);
    expect((await finish(stream)).lost?.message).toContain("inside a frame");
  });

  it("tells a container that goes away under its program", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = () => {
      daemon.state = { Running: false, Paused: false, Status: "exited" };
      daemon.emit("die");
    };
    const { stream } = await open(daemon);
    const { lost } = await stream.ended;
    expect({ code: lost?.code, details: lost?.details }).toEqual({
      code: "ENVIRONMENT_LOST",
      details: { container: CONTAINER_ID },
    });
    await stream.close();
  });

  it("says of bytes for a dead container that they were not delivered", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = () => {};
    const { stream } = await open(daemon);
    daemon.emit("die");
    stream.stdin.write("command\n");
    expect((await stream.ended).lost?.details).toEqual({ container: CONTAINER_ID, undelivered: true });
    await stream.close();
  });

  it("delivers after a short pause", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = ({ socket, report }) => {
      socket.once("data", (chunk) => {
        report({ Running: false, ExitCode: 0 });
        socket.end(frame(1, chunk));
      });
    };
    const { stream, target } = await open(daemon);
    daemon.emit("pause");
    await until(() => target.watch.paused);
    stream.stdin.write("hi\n");
    daemon.emit("unpause");
    let text = "";
    stream.stdout.on("data", (chunk) => {
      text += chunk;
    });
    stream.stderr.resume();
    expect(await stream.ended).toEqual(ended(0));
    expect(text).toBe("hi\n");
    await stream.close();
  });

  it.each([
    ["Container abc is paused, unpause the container before exec", 409, "CONTAINER_PAUSED"],
    ["Container abc is not running", 409, "CONTAINER_MISSING"],
    ["No such container: abc", 404, "CONTAINER_MISSING"],
    ["something else", 500, "ENVIRONMENT_UNAVAILABLE"],
  ])("throws for %j (%i) by what it means", async (message, status, code) => {
    await using daemon = await FakeDaemon.listen();
    daemon.on("POST", /\/exec$/, () => ({ status, json: { message } }));
    await expect(open(daemon)).rejects.toMatchObject({ code });
  });

  it.each([
    ['exec: "program": executable file not found in $PATH: unknown', 127, { exitCode: 127, code: undefined }],
    ["transport endpoint is not connected: unknown", 126, { exitCode: null, code: "ENVIRONMENT_LOST" }],
    [
      'chdir to cwd ("/w") set in config.json failed: no such file',
      126,
      { exitCode: null, code: "ENVIRONMENT_LOST" },
    ],
  ])("never shows the engine's report %j as output (DK-38)", async (text, exitCode, expected) => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = ({ socket, report }) => {
      report({ Running: false, ExitCode: exitCode, Pid: 0 });
      socket.end(frame(1, `OCI runtime exec failed: exec failed: ${text}\r\n`));
    };
    const { stream } = await open(daemon);
    const end = await finish(stream);
    expect({ exitCode: end.exitCode, code: end.lost?.code, stdout: end.stdout }).toEqual({
      ...expected,
      stdout: "",
    });
  });

  it("does nothing for a caller that has cancelled", async () => {
    await using daemon = await FakeDaemon.listen();
    const target = await fakeTarget(new DockerClient(() => daemon.endpoint));
    const abortSignal = AbortSignal.abort();
    await expect(openExec(target, { ...request, abortSignal })).rejects.toMatchObject({ code: "ABORTED" });
    expect(daemon.asked("POST", /exec/)).toEqual([]);
  });

  it("does not end with a signal that fires after the start", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = ({ socket, report }) => {
      socket.once("data", () => {
        report({ Running: false, ExitCode: 0 });
        socket.end(frame(1, "fine"));
      });
    };
    const target = await fakeTarget(new DockerClient(() => daemon.endpoint));
    const controller = new AbortController();
    const stream = await openExec(target, { ...request, abortSignal: controller.signal });
    controller.abort();
    expect((await finish(stream, "x")).stdout).toBe("fine");
  });

  it("connects to the engine's events again and learns what it missed", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = () => {};
    const { stream } = await open(daemon);
    const before = daemon.asked("GET", /^\/events$/).length;
    daemon.state = { Running: false, Paused: false, Status: "exited" };
    daemon.dropWatchers();
    expect((await stream.ended).lost?.code).toBe("ENVIRONMENT_LOST");
    expect(daemon.asked("GET", /^\/events$/).length).toBe(before + 1);
    await stream.close();
  });
});

// Each waits for what does not come.
describe.concurrent("openExec() in the end", () => {
  it("never makes up an exit code that the engine does not give", { tags: ["slow"] }, async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = ({ socket, report }) => {
      report({ Running: false, ExitCode: null });
      socket.end();
    };
    const { stream } = await open(daemon);
    const end = await finish(stream);
    expect({ exitCode: end.exitCode, code: end.lost?.code }).toEqual({
      exitCode: null,
      code: "EXECUTION_UNKNOWN",
    });
  });

  it("tells a connection that breaks, with the program running on", { tags: ["slow"] }, async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.onExec = ({ socket }) => {
      socket.write(frame(1, "part"));
      socket.destroy();
    };
    const { stream } = await open(daemon);
    const end = await finish(stream);
    expect({ stdout: end.stdout, exitCode: end.exitCode, code: end.lost?.code }).toEqual({
      stdout: "part",
      exitCode: null,
      code: "EXECUTION_UNKNOWN",
    });
  });

  it("tells an engine that forgot the program, as a restart makes it", async () => {
    await using daemon = await FakeDaemon.listen();
    daemon.on("GET", /^\/exec\//, () => ({ status: 404, json: { message: "No such exec instance: x" } }));
    const { stream } = await open(daemon);
    expect((await finish(stream)).lost?.code).toBe("EXECUTION_UNKNOWN");
  });

  it("keeps bytes from a paused container, and tells the pause in time (DK-21)", async () => {
    await using daemon = await FakeDaemon.listen();
    let received = "";
    daemon.onExec = ({ socket }) => {
      socket.on("data", (chunk) => {
        received += chunk;
      });
    };
    const { stream, target } = await open(daemon);
    daemon.emit("pause");
    await until(() => target.watch.paused);
    const startedAt = performance.now();
    stream.stdin.write("rm -rf x\n");
    const { lost } = await stream.ended;
    expect(performance.now() - startedAt).toBeLessThan(5_000);
    expect({ code: lost?.code, details: lost?.details }).toEqual({
      code: "CONTAINER_PAUSED",
      details: { container: CONTAINER_ID, undelivered: true },
    });
    daemon.emit("unpause");
    await until(() => !target.watch.paused);
    await stream.close();
    expect(received).toBe("");
  });
});
