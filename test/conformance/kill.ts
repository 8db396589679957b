/** Timeouts and aborts end whole trees, and nothing else. */
import { expect } from "vitest";
import type { BaseEnvironment, ExecOptions } from "../../environments/base.ts";
import { limits } from "../../src/limits.ts";
import {
  type Case,
  type Cases,
  cut,
  endAll,
  inBash,
  living,
  result,
  scratch,
  uniqueSeconds,
  until,
  untilGone,
} from "./support.ts";

/** Milliseconds in which a command that was cut must have answered: the two graces, and slack for a slow machine. */
const ANSWER_MS = limits.killGraceMs + limits.killVerifyMs + 20_000;

/** Runs `script` until a timeout, and expects the whole tree to be gone; `SECONDS` in it is a unique number. */
function endsWhole(script: string, output = "begun\n"): Case {
  return async ({ environment }) => {
    const seconds = uniqueSeconds();
    await using session = await environment.openSession();
    await session.exec("export KEPT=1");
    const outcome = await session.exec(script.replaceAll("SECONDS", seconds), { timeoutMs: 1_500 });
    expect(outcome).toEqual(cut("timedOut", { output }));
    expect(outcome.durationMs).toBeLessThan(1_500 + ANSWER_MS);
    expect(await living(environment, seconds)).toBe(0);
    expect(await session.exec('echo "alive $KEPT"')).toEqual(result({ output: "alive 1\n" }));
  };
}

/** Runs `command` with an abort that fires once it is seen running. */
async function abortRunning(
  environment: BaseEnvironment,
  word: string,
  run: (options: ExecOptions) => Promise<unknown>,
) {
  const controller = new AbortController();
  const running = run({ abortSignal: controller.signal });
  await until(async () => (await living(environment, word)) > 0, "the command runs");
  controller.abort();
  return running;
}

export const kill = {
  "a timeout ends the command and keeps its output": endsWhole("echo begun; sleep SECONDS"),
  "a timeout ends a busy loop (DK-11)": async ({ environment }) => {
    const { durationMs, ...outcome } = await environment.exec("echo begun; while :; do :; done", {
      timeoutMs: 1_000,
    });
    expect(outcome).toMatchObject({ timedOut: true, exitCode: null, output: "begun\n", survivors: [] });
    expect(durationMs).toBeLessThan(1_000 + ANSWER_MS);
  },
  "a timeout ends grandchildren (SH-40)": endsWhole(
    "sh -c 'sh -c \"sleep SECONDS & wait\" & wait' & echo begun; wait",
  ),
  "a timeout ends what setsid started (DK-12)": endsWhole("setsid sleep SECONDS & echo begun; sleep SECONDS"),
  "a timeout ends a double fork": endsWhole(
    "(sleep SECONDS &); (setsid sh -c 'sleep SECONDS & sleep SECONDS' &); echo begun; sleep SECONDS",
  ),
  "a timeout ends what ignores TERM, INT and HUP (SH-39)": endsWhole(
    "trap '' TERM INT HUP; echo begun; sleep SECONDS",
  ),
  "a timeout ends a loop that answers TERM with more work": endsWhole(
    "sh -c 'trap \"setsid sleep SECONDS &\" TERM; while :; do sleep SECONDS & wait; done' & echo begun; wait",
  ),
  "a timeout ends a stopped process": endsWhole("sleep SECONDS & kill -STOP $!; echo begun; wait"),
  "a timeout ends a shell that stopped itself": async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("export KEPT=1; cd /");
    expect(await session.exec("kill -STOP $$; echo no", { timeoutMs: 1_000 })).toMatchObject({
      timedOut: true,
      survivors: [],
    });
    expect(await session.exec('pwd; echo "$KEPT"')).toEqual(result({ output: "/\n1\n", cwd: "/" }));
  },
  "a timeout ends what nohup started": endsWhole(
    "nohup sleep SECONDS >/dev/null 2>&1 & echo begun; sleep SECONDS",
  ),
  "a timeout ends a child with an empty environment": endsWhole(
    "env -i sleep SECONDS & echo begun; sleep SECONDS",
  ),
  "a timeout ends a child with an empty environment in a session of its own": endsWhole(
    "setsid env -i sleep SECONDS & echo begun; sleep SECONDS",
  ),
  "a timeout ends background jobs of `set -m`": endsWhole(
    "set -m; sleep SECONDS & echo begun; sleep SECONDS",
  ),
  "a timeout ends every member of a pipe": endsWhole(
    "echo begun; sleep SECONDS | sleep SECONDS | sleep SECONDS",
  ),
  "a timeout ends a command under another name": inBash(
    endsWhole("(exec -a renamed sleep SECONDS) & echo begun; sleep SECONDS"),
  ),
  "a timeout ends `wait` for a child (SH-05)": endsWhole("sleep SECONDS & echo begun; wait"),
  "a timeout ends an argv command": async ({ environment }) => {
    const seconds = uniqueSeconds();
    expect(
      await environment.exec(["sh", "-c", `echo begun; sleep ${seconds} & wait`], { timeoutMs: 1_000 }),
    ).toEqual(cut("timedOut", { output: "begun\n" }));
    expect(await living(environment, seconds)).toBe(0);
  },
  "a timeout keeps output that had no newline yet": endsWhole("printf begun; sleep SECONDS", "begun"),
  "a timeout keeps stdout and stderr apart": async ({ environment }) => {
    expect(
      await environment.exec("echo o; echo e >&2; sleep 60", { timeoutMs: 1_000, output: "separate" }),
    ).toEqual(cut("timedOut", { stdout: "o\n", stderr: "e\n" }));
  },
  "a timeout of a millisecond answers": async ({ environment }) => {
    await using session = await environment.openSession();
    for (let call = 0; call < 3; call += 1) {
      expect(await session.exec("sleep 60", { timeoutMs: 1 })).toEqual(cut("timedOut"));
    }
    expect(await session.exec("echo on")).toEqual(result({ output: "on\n" }));
  },
  "a timeout that is not reached changes nothing (SH-05)": async ({ environment }) => {
    expect(await environment.exec("sleep 1 & wait; echo waited", { timeoutMs: 20_000 })).toEqual(
      result({ output: "waited\n" }),
    );
  },
  "a timeout longer than timers can count never fires": async ({ environment }) => {
    expect(await environment.exec("sleep 1; echo on", { timeoutMs: 2 ** 40 })).toEqual(
      result({ output: "on\n" }),
    );
  },
  "a timeout leaves other commands and sessions alone (DK-13)": async ({ environment }) => {
    const folder = await scratch(environment);
    await using one = await environment.openSession();
    await using two = await environment.openSession();
    const wait = `until [ -e ${folder}/go ]; do sleep 1; done; echo went`;
    const others = [environment.exec(wait, { timeoutMs: 30_000 }), two.exec(wait, { timeoutMs: 30_000 })];
    expect(await one.exec("sleep 60 & sleep 60", { timeoutMs: 500 })).toEqual(cut("timedOut"));
    await environment.exec(`: > ${folder}/go`);
    expect(await Promise.all(others)).toEqual([result({ output: "went\n" }), result({ output: "went\n" })]);
  },
  "a timeout leaves what an earlier call left behind": async ({ environment }) => {
    const seconds = uniqueSeconds();
    await using session = await environment.openSession();
    await session.exec(`sleep ${seconds} >/dev/null 2>&1 </dev/null &`);
    expect(await session.exec("sleep 60", { timeoutMs: 500 })).toEqual(cut("timedOut"));
    expect(await living(environment, seconds)).toBe(1);
    await endAll(environment, seconds);
  },
  "a timeout that passes in the queue counts from the command's start": async ({ environment }) => {
    await using session = await environment.openSession();
    const first = session.exec("sleep 6; echo first");
    const second = session.exec("echo second", { timeoutMs: 5_000 });
    expect(await first).toEqual(result({ output: "first\n" }));
    expect(await second).toEqual(result({ output: "second\n" }));
  },
  "an abort ends the whole tree and keeps the output": async ({ environment }) => {
    const seconds = uniqueSeconds();
    await using session = await environment.openSession();
    for (const target of [environment, session]) {
      const script = `echo begun; setsid sleep ${seconds} & trap '' TERM; sleep ${seconds}`;
      expect(await abortRunning(environment, seconds, (options) => target.exec(script, options))).toEqual(
        cut("aborted", { output: "begun\n" }),
      );
      expect(await living(environment, seconds)).toBe(0);
    }
    expect(await session.exec("echo on")).toEqual(result({ output: "on\n" }));
  },
  "an abort ends an argv command": async ({ environment }) => {
    const seconds = uniqueSeconds();
    expect(
      await abortRunning(environment, seconds, (options) => environment.exec(["sleep", seconds], options)),
    ).toEqual(cut("aborted"));
    await untilGone(environment, seconds);
  },
  "three cuts in a row leave the session with its state": async ({ environment }) => {
    await using session = await environment.openSession();
    await session.exec("export KEPT=1; cd /");
    for (let call = 0; call < 3; call += 1) {
      expect(await session.exec(`echo ${call}; export KEPT=lost; sleep 60`, { timeoutMs: 2_000 })).toEqual(
        cut("timedOut", { output: `${call}\n`, cwd: "/" }),
      );
    }
    expect(await session.exec('pwd; echo "$KEPT"')).toEqual(result({ output: "/\n1\n", cwd: "/" }));
  },
  "ten aborts at once each end their own": async ({ environment }) => {
    const seconds = uniqueSeconds();
    const controllers = Array.from({ length: 10 }, () => new AbortController());
    const running = controllers.map(({ signal }, index) =>
      environment.exec(`echo ${index}; setsid sleep ${seconds} & sleep ${seconds}`, { abortSignal: signal }),
    );
    await until(async () => (await living(environment, seconds)) >= 20, "all run", 30_000);
    for (const controller of controllers) controller.abort();
    expect(await Promise.all(running)).toEqual(
      controllers.map((_, index) => cut("aborted", { output: `${index}\n` })),
    );
    expect(await living(environment, seconds)).toBe(0);
  },
} satisfies Cases;
