import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { CallScript } from "../../../environments/shell/call-script.ts";
import { createNonce, type Frame, FrameSplitter } from "../../../environments/shell/frames.ts";
import { BASH_ONCE_HEAD, ONCE_VARIABLES, plainOnceScript } from "../../../environments/shell/once-script.ts";
import { FRAME } from "../../../environments/shell/phrases.ts";
import { emptyState } from "../../../environments/shell/state.ts";

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "moorage-once-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

interface Told {
  readonly stdout: string;
  readonly stderr: string;
  readonly frames: readonly Frame[];
  /** Fields of the end, without the secret: exit code, children of the reaper, holders, children before. */
  readonly end: readonly string[];
}

/** Runs a plain line as a place would that knows only how to run a program to its end. */
async function run(
  shell: "bash" | "sh",
  command: string,
  change: Partial<Omit<CallScript, "command">> = {},
): Promise<Told> {
  const nonce = createNonce();
  const secret = createNonce();
  const text = plainOnceScript({
    shell,
    nonce,
    secret,
    command,
    cwd: folder,
    cwdRequired: false,
    state: emptyState(folder),
    env: new Map(),
    stdinBytes: null,
    separate: false,
    dump: false,
    // Whose children are those that it had before.
    reaper: String(process.pid),
    plain: true,
    once: true,
    ...change,
  });
  const child = spawn(shell, ["-c", `eval "$${ONCE_VARIABLES.call}"`, shell], {
    cwd: "/",
    env: { PATH: process.env.PATH, [ONCE_VARIABLES.call]: BASH_ONCE_HEAD + text },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const texts = { stdout: "", stderr: "" };
  const frames: Frame[] = [];
  for (const name of ["stdout", "stderr"] as const) {
    const splitter = new FrameSplitter(nonce);
    child[name].on("data", (chunk: Buffer) => {
      for (const part of splitter.push(chunk)) {
        if (Buffer.isBuffer(part)) texts[name] += part.toString("utf8");
        else frames.push(part);
      }
    });
  }
  await once(child, "close");
  const [own = "", ...end] = frames.findLast(({ kind }) => kind === FRAME.end)?.fields ?? [];
  expect(own).toBe(secret);
  return { ...texts, frames: frames.filter(({ kind }) => kind !== FRAME.end), end };
}

describe.each(["bash", "sh"] as const)("a plain line in a %s of its own", (shell) => {
  it("tells its output and its exit code, and nothing else", async () => {
    expect(await run(shell, "pwd; ls /nowhere")).toEqual({
      stdout: expect.stringMatching(new RegExp(`^${folder}\n.*/nowhere.*\n$`)),
      stderr: "",
      frames: [],
      end: [expect.stringMatching(/^[1-9]/), "", "", ""],
    });
  });

  it("keeps separate outputs apart and ends both", async () => {
    const { stdout, stderr } = await run(shell, "echo out; echo err >&2", { separate: true });
    expect({ stdout, stderr }).toEqual({ stdout: "out\n", stderr: "err\n" });
  });

  it("has its variables, and finds none of ours", async () => {
    const env = new Map([["KIND", "it's\ttwo"]]);
    const { stdout } = await run(shell, "printenv KIND; printenv | grep -cE '__moor|MOORAGE'; pwd | cat", {
      env,
    });
    expect(stdout).toBe(`it's\ttwo\n0\n${folder}\n`);
  });

  it("runs in the nearest folder above one that is gone, and tells which", async () => {
    const { stdout, frames } = await run(shell, "pwd", { cwd: join(folder, "gone", "too") });
    expect(stdout).toBe(`${folder}\n`);
    expect(frames.at(-1)).toEqual({ kind: FRAME.moved, fields: [folder] });
  });

  it("looks for no end where a folder has none above it", async () => {
    expect((await run(shell, "pwd", { cwd: "nowhere" })).stdout).toBe("/\n");
  });

  it("does not run in a required folder that is gone", async () => {
    const gone = run(shell, "echo ran", { cwd: join(folder, "gone"), cwdRequired: true });
    await expect(gone).rejects.toThrow(); // without an end
  });
});
