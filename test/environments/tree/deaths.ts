/** Death at random points: no file is ever half of one, and the next start goes on as if nothing had been. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { reapLocal } from "../../../environments/local/reap.ts";
import { mirror } from "../../../environments/sync/mirror.ts";
import { Checkpoints } from "../../../src/checkpoints/checkpoints.ts";

const FILES = 40;
const WORKER = join(import.meta.dirname, "../fixtures/tree-worker.ts");

const EVEN = "even".repeat(5_000);
const ODD = "odd!".repeat(5_000);
const files = (folder: string) => readdirSync(folder).filter((name) => !name.startsWith("."));

/** Starts the worker, and kills it some time after it has begun to work, or when something is met. */
export async function dieAfter(
  words: readonly string[],
  work: number | (() => Promise<unknown>),
): Promise<void> {
  const child: ChildProcess = spawn(process.execPath, [WORKER, ...words], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const [text] = await once(child.stdout ?? child, "data");
    expect(String(text)).toBe("ready\n");
    // The moment of death is what is being varied; with a number nothing is waited for.
    await (typeof work === "number" ? delay(work) : work());
  } finally {
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }
}

export const ACTIONS = ["checkpoint", "restore", "push", "pull"] as const;

/**
 * Kills one action after another, each after its time of work, and looks at what each leaves. Then goes on by itself.
 *
 * @param budgetMs begins no more deaths after it, but for the first four. @default none
 */
export async function surviveDeaths(
  action: (typeof ACTIONS)[number],
  workTimesMs: readonly number[],
  budgetMs = Number.POSITIVE_INFINITY,
): Promise<void> {
  const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-tree-kill-")));
  try {
    await survive(base, action, workTimesMs, performance.now() + budgetMs);
  } finally {
    rmSync(base, { recursive: true, force: true });
  }
}

async function survive(
  base: string,
  action: string,
  workTimesMs: readonly number[],
  deadline: number,
): Promise<void> {
  const folder = base;
  const [workspace, host, stateDir] = ["w", "h", "s"].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ]; // three names, three paths
  for (const each of [workspace, host, stateDir]) mkdirSync(each, { recursive: true });
  const isSource = action === "push" ? host : workspace;
  if (action === "restore") {
    await using environment = createLocalEnvironment({ workspace, stateDir });
    await using checkpoints = new Checkpoints(stateDir);
    for (const content of [EVEN, ODD]) {
      for (let index = 0; index < FILES; index += 1) writeFileSync(join(workspace, `f${index}`), content);
      await checkpoints.create(environment);
    }
  }
  for (const [index, workMs] of workTimesMs.entries()) {
    if (index >= 4 && performance.now() > deadline) break;
    await dieAfter([action, workspace, host, stateDir], workMs);
    await reapLocal({ stateDir });
    // The worker itself writes to the source the plain way, whole before each run; the other side is ours.
    const ours =
      action === "restore" ? workspace : action === "pull" ? host : action === "push" ? workspace : null;
    for (const name of ours === null ? [] : files(ours)) {
      const content = readFileSync(join(ours ?? "", name), "utf8");
      expect([EVEN, ODD], name).toContain(content);
    }
  }
  await using environment = createLocalEnvironment({ workspace, stateDir });
  await using checkpoints = new Checkpoints(stateDir);
  for (let index = 0; index < FILES; index += 1) writeFileSync(join(isSource, `f${index}`), EVEN);
  if (action === "push" || action === "pull") {
    const report = await mirror(host, environment, { direction: action, stateDir });
    expect(report.conflicts).toEqual([]);
    const target = action === "push" ? workspace : host;
    for (const name of files(target)) expect(readFileSync(join(target, name), "utf8")).toBe(EVEN);
    expect(files(target)).toHaveLength(FILES);
    if (action === "pull")
      expect(readdirSync(host).filter((name) => name.startsWith(".moorage-"))).toEqual([]);
    return;
  }
  const { id } = await checkpoints.create(environment);
  for (const name of files(workspace)) writeFileSync(join(workspace, name), "broken");
  expect((await checkpoints.restore(id, environment)).failed).toEqual([]);
  for (const name of files(workspace)) expect(readFileSync(join(workspace, name), "utf8")).toBe(EVEN);
}
