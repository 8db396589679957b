import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { MOOR, moor, outcome, privateHome, startMoor, temporaryFolder, until } from "./moor.ts";
import { pidsOf, uniqueSleep } from "./processes.ts";

const exec = (words: readonly string[], options: Parameters<typeof moor>[1] = {}) =>
  moor(["exec", "-e", "local", ...words], { env: privateHome(), ...options });

describe("moor exec", () => {
  it("keeps stdout, stderr and the exit status apart from each other", async () => {
    const result = await exec(["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    expect(result).toEqual({ exitCode: 7, signal: null, stdout: "out\n", stderr: "err\n" });
  });

  it("gives words to a program as they are, without a shell", async () => {
    const words = ["a b", "$HOME", "*", "", "--", "-e", "it's", "é\n"];
    const { stdout, exitCode } = await exec(["--", "printf", "[%s]", ...words]);
    expect({ stdout, exitCode }).toEqual({ exitCode: 0, stdout: words.map((word) => `[${word}]`).join("") });
  });

  it("takes the program without -- too, and its options as its own", { tags: ["slow"] }, async () => {
    expect(await exec(["echo", "--json", "-n", "x"])).toMatchObject({ exitCode: 0, stdout: "--json -n x\n" });
  });

  it("runs a shell line with --shell", async () => {
    expect(await exec(["--shell", "X=1; echo $X | cat; (exit 9)"])).toMatchObject({
      exitCode: 9,
      stdout: "1\n",
    });
  });

  it("says what to do when a shell line was given as one word", { tags: ["slow"] }, async () => {
    const { exitCode, stdout, stderr } = await exec(["--", "echo hi; exit 3"]);
    expect({ exitCode, stdout }).toEqual({ exitCode: 127, stdout: "" });
    expect(stderr).toContain("for a shell line use --shell");
  });

  it("passes bytes through as they are", { tags: ["slow"] }, async () => {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, index) => index));
    const folder = temporaryFolder();
    writeFileSync(join(folder, "in"), bytes);
    const script = `"$1" exec -e local --stdin -- cat <"$2/in" >"$2/out"`;
    execFileSync("sh", ["-c", script, "sh", MOOR, folder], { env: { ...process.env, ...privateHome() } });
    expect(readFileSync(join(folder, "out")).equals(bytes)).toBe(true);
  });

  it("gives an empty stdin unless --stdin is there", { tags: ["slow"] }, async () => {
    expect(await exec(["--", "wc", "-c"], { stdin: "12345" })).toMatchObject({ stdout: "0\n" });
    expect(await exec(["--stdin", "--", "wc", "-c"], { stdin: "12345" })).toMatchObject({ stdout: "5\n" });
  });

  it("starts where --workspace and --cwd say", { tags: ["slow"] }, async () => {
    const workspace = realpathSync(temporaryFolder());
    mkdirSync(join(workspace, "sub"));
    expect(await exec(["--workspace", workspace, "--", "pwd"])).toMatchObject({ stdout: `${workspace}\n` });
    expect(await exec(["--workspace", workspace, "--cwd", "sub", "--", "pwd"])).toMatchObject({
      stdout: `${workspace}/sub\n`,
    });
    const missing = await exec(["--workspace", workspace, "--cwd", "nowhere", "--", "pwd"]);
    expect(missing).toMatchObject({ exitCode: 125, stdout: "" });
    expect(missing.stderr).toContain("moor: WORKDIR_MISSING: ");
  });

  it("says what the command left running, and ends it", async () => {
    const sleep = uniqueSleep();
    const { exitCode, stdout, stderr } = await exec(["--shell", `${sleep} & setsid ${sleep} & echo hi`]);
    expect({ exitCode, stdout }).toEqual({ exitCode: 0, stdout: "hi\n" });
    expect(stderr).toContain(`moor: Left running: ${sleep}, ${sleep}; it ends with this command`);
    expect(pidsOf(sleep)).toEqual([]);
  });

  it("ends the tree at --timeout with 124 and keeps the output so far", async () => {
    const sleep = uniqueSleep();
    const result = await exec(["--timeout", "1", "--shell", `echo before; setsid ${sleep} & ${sleep}`]);
    expect(result).toMatchObject({ exitCode: 124, stdout: "before\n" });
    await until("none is left", () => pidsOf(sleep).length === 0);
  });

  it("tells a command's death by signal as 128 + n", { tags: ["slow"] }, async () => {
    expect(await exec(["--", "sh", "-c", "kill -TERM $$"])).toMatchObject({ exitCode: 143 });
    expect(await exec(["--", "sh", "-c", "kill -KILL $$"])).toMatchObject({ exitCode: 137 });
  });

  it("tells a missing program as 127 and one that cannot run as 126", { tags: ["slow"] }, async () => {
    expect(await exec(["--", "no-such-program-here"])).toMatchObject({ exitCode: 127, stdout: "" });
    expect(await exec(["--", "/etc/passwd"])).toMatchObject({ exitCode: 126, stdout: "" });
  });

  it("prints the result with --json and nothing else on stdout", async () => {
    const { exitCode, stdout, stderr } = await exec([
      "--json",
      "--shell",
      "echo out; sleep 0.2; echo err >&2; exit 3",
    ]);
    expect({ exitCode, stderr }).toEqual({ exitCode: 3, stderr: "" });
    expect(JSON.parse(stdout)).toMatchObject({
      exitCode: 3,
      signal: null,
      timedOut: false,
      aborted: false,
      output: "out\nerr\n",
      stdout: "out\n",
      stderr: "err\n",
      truncated: {},
      durationMs: expect.any(Number),
      cwd: expect.any(String),
      leftRunning: [],
    });
  });

  it("streams output as it comes", async () => {
    const child = startMoor(["exec", "-e", "local", "--shell", "echo first; sleep 3; echo second"], {
      env: privateHome(),
    });
    const startedAt = performance.now();
    let firstAfterMs = 0;
    child.stdout.once("data", () => {
      firstAfterMs = performance.now() - startedAt;
    });
    expect(await outcome(child)).toMatchObject({ exitCode: 0, stdout: "first\nsecond\n" });
    expect(performance.now() - startedAt - firstAfterMs).toBeGreaterThan(2_000);
  });

  it.each([
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const)("DK-17: %s ends the tree inside and us", async (signal, exitCode) => {
    const sleep = uniqueSleep();
    const child = startMoor(["exec", "-e", "local", "--shell", `trap '' INT; setsid ${sleep} & ${sleep}`], {
      env: privateHome(),
    });
    const ended = outcome(child);
    await until("both run", () => pidsOf(sleep).length === 2);
    const startedAt = performance.now();
    child.kill(signal);
    expect(await ended).toEqual({ exitCode, signal: null, stdout: "", stderr: "" });
    expect(performance.now() - startedAt).toBeLessThan(15_000);
    expect(pidsOf(sleep)).toEqual([]);
  });

  it("ends quietly, tree and all, when the reader of its output goes away", async () => {
    const marker = uniqueSleep();
    const script = `"$1" exec -e local --shell 'seq 1 10000000; ${marker}' | head -1`;
    const child = spawn("bash", ["-c", `set -o pipefail; ${script}; echo "status $?"`, "sh", MOOR], {
      env: { ...process.env, ...privateHome() },
    });
    const { stdout, stderr } = await outcome(child);
    expect({ stdout, stderr }).toEqual({ stdout: "1\nstatus 141\n", stderr: "" });
    expect(pidsOf(marker)).toEqual([]);
  });

  it("says when its output cannot be written, and does not end as if it had been", async () => {
    const child = spawn("sh", ["-c", `exec "${MOOR}" exec -e local -- echo hi >/dev/full`], {
      env: { ...process.env, ...privateHome() },
    });
    expect(await outcome(child)).toMatchObject({
      exitCode: 125,
      stderr: expect.stringMatching(/^moor: Cannot write our output: ENOSPC/),
    });
  });

  it("runs whatever the configuration says of tools", async () => {
    const config = join(temporaryFolder(), "moorage.yaml");
    writeFileSync(config, "environments: { a: local }\ntoolsets: [files]\ntoolFolders: [none]\n");
    const result = await moor(["exec", "--config", config, "--", "echo", "hi"], { env: privateHome() });
    expect(result).toEqual({ exitCode: 0, signal: null, stdout: "hi\n", stderr: "" });
  });

  it("waits for a slow reader instead of filling its memory", { tags: ["slow"] }, async () => {
    const child = startMoor(["exec", "-e", "local", "--", "head", "-c", "150000000", "/dev/zero"], {
      env: privateHome(),
    });
    const peak = (): number => {
      const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
      return Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]) * 1024;
    };
    await until("output comes", () => child.stdout.readableLength > 0);
    const before = peak();
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    expect(peak() - before).toBeLessThan(64 * 1024 * 1024);
    let size = 0;
    for await (const chunk of child.stdout) size += chunk.length;
    expect(size).toBe(150_000_000);
  });

  it("does not take what an environment is not for its own fault", { tags: ["slow"] }, async () => {
    const bad = await moor(["exec", "-e", "dokcer:x", "--", "true"], { env: privateHome() });
    expect(bad).toMatchObject({ exitCode: 125, stdout: "" });
    expect(bad.stderr).toMatch(/^moor: INVALID_SPEC: .*docker/);
    const gone = await moor(["exec", "-e", "docker:busybox", "--", "true"], {
      env: { ...privateHome(), DOCKER_HOST: "unix:///nowhere/docker.sock" },
    });
    expect(gone).toMatchObject({ exitCode: 125, stdout: "" });
    expect(gone.stderr).toMatch(/^moor: DOCKER_UNREACHABLE: /);
  });
});
