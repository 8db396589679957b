/**
 * Several sessions driven at random: cancels, timeouts, children left behind, yields, floods, standard input. Every
 * command prints a sequence that describes itself, so that a lost, mixed, moved or late byte is found.
 */
import { createHash } from "node:crypto";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, describe, expect, it } from "vitest";
import type { BaseEnvironment, ExecResult, ShellSession } from "../../environments/base.ts";
import { createLocalEnvironment } from "../../environments/local/index.ts";
import { PIPES_AHEAD } from "../../environments/local/pipes.ts";
import { carriers, commandLine } from "../carriers.ts";
import { until } from "../conformance/support.ts";

const SEED = Number(process.env.MOORAGE_TEST_SEED ?? 20_261_130);
const SESSIONS = 6;
const STEPS = 60;

const root = await mkdtemp(join(tmpdir(), "moorage-random-"));
afterAll(() => rm(root, { recursive: true, force: true }));

/** Numbers from a seed: the same on every run. */
class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0 || 1;
  }

  /** A whole number from 0 to `sides - 1`. */
  roll(sides: number): number {
    this.#state ^= this.#state << 13;
    this.#state ^= this.#state >>> 17;
    this.#state ^= this.#state << 5;
    return (this.#state >>> 0) % sides;
  }

  bytes(length: number): Buffer {
    return Buffer.from(Array.from({ length }, () => this.roll(256)));
  }
}

/** Lines `TAG:1` to `TAG:count`; what a command prints in whole, or as far as it got. */
function sequence(tag: string, count: number): string {
  return Array.from({ length: count }, (_, index) => `${tag}:${index + 1}\n`).join("");
}

/** A shell loop that prints `sequence(tag, count)`, then does `after`. */
function printing(tag: string, count: number, after = ":"): string {
  return `i=0; while [ $i -lt ${count} ]; do i=$((i+1)); echo ${tag}:$i; done; ${after}`;
}

/** Whether `text` is the beginning of the endless sequence of `tag`, cut anywhere. */
function isBeginning(text: string, tag: string): boolean {
  const whole = sequence(tag, text.split("\n").length);
  return whole.startsWith(text);
}

interface Driver {
  readonly environment: BaseEnvironment;
  readonly session: ShellSession;
  readonly dice: Dice;
  readonly name: string;
  /** Calls so far, which the session itself counts in a variable that it keeps. */
  kept: number;
}

type Step = (driver: Driver, tag: string) => Promise<void>;

function whole(outcome: ExecResult, tag: string, count: number, exitCode = 0): void {
  expect({ exitCode: outcome.exitCode, output: outcome.output, notes: outcome.notes }, tag).toEqual({
    exitCode,
    output: sequence(tag, count),
    notes: [],
  });
}

const STEP_KINDS: Readonly<Record<string, Step>> = {
  plain: async ({ session, dice }, tag) => {
    const count = dice.roll(200);
    const code = dice.roll(256);
    whole(await session.exec(printing(tag, count, `exit ${code}`)), tag, count, code);
  },
  keeps: async (driver, tag) => {
    driver.kept += 1;
    const outcome = await driver.session.exec(`export KEPT=$((KEPT+1)); echo ${tag}:$KEPT`);
    expect(outcome.output, tag).toBe(`${tag}:${driver.kept}\n`);
  },
  breaks: async ({ session, dice }, tag) => {
    const endings = [
      "kill -9 $$; sleep 5",
      "exec sh -c 'exit 4'",
      "set -e; false; echo no",
      "exec >/dev/null; echo no",
      "echo $(",
      "exec 3>&- 8>&- 9>&-",
      "trap 'true' EXIT; exit 2",
    ];
    const ending = endings[dice.roll(endings.length)] ?? "true";
    const { output } = await session.exec(`echo ${tag}:1\n${ending}`);
    expect(output.startsWith(`${tag}:1\n`) && !output.includes("no\n"), `${ending} gives ${output}`).toBe(
      true,
    );
  },
  flood: async ({ session, environment, dice }, tag) => {
    const count = 20_000 + dice.roll(20_000);
    const full = sequence(tag, count);
    const outcome = await session.exec(`seq 1 ${count} | sed 's/^/${tag}:/'`, { captureBytes: 10_000 });
    expect(outcome.truncated.output?.totalBytes, tag).toBe(full.length);
    const { text } = await environment.outputs.read(outcome.outputId ?? "", {
      offset: 0,
      maxBytes: full.length,
    });
    expect(text === full, `the flood of ${tag} is whole`).toBe(true);
  },
  stdin: async ({ session, dice }, tag) => {
    const bytes = dice.bytes(dice.roll(100_000));
    const hash = createHash("sha256").update(bytes).digest("hex");
    const outcome = await session.exec(`echo ${tag}:1; sha256sum`, { stdin: bytes });
    expect(outcome.output, tag).toBe(`${tag}:1\n${hash}  -\n`);
  },
  ignoresStdin: async ({ session, dice }, tag) => {
    const outcome = await session.exec(`echo ${tag}:1; exit 3`, {
      stdin: dice.bytes(50_000 + dice.roll(300_000)),
    });
    whole(outcome, tag, 1, 3);
  },
  timeout: async ({ session, dice }, tag) => {
    const outcome = await session.exec(printing(tag, 1_000_000, "true"), { timeoutMs: 20 + dice.roll(400) });
    expect(outcome, tag).toMatchObject({ timedOut: true, exitCode: null, survivors: [] });
    const [head = ""] = outcome.outputId === null ? [outcome.output] : [outcome.output.slice(0, 1_000)];
    expect(isBeginning(head, tag), `${tag} begins ${head.slice(0, 80)}`).toBe(true);
  },
  abort: async ({ session, dice }, tag) => {
    const controller = new AbortController();
    const running = session.exec(`(setsid sleep 1000 &); ${printing(tag, 50, "sleep 1000")}`, {
      abortSignal: controller.signal,
    });
    await delay(dice.roll(200));
    controller.abort();
    const outcome = await running;
    expect(outcome, tag).toMatchObject({ aborted: true, exitCode: null, survivors: [] });
    expect(isBeginning(outcome.output, tag), `${tag} begins ${outcome.output.slice(0, 80)}`).toBe(true);
  },
  leavesChild: async ({ session, dice }, tag) => {
    // The child writes late, into whatever it holds; none of it may be seen by a later call. This one may be late too.
    const child = dice.roll(2) === 0 ? "echo LATE" : "yes LATE | head -c 200000";
    const outcome = await session.exec(
      `(sleep 0.${1 + dice.roll(4)}; ${child}; ${child} >&2) & echo ${tag}:1`,
    );
    const output = outcome.output.replaceAll(/LATE\n|\n?\[\.\.\. .* omitted .*\]\n/g, "");
    expect({ exitCode: outcome.exitCode, output }, tag).toEqual({ exitCode: 0, output: `${tag}:1\n` });
  },
  yields: async ({ session, environment, dice }, tag) => {
    const outcome = await session.exec(printing(tag, 30, `sleep 0.3; echo ${tag}:31`), {
      yieldMs: 100 + dice.roll(100),
    });
    if (outcome.processId === null) return whole(outcome, tag, 31);
    expect(isBeginning(outcome.output, tag), `${tag} begins ${outcome.output.slice(0, 80)}`).toBe(true);
    const yielded = await environment.processes.get(outcome.processId);
    expect(await yielded.wait({ timeoutMs: 20_000 }), tag).toMatchObject({
      reason: "exit",
      info: { exitCode: 0 },
    });
    expect((await yielded.log()).text, tag).toBe(sequence(tag, 31));
  },
  stateless: async ({ environment, dice }, tag) => {
    const count = dice.roll(100);
    whole(await environment.exec(printing(tag, count)), tag, count);
  },
  queued: async ({ session }, tag) => {
    const outcomes = await Promise.all([1, 2, 3].map((part) => session.exec(printing(`${tag}.${part}`, 20))));
    for (const [index, outcome] of outcomes.entries()) whole(outcome, `${tag}.${index + 1}`, 20);
  },
};

async function drive(driver: Driver): Promise<void> {
  const kinds = Object.entries(STEP_KINDS);
  for (let step = 0; step < STEPS; step += 1) {
    const [kind, run] = kinds[driver.dice.roll(kinds.length)] ?? kinds[0] ?? ["none", async () => {}];
    await run(driver, `${driver.name}.${step}.${kind}`);
    const { output } = await driver.session.exec('echo "kept $KEPT"');
    expect(output, `state after step ${step}, ${kind}`).toBe(`kept ${driver.kept}\n`);
  }
}

async function openDescriptors(): Promise<number> {
  return (await readdir("/proc/self/fd")).length;
}

describe.each(["bash", "sh"] as const)("sessions of %s at random", (shell) => {
  it("lose, mix and delay no byte, and leave no process and no descriptor", async () => {
    console.log(`seed ${SEED}: ${SESSIONS} sessions, ${STEPS} steps each, ${shell}`);
    const descriptors = await openDescriptors();
    const stateDir = await mkdtemp(join(root, "state-"));
    {
      await using environment = createLocalEnvironment({
        shell,
        workspace: root,
        stateDir,
        env: { RANDOM_MARK: stateDir },
      });
      const names = Array.from({ length: SESSIONS }, (_, index) => `s${index}`);
      await Promise.all(
        names.map(async (name, index) => {
          await using session = await environment.openSession({ env: { KEPT: "0" } });
          await drive({ environment, session, dice: new Dice(SEED + index), name, kept: 0 });
        }),
      );
    }
    expect(await Promise.all((await carriers(stateDir)).map(commandLine))).toEqual([]);
    // A closed socket gives its descriptor back a little later, and pipes for the next shells may lie ready.
    const tolerated = 5 + 2 * PIPES_AHEAD;
    await until(
      async () => Math.abs((await openDescriptors()) - descriptors) <= tolerated,
      "descriptors are closed",
    );
  });
});
