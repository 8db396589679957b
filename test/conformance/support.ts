/** What the cases share: their shape, and short words for the answers that they expect. */
import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import type { BaseEnvironment, ExecResult } from "../../environments/base.ts";
import type { ErrorCode } from "../../src/errors.ts";

/** What a backend tells about itself so that more can be asked of it. */
export interface Facts {
  /**
   * Lists what a stopped environment has left on the host: processes, containers, sockets, networks, files.
   * Without it the cases look only from inside.
   */
  readonly leftovers?: (environment: BaseEnvironment) => Promise<readonly string[]>;
}

/** What a case gets. */
export interface CaseContext {
  /** Started, and shared by the cases of one area: a case works in sessions and folders of its own. */
  readonly environment: BaseEnvironment;
  /** Makes a fresh one, not started, that the case stops. */
  readonly create: () => Promise<BaseEnvironment>;
  readonly facts: Facts;
  /** Ends the case as not asked, and prints why. */
  readonly skip: (reason: string) => never;
}

/** One claim of the contract: resolves when it holds, rejects when it does not. */
export type Case = (context: CaseContext) => Promise<void>;
export type Cases = Readonly<Record<string, Case>>;

/** A case about functions, aliases and other things that only bash has. */
export function inBash(check: Case): Case {
  return async (context) => {
    const { shell } = context.environment.info();
    if (shell !== "bash") context.skip(`the environment's shell is ${shell}, the claim is about bash`);
    await check(context);
  };
}

/** The whole result of a command that did nothing special, with what is `expected` to differ. */
export function result(expected: Partial<ExecResult> = {}): ExecResult {
  return {
    exitCode: 0,
    signal: null,
    timedOut: false,
    aborted: false,
    output: "",
    stdout: "",
    stderr: "",
    truncated: {},
    outputId: null,
    cwd: expect.stringMatching(/^\//),
    durationMs: expect.any(Number),
    leftRunning: [],
    survivors: [],
    processId: null,
    notes: [],
    ...expected,
  };
}

/** The result of a command that a signal ended: the number is certain, the name is told where it is known. */
export function died(exitCode: number, signal: string, expected: Partial<ExecResult> = {}): ExecResult {
  return result({ exitCode, signal: expect.toBeOneOf([null, signal]), ...expected });
}

/** The result of a command that was cut short, with nothing of it surviving. */
export function cut(how: "timedOut" | "aborted", expected: Partial<ExecResult> = {}): ExecResult {
  return result({
    exitCode: null,
    signal: expect.toBeOneOf([null, "SIGTERM", "SIGKILL"]),
    [how]: true,
    ...expected,
  });
}

/** Asserts that `promise` rejects with a Moorage error of one of the codes, and returns its message. */
export async function expectCode(promise: Promise<unknown>, ...codes: ErrorCode[]): Promise<string> {
  const outcome: unknown = await promise.then(
    (value) => ({ resolvedWith: value }),
    (error: unknown) => error,
  );
  expect(outcome).toMatchObject({ name: "MoorageError", code: expect.toBeOneOf(codes) });
  return outcome instanceof Error ? outcome.message : "";
}

/** Asserts a refusal of an argument that only a programming error can bring. */
export async function expectRefused(promise: Promise<unknown>): Promise<void> {
  const outcome: unknown = await promise.then(
    (value) => ({ resolvedWith: value }),
    (error: unknown) => error,
  );
  expect(outcome).toBeInstanceOf(Error);
  const { name, code } = outcome as { name: string; code?: string }; // an Error, as just asserted
  expect(
    name === "RangeError" ||
      name === "TypeError" ||
      code === "EXECUTION_REFUSED" ||
      code === "INVALID_ARGUMENTS",
    String(outcome),
  ).toBe(true);
}

/** Waits until `condition` holds. @throws when it does not within `deadlineMs` */
export async function until(
  condition: () => Promise<boolean> | boolean,
  claim: string,
  deadlineMs = 15_000,
): Promise<void> {
  const deadline = performance.now() + deadlineMs;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`Not within ${deadlineMs} ms: ${claim}`);
    await delay(20);
  }
}

/** A word that nothing else on the machine holds. */
export function token(): string {
  return `c${randomBytes(8).toString("hex")}`;
}

/** Seconds for a `sleep` that can be told from every other process by its argument. */
export function uniqueSeconds(): string {
  return String(1_000_000_000 + (randomBytes(4).readUInt32BE() % 1_000_000_000));
}

/** Counts the processes in the environment whose command line holds `word`, an asker of this kind never. */
export async function living(environment: BaseEnvironment, word: string): Promise<number> {
  const pattern = `[${word.slice(0, 1)}]${word.slice(1)}`;
  const { output } = await environment.exec(`grep -l -e '${pattern}' /proc/[0-9]*/cmdline 2>/dev/null`);
  return output.split("\n").filter((line) => line !== "").length;
}

/** Waits until nothing in the environment holds `word` in its command line. */
export async function untilGone(environment: BaseEnvironment, word: string): Promise<void> {
  await until(async () => (await living(environment, word)) === 0, `no process with ${word} is left`);
}

/** Ends what a case left running on purpose. */
export async function endAll(environment: BaseEnvironment, word: string): Promise<void> {
  const pattern = `[${word.slice(0, 1)}]${word.slice(1)}`;
  await environment.exec(
    `for f in $(grep -l -e '${pattern}' /proc/[0-9]*/cmdline 2>/dev/null); do p=\${f#/proc/}; kill -9 "\${p%/cmdline}" 2>/dev/null; done; true`,
  );
  await untilGone(environment, word);
}

/** A new empty folder in the workspace, absolute. */
export async function scratch(environment: BaseEnvironment): Promise<string> {
  const folder = `${environment.workspace.replace(/\/$/, "")}/${token()}`;
  expect((await environment.exec(["mkdir", folder])).exitCode).toBe(0);
  return folder;
}

/** The same bytes on every run, incompressible enough to notice a lost or moved part. */
export function pseudoRandom(length: number, seed = 1): Buffer {
  const bytes = Buffer.alloc(length);
  let state = seed >>> 0 || 1;
  for (let at = 0; at < length; at += 1) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[at] = state >>> 24;
  }
  return bytes;
}

/** Whether commands run as root, to whom no permission is refused. */
export async function isRoot(environment: BaseEnvironment): Promise<boolean> {
  return (await environment.exec("id -u")).output.trim() === "0";
}
