/** Children that outlive their command: the call returns, tells of them, and never hears of them again. */
import { expect } from "vitest";
import type { ExecResult } from "../../environments/base.ts";
import {
  type Case,
  type Cases,
  endAll,
  inBash,
  living,
  result,
  scratch,
  token,
  uniqueSeconds,
  until,
} from "./support.ts";

/** A call that leaves a child without an end must return soon, whatever the child holds, on a busy machine too. */
const SOON_MS = 20_000;

const oneLeft = (seconds: string): ExecResult["leftRunning"] => [
  { pid: expect.any(Number), command: expect.stringContaining(`sleep ${seconds}`) },
];

/** Runs `script`, in which SECONDS is a unique number, and expects one `sleep` to be left and told of. */
function leavesOne(script: string, expected: Partial<ExecResult> = {}): Case {
  return async ({ environment }) => {
    const seconds = uniqueSeconds();
    await using session = await environment.openSession();
    const outcome = await session.exec(script.replaceAll("SECONDS", seconds));
    expect(outcome).toEqual(result({ output: "done\n", leftRunning: oneLeft(seconds), ...expected }));
    expect(outcome.durationMs).toBeLessThan(SOON_MS);
    expect(await session.exec("echo next")).toEqual(result({ output: "next\n" }));
    expect(await living(environment, seconds)).toBe(1);
    await endAll(environment, seconds);
  };
}

export const leftBehind = {
  "a child that holds the outputs does not hold the call (SH-01)": leavesOne("sleep SECONDS & echo done"),
  "a child that holds nothing is told of too": leavesOne(
    "sleep SECONDS >/dev/null 2>&1 </dev/null & echo done",
  ),
  "a child that holds stderr alone does not hold the call": leavesOne("sleep SECONDS >/dev/null & echo done"),
  "a child of setsid does not hold the call (SH-04)": leavesOne("setsid sleep SECONDS & echo done"),
  "a child of nohup does not hold the call": leavesOne("nohup sleep SECONDS 2>/dev/null & echo done"),
  "a disowned child does not hold the call (SH-04)": inBash(leavesOne("sleep SECONDS & disown; echo done")),
  "a double fork does not hold the call": leavesOne("(sleep SECONDS &); echo done"),
  "a double fork in a session of its own does not hold the call": leavesOne(
    "(setsid sh -c 'exec sleep SECONDS' &); echo done",
  ),
  "a child with an empty environment does not hold the call": leavesOne("env -i sleep SECONDS & echo done"),
  "a child of a call that fails does not hold it": leavesOne("sleep SECONDS & echo done; exit 3", {
    exitCode: 3,
  }),
  "a child of a call that ends by `exec` does not hold it": leavesOne("sleep SECONDS & exec echo done"),
  "a child that ignores HUP does not hold the call": leavesOne(
    "(trap '' HUP; exec sleep SECONDS) & echo done",
  ),
  "a child does not hold a call with streams apart": async ({ environment }) => {
    const seconds = uniqueSeconds();
    const outcome = await environment.exec(`sleep ${seconds} & echo out; echo err >&2`, {
      output: "separate",
    });
    expect(outcome).toEqual(result({ stdout: "out\n", stderr: "err\n", leftRunning: oneLeft(seconds) }));
    expect(outcome.durationMs).toBeLessThan(SOON_MS);
    await endAll(environment, seconds);
  },
  "a child does not hold an argv command": async ({ environment }) => {
    const seconds = uniqueSeconds();
    expect(await environment.exec(["sh", "-c", `sleep ${seconds} & echo done`])).toEqual(
      result({ output: "done\n", leftRunning: oneLeft(seconds) }),
    );
    await endAll(environment, seconds);
  },
  "a child's late bytes never show in later results (SH-03)": async ({ environment }) => {
    const name = token();
    await using session = await environment.openSession();
    const begun = await session.exec(
      `sh -c 'while :; do echo tick; echo tock >&2; sleep 0.02 || sleep 1; done' ${name} & sleep 1; echo end`,
    );
    expect(begun).toMatchObject({
      exitCode: 0,
      output: expect.stringMatching(/^(tick\n|tock\n)+end\n(tick\n|tock\n)*$/),
    });
    expect(begun.durationMs).toBeLessThan(1_000 + SOON_MS);
    for (let call = 0; call < 20; call += 1) {
      expect(await session.exec(`sleep 0.05 || sleep 1; echo ${call}`)).toEqual(
        result({ output: `${call}\n` }),
      );
      expect(await environment.exec(`echo ${call}`)).toEqual(result({ output: `${call}\n` }));
    }
    expect(await living(environment, name)).toBeGreaterThan(0);
    await endAll(environment, name);
  },
  "a child that floods does not hold the call nor the next ones": async ({ environment }) => {
    const name = token();
    await using session = await environment.openSession();
    const begun = await session.exec(`sh -c 'while :; do echo ${name}; done' ${name} & echo end`);
    expect(begun.durationMs).toBeLessThan(SOON_MS);
    expect(begun.exitCode).toBe(0);
    for (let call = 0; call < 5; call += 1) {
      expect(await session.exec("echo on")).toEqual(result({ output: "on\n" }));
    }
    await endAll(environment, name);
  },
  "a child goes on with its own work": async ({ environment }) => {
    const folder = await scratch(environment);
    await using session = await environment.openSession();
    await session.exec(`(sleep 1; echo late; echo late > ${folder}/late) & true`);
    await until(
      async () => (await environment.exec(`cat ${folder}/late 2>/dev/null`)).output === "late\n",
      "the child has written its file",
    );
    expect(await session.exec("echo on")).toEqual(result({ output: "on\n" }));
  },
  "a child of a pipe's end does not hold the call": async ({ environment }) => {
    const seconds = uniqueSeconds();
    const outcome = await environment.exec(`sleep ${seconds} | echo done & sleep 1`);
    expect(outcome).toMatchObject({ exitCode: 0, output: "done\n", leftRunning: oneLeft(seconds) });
    await endAll(environment, seconds);
  },
  "a child that ends in time is not told of": async ({ environment }) => {
    await using session = await environment.openSession();
    expect(await session.exec("sleep 0 & wait; true & wait; echo done")).toEqual(
      result({ output: "done\n" }),
    );
  },
  "a child is told of once, by the call that left it": async ({ environment }) => {
    const seconds = uniqueSeconds();
    await using session = await environment.openSession();
    expect((await session.exec(`sleep ${seconds} &`)).leftRunning).toEqual(oneLeft(seconds));
    expect((await session.exec("true")).leftRunning).toEqual([]);
    await endAll(environment, seconds);
  },
  "many children are all told of": async ({ environment }) => {
    const seconds = uniqueSeconds();
    const { leftRunning } = await environment.exec(
      `for i in 1 2 3 4 5; do sleep ${seconds} & done; setsid sleep ${seconds} &`,
    );
    expect(leftRunning.map(({ command }) => command)).toEqual(
      Array.from({ length: 6 }, () => `sleep ${seconds}`),
    );
    await endAll(environment, seconds);
  },
  "a foreground command is waited for, also in a group of its own": async ({ environment }) => {
    expect(
      await environment.exec(
        "setsid -w sh -c 'sleep 1; echo waited' 2>/dev/null || { sleep 1; echo waited; }",
      ),
    ).toMatchObject({
      output: expect.stringContaining("waited\n"),
    });
  },
  "the call after 50 children answers": async ({ environment }) => {
    const seconds = uniqueSeconds();
    await using session = await environment.openSession();
    for (let call = 0; call < 10; call += 1) {
      expect(
        await session.exec(`for i in 1 2 3 4 5; do sleep ${seconds} & done; echo ${call}`),
      ).toMatchObject({ output: `${call}\n` });
    }
    expect(await session.exec("echo on")).toEqual(result({ output: "on\n" }));
    expect(await living(environment, seconds)).toBe(50);
    await endAll(environment, seconds);
  },
} satisfies Cases;
