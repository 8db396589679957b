/**
 * Random scripts give in a session what the shell itself gives with `-c`: exit code, stdout, stderr, folder tree.
 *
 * stderr is compared line by line without its `bash: line 3: eval: ` prefixes, which name a place in a text that
 * only the shell sees, and in any order, since members of a pipe write side by side.
 */
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { buffer } from "node:stream/consumers";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import type { BaseEnvironment } from "../../environments/base.ts";
import { createLocalEnvironment } from "../../environments/local/index.ts";
import { type Dialect, damagedScript, shellScript } from "./script-grammar.ts";

const SEED = Number(process.env.MOORAGE_TEST_SEED ?? 20_261_130);
const LIMIT_MS = 20_000;

/**
 * What shells say when they give up a text: it is no script, or an expansion failed. A shell of its own then goes on
 * with the next line, or says so by another exit code, while a subshell, which a session's command runs in, ends. Of
 * such scripts the answers agree up to there, and both are failures or both go on.
 */
const GIVEN_UP =
  /yntax error|unexpected EOF|conditional (?:binary|expression)|unexpected argument|ad substitution|invalid (?:indirect|variable name)|division by|readonly variable|is read only|unbound variable|parameter not set|error token/;

interface Answer {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: readonly string[];
  readonly givenUp: boolean;
  readonly tree: Readonly<Record<string, string>>;
}

const root = await mkdtemp(join(tmpdir(), "moorage-differential-"));
afterAll(() => rm(root, { recursive: true, force: true }));

let playgrounds = 0;

/**
 * A folder with the files that the scripts speak of. Its name is of one length, without letters to be searched for,
 * and it lies deep in a folder of its own, so that `cd ..` meets nobody.
 */
async function playground(): Promise<string> {
  playgrounds += 1;
  const folder = join(root, String(playgrounds).padStart(8, "0"), "1/2/3/4/5/6/7/8");
  await mkdir(join(folder, "sub"), { recursive: true });
  await writeFile(join(folder, "one.txt"), "b\na\nye\n");
  await writeFile(join(folder, "two.txt"), "no newline");
  await writeFile(join(folder, "note.md"), "echo sourced\n");
  await writeFile(join(folder, "sub/deep.txt"), "deep\n");
  return folder;
}

async function treeOf(folder: string): Promise<Record<string, string>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const pairs = entries.map(async (entry) => {
    const path = join(entry.parentPath, entry.name);
    return [relative(folder, path), entry.isFile() ? await readFile(path, "utf8") : "folder"] as const;
  });
  return Object.fromEntries(await Promise.all(pairs));
}

/** Lines without what names a place in a text, a process or the depth of a trace. */
function placeless(text: string): string[] {
  return text.split("\n").map((line) =>
    line
      .replace(/^(?:\/\S*\/)?(?:bash|dash|sh): (?:-c: |line \d+: |\d+: |eval: |environment: )*/, "")
      // `eval` is one level deeper than the shell itself, and tracing tells the level.
      .replace(/^\++ /, "+ ")
      // A death is told with the shell's name for the job: a line number and a pid.
      .replace(/^ *\d+ (Terminated|Killed|Segmentation fault).*/, "$1")
      .replace(/\b\d{4,7}\b/g, "PID"),
  );
}

async function answer(
  folder: string,
  given: { exitCode: number | null; stdout: string; stderr: string },
): Promise<Answer> {
  const own = folder.slice(0, root.length + "/00000000".length);
  const plain = (text: string) => text.replaceAll(own, "/FOLDER");
  const tree = await treeOf(own);
  await rm(own, { recursive: true, force: true });
  return {
    exitCode: given.exitCode,
    stdout: placeless(plain(given.stdout)).join("\n"),
    stderr: placeless(plain(given.stderr)).sort(),
    givenUp: GIVEN_UP.test(given.stderr),
    // Files take stderr too.
    tree: Object.fromEntries(
      Object.entries(tree).map(([name, text]) => [name, placeless(plain(text)).sort().join("\n")]),
    ),
  };
}

async function inShell(shell: string, script: string, env: Record<string, string>): Promise<Answer> {
  const cwd = await playground();
  const child = spawn(shell, ["-c", script], {
    cwd,
    env: { ...env, PWD: cwd },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: LIMIT_MS,
    killSignal: "SIGKILL",
  });
  const ended = new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.once("close", (...end) => resolve(end));
    child.once("error", reject);
  });
  const [stdout, stderr, [code, signal]] = await Promise.all([
    buffer(child.stdout),
    buffer(child.stderr),
    ended,
  ]);
  expect(signal === "SIGKILL", `${shell} does not end: ${script}`).toBe(false);
  const exitCode = code ?? (signal === "SIGTERM" ? 143 : null);
  return answer(cwd, { exitCode, stdout: stdout.toString(), stderr: stderr.toString() });
}

async function inSession(environment: BaseEnvironment, script: string): Promise<Answer> {
  const cwd = await playground();
  await using session = await environment.openSession({ cwd });
  const outcome = await session.exec(script, { output: "separate", timeoutMs: LIMIT_MS });
  expect(outcome, script).toMatchObject({ timedOut: false, notes: expect.any(Array), survivors: [] });
  // Whatever the script was, the session goes on.
  expect(await session.exec("/bin/sh -c 'echo alive'"), `after ${script}`).toMatchObject({
    exitCode: 0,
    output: "alive\n",
  });
  return answer(cwd, outcome);
}

/** Fails unless both are the same, or both gave the script up and agree up to there. */
function expectAlike(ours: Answer, theirs: Answer, script: string): void {
  if (!ours.givenUp || !theirs.givenUp) {
    expect(ours, script).toEqual(theirs);
    return;
  }
  expect(
    theirs.stdout.startsWith(ours.stdout),
    `${script} gives ${ours.stdout} and not ${theirs.stdout}`,
  ).toBe(true);
}

/** The variables with which the session's commands start, so that both sides have the same. */
async function variablesOf(environment: BaseEnvironment): Promise<Record<string, string>> {
  const { output } = await environment.exec("env -0 2>/dev/null || env | tr '\\n' '\\000'");
  const pairs = output.split("\0").filter((pair) => pair.includes("="));
  return Object.fromEntries(
    pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]),
  );
}

/** Runs damaged scripts for what must hold of any text: it ends, shows nothing of ours, and breaks no session. */
async function damage(shell: "bash" | "sh", dialect: Dialect, numRuns: number): Promise<void> {
  const stateDir = await mkdtemp(join(root, "state-"));
  await using environment = createLocalEnvironment({ shell, workspace: root, stateDir });
  console.log(`seed ${SEED}: ${numRuns} damaged scripts in ${shell}`);
  await fc.assert(
    fc.asyncProperty(damagedScript(dialect), async (script) => {
      await using session = await environment.openSession({ cwd: await playground(), env: { KEPT: "kept" } });
      // A loop may have lost its end.
      const outcome = await session.exec(script, { timeoutMs: 3_000, captureBytes: 100_000 });
      expect(outcome.output, script).not.toMatch(/__moor|MOORAGE/);
      expect(outcome, script).toMatchObject({ survivors: [] });
      const after = await session.exec("/bin/sh -c 'echo \"$KEPT\"; exit 7'");
      expect(after, `after ${script}`).toMatchObject({ exitCode: 7, output: "kept\n" });
    }),
    { seed: SEED, numRuns, interruptAfterTimeLimit: 400_000, markInterruptAsFailure: true, verbose: 1 },
  );
}

async function compare(shell: "bash" | "dash", dialect: Dialect, numRuns: number): Promise<void> {
  const stateDir = await mkdtemp(join(root, "state-"));
  await using environment = createLocalEnvironment({
    shell: shell === "bash" ? "bash" : "sh",
    workspace: root,
    stateDir,
  });
  const env = await variablesOf(environment);
  console.log(`seed ${SEED}: ${numRuns} scripts against ${shell} -c`);
  await fc.assert(
    fc.asyncProperty(shellScript(dialect), async (script) => {
      const [theirs, ours] = await Promise.all([inShell(shell, script, env), inSession(environment, script)]);
      expectAlike(ours, theirs, script);
    }),
    { seed: SEED, numRuns, interruptAfterTimeLimit: 540_000, markInterruptAsFailure: true, verbose: 1 },
  );
}

describe("a session and the shell itself", () => {
  it("answer 1,000 random bash scripts alike", async () => {
    await compare("bash", "bash", 1_000);
  });
  it("answer 300 random POSIX scripts alike in dash", async () => {
    await compare("dash", "posix", 300);
  });
  it.each(["bash", "sh"] as const)("of %s outlives 300 damaged scripts", async (shell) => {
    await damage(shell, shell === "bash" ? "bash" : "posix", 300);
  });
});
