/** How a bubblewrap sandbox begins, and what comes of one whose beginning is cut short. */
import { spawn } from "node:child_process";
import { chmodSync, existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, expect, it } from "vitest";
import { protect } from "../../../environments/local/bubblewrap/protected.ts";
import { firstProgram, WHOLE } from "../../../environments/local/bubblewrap/supervisor.ts";
import { readRecords } from "../../../environments/local/owners.ts";
import { sandboxes } from "./sandboxes.ts";

const { root, suite, note, make } = await sandboxes("bubblewrap-start");

/** What the first program says that is handed `requests`. */
async function said(env: NodeJS.ProcessEnv, requests: string): Promise<string> {
  const [file = "", ...argv] = firstProgram({ bash: true, login: "auto" }, { inherited: [], shell: "sh" });
  const child = spawn(file, argv, {
    env: { PATH: process.env.PATH, ...env },
    stdio: ["pipe", "pipe", "ignore"],
  });
  child.stdin.on("error", () => {});
  child.stdin.end(requests);
  return await text(child.stdout);
}

describe("the first program of a sandbox", () => {
  it("does nothing where the last of bwrap's options did not come", async () => {
    expect(await said({}, "open 1\nopen 2\n")).toBe("");
    expect(await said({ [WHOLE]: "yes" }, "")).toBe("ready\n");
  });
});

describe("what holds the place of protected parts", () => {
  it("is made after it is told, and may be there by then", async () => {
    const workspace = await mkdtemp(join(root, "held-"));
    const [first, second] = [protect(workspace, new Set()), protect(workspace, new Set())];
    expect(await readdir(workspace)).toEqual([]);
    first.make();
    second.make();
    expect(first.placeholders).toEqual(second.placeholders);
    expect(first.placeholders.filter((path) => !existsSync(path))).toEqual([]);
  });

  it("is not what somebody has put there meanwhile that is of another kind", async () => {
    const workspace = await mkdtemp(join(root, "linked-"));
    const protection = protect(workspace, new Set());
    await writeFile(join(workspace, ".vscode"), "");
    expect(() => protection.make()).toThrow(expect.objectContaining({ code: "ENVIRONMENT_UNAVAILABLE" }));
  });
});

describe("a bubblewrap sandbox for which there is no bwrap", () => {
  it("leaves nothing of what is made for it meanwhile", async () => {
    const { environment, workspace, stateDir } = await make();
    const path = process.env.PATH;
    process.env.PATH = root;
    try {
      await expect(environment.start()).rejects.toMatchObject({ code: "ENVIRONMENT_UNAVAILABLE" });
    } finally {
      process.env.PATH = path;
    }
    expect(await readdir(workspace)).toEqual([]);
    expect(await readRecords(stateDir)).toEqual([]);
  });
});

suite(`a bubblewrap sandbox that begins${note}`, () => {
  /** An environment whose login shell is `script`. */
  async function withLogin(script: string) {
    const workspace = await mkdtemp(join(root, "workspace-"));
    await mkdir(join(workspace, "bin"));
    const bash = join(workspace, "bin", "bash");
    await writeFile(bash, `#!/bin/sh\nif [ "$1" = -l ]; then ${script}; fi\nexec /bin/bash "$@"\n`);
    chmodSync(bash, 0o755);
    const path = process.env.PATH;
    process.env.PATH = `${workspace}/bin:${path}`;
    try {
      const made = await make({ workspace });
      const { output, exitCode, notes } = await made.environment.exec("echo ran", { timeoutMs: 30_000 });
      return { ...made, ran: { output, exitCode }, notes };
    } finally {
      process.env.PATH = path;
    }
  }

  it("runs commands though a profile ends its shell", async () => {
    const startedAt = performance.now();
    const { ran, notes } = await withLogin("exit 3");
    expect({ ran, notes }).toEqual({ ran: { output: "ran\n", exitCode: 0 }, notes: [] });
    // Nobody waited for what does not come.
    expect(performance.now() - startedAt).toBeLessThan(4_000);
  });

  it("runs commands though a profile kills all that it finds around it, and says so", async () => {
    const { ran, notes } = await withLogin("kill -KILL 0");
    expect(ran).toEqual({ output: "ran\n", exitCode: 0 });
    expect(notes.join("\n")).toMatch(/sandbox is gone/);
  });

  it("has shells after the first one, with signals of their own, and ends with its supervisor", async () => {
    const { environment, run } = await make();
    const sessions = await Promise.all([1, 2, 3].map(() => environment.openSession()));
    const outputs = await Promise.all(
      sessions.map((session) => session.exec("echo $SHLVL; grep SigIgn /proc/self/status; sleep 0.2")),
    );
    const [first] = outputs;
    expect(new Set(outputs.map(({ output }) => output)).size).toBe(1);
    expect(first?.output).toMatch(/SigIgn:\t0+\n$/);
    // The first of those that have its words, as the others are its subshells.
    const supervisor = `for p in $(ls /proc | grep '^[0-9]' | sort -n); do tr '\\0' ' ' </proc/$p/cmdline | grep -q '^bash.*set -m' && echo $p; done`;
    const [pid = ""] = (await run(supervisor)).output.split("\n");
    expect(pid).toMatch(/^\d+$/);
    expect((await run(": >/tmp/mark; ls /tmp")).output).toContain("mark");
    // It may or may not come to tell how it ended.
    await environment.exec(`kill -KILL ${pid}`).catch(() => {});
    // What was private to it is gone with it.
    await expect.poll(async () => (await run("ls /tmp")).output, { timeout: 20_000 }).not.toContain("mark");
  });

  it("notes what it will have made before any of it is there", async () => {
    const { environment, stateDir, workspace } = await make();
    await environment.start();
    const [name = ""] = await readdir(join(stateDir, "local"));
    const { placeholders } = JSON.parse(await readFile(join(stateDir, "local", name), "utf8"));
    expect(placeholders.toSorted()).toEqual(
      (await readdir(workspace)).map((each) => join(workspace, each)).toSorted(),
    );
  });
});
