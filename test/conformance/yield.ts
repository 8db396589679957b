/** Foreground calls that outlast their time and go on as background processes. */
import { expect } from "vitest";
import {
  type Cases,
  expectCode,
  living,
  result,
  scratch,
  uniqueSeconds,
  until,
  untilGone,
} from "./support.ts";

export const yielding = {
  "a call that outlasts its yield time becomes a process, and the session stays usable": async ({
    environment,
  }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession();
    await session.exec("export KEPT=1; cd /");
    const outcome = await session.exec(
      `echo before; until [ -e ${folder}/go ]; do sleep 1; done; echo after; exit 5`,
      { yieldMs: 2_000 },
    );
    expect(outcome).toEqual(
      result({
        exitCode: null,
        // What a loaded machine has printed by then.
        output: expect.toBeOneOf(["", "before\n"]),
        cwd: "/",
        processId: expect.any(String),
        outputId: expect.toSatisfy((id: unknown) => id === null || typeof id === "string", "an id or none"),
        leftRunning: expect.any(Array),
      }),
    );
    expect(await session.exec('echo "next $KEPT"; pwd')).toEqual(result({ output: "next 1\n/\n", cwd: "/" }));
    const yielded = await environment.processes.get(outcome.processId ?? "");
    expect(await yielded.info()).toMatchObject({ id: outcome.processId, status: "running", exitCode: null });
    await environment.exec(`: > ${folder}/go`);
    expect(await yielded.wait({ timeoutMs: 15_000 })).toMatchObject({
      reason: "exit",
      info: { id: outcome.processId, status: "exited", exitCode: 5 },
    });
    expect((await yielded.log()).text).toBe("before\nafter\n");
    expect(await session.exec("echo on")).toEqual(result({ output: "on\n" }));
  },
  "a call that ends before its yield time is an ordinary one": async ({ environment }) => {
    await using session = await environment.openSession();
    expect(await session.exec("echo quick; exit 3", { yieldMs: 20_000 })).toEqual(
      result({ exitCode: 3, output: "quick\n" }),
    );
  },
  "a stateless call can yield": async ({ environment }) => {
    const seconds = uniqueSeconds();
    const outcome = await environment.exec(`echo before; sleep ${seconds}`, { yieldMs: 2_000 });
    expect(outcome).toMatchObject({ exitCode: null, timedOut: false, aborted: false });
    const yielded = await environment.processes.get(outcome.processId ?? "");
    expect(await yielded.wait({ logPattern: "before\n", timeoutMs: 15_000 })).toMatchObject({
      reason: "log",
    });
    const { info, survivors } = await yielded.kill();
    expect({ status: info.status, survivors }).toEqual({ status: "killed", survivors: [] });
    await untilGone(environment, seconds);
  },
  "a yielded command whose shell a signal ends has that signal's exit code": async ({ environment }) => {
    const folder = await scratch(environment);
    const outcome = await environment.exec(
      `until [ -e ${folder}/go ]; do sleep 0.1 || sleep 1; done; kill -9 $$`,
      { yieldMs: 300 },
    );
    const yielded = await environment.processes.get(outcome.processId ?? "");
    await environment.exec(`: > ${folder}/go`);
    expect(await yielded.wait({ timeoutMs: 15_000 })).toMatchObject({
      reason: "exit",
      info: { status: "exited", exitCode: 137 },
    });
  },
  "a yield signal yields at once": async ({ environment }) => {
    const seconds = uniqueSeconds();
    await using session = await environment.openSession();
    const controller = new AbortController();
    const outcome = await session.exec(`echo before; sleep ${seconds}`, {
      yieldSignal: controller.signal,
      onOutput: () => controller.abort(),
    });
    expect(outcome).toMatchObject({ exitCode: null, aborted: false, processId: expect.any(String) });
    await (await environment.processes.get(outcome.processId ?? "")).kill();
    expect(await living(environment, seconds)).toBe(0);
  },
  "a yielded command outlives its session": async ({ environment }) => {
    const seconds = uniqueSeconds();
    const session = await environment.openSession();
    const outcome = await session.exec(`setsid sleep ${seconds} & sleep ${seconds}`, { yieldMs: 300 });
    await session.close();
    await until(async () => (await living(environment, seconds)) === 2, "both run");
    const yielded = await environment.processes.get(outcome.processId ?? "");
    expect((await yielded.kill()).survivors).toEqual([]);
    expect(await living(environment, seconds)).toBe(0);
  },
  "a yielded command is listed": async ({ environment }) => {
    const seconds = uniqueSeconds();
    const outcome = await environment.exec(`sleep ${seconds}`, { yieldMs: 300 });
    const listed = (await environment.processes.list()).find(({ id }) => id === outcome.processId);
    expect(listed).toMatchObject({
      command: `sleep ${seconds}`,
      status: "running",
      cwd: environment.workspace,
      pty: false,
    });
    await (await environment.processes.get(outcome.processId ?? "")).kill();
  },
  "a yielded command keeps a large log": async ({ environment }) => {
    const outcome = await environment.exec("seq 1 100000; sleep 2; seq 100001 200000; echo END", {
      yieldMs: 1_000,
      captureBytes: 1_000,
    });
    const yielded = await environment.processes.get(outcome.processId ?? "");
    expect(await yielded.wait({ timeoutMs: 20_000 })).toMatchObject({ reason: "exit" });
    const { text, totalBytes } = await yielded.log({ offset: -10 });
    expect({ text, totalBytes }).toEqual({ text: "00000\nEND\n", totalBytes: 1_288_899 });
    expect((await yielded.log({ offset: 0, maxBytes: 4 })).text).toBe("1\n2\n");
  },
  "a yielded command is told of in no later call": async ({ environment }) => {
    const name = uniqueSeconds();
    await using session = await environment.openSession();
    const outcome = await session.exec(`sh -c 'while :; do echo tick; sleep 0.05 || sleep 1; done' ${name}`, {
      yieldMs: 300,
    });
    for (let call = 0; call < 10; call += 1) {
      expect(await session.exec(`echo ${call}`)).toEqual(result({ output: `${call}\n` }));
    }
    await (await environment.processes.get(outcome.processId ?? "")).kill();
    await expectCode(environment.processes.get("no-such-process"), "PROCESS_MISSING");
  },
} satisfies Cases;
