/** Mirrors against a tar pipe and rsync, and checkpoints against git, on a tree of ten thousand files. */
import { execFile } from "node:child_process";
import { cp, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { BaseEnvironment } from "../environments/base.ts";
import { createLocalEnvironment } from "../environments/local/index.ts";
import { mirror, SyncMemory } from "../environments/sync/mirror.ts";
import { Checkpoints } from "../src/checkpoints/checkpoints.ts";
import { expectEqual, type TemporaryFolder, temporaryFolder } from "./environments.ts";
import { type Figure, paired } from "./measure.ts";

export const FILES = 10_000;
export const PER_FOLDER = 100;
const CHANGED = 10;
const run = promisify(execFile);

const needs = (program: string) => async (): Promise<string | null> => {
  try {
    await run(program, ["--version"]);
    return null;
  } catch {
    return `${program} is not there`;
  }
};

export const figures: readonly Figure[] = [
  {
    name: "sync-first-vs-tar-pipe",
    goal: 1.2,
    unit: "ms",
    obstacle: needs("tar"),
    measure: async () => {
      await using folder = await temporaryFolder();
      const source = await makeTree(folder, FILES);
      // Nothing is removed in between: ext4 is slow to make files where others were removed a minute ago.
      let [round, theirRound] = [0, 0];
      let environment: BaseEnvironment | null = null;
      return await paired(
        {
          before: async () => {
            round += 1;
            environment = await place(folder, `ours-${round}`);
          },
          run: async () => {
            if (!environment) throw new TypeError("There is no environment");
            const stateDir = join(folder.path, `state-${round}`);
            const { pushed } = await mirror(source, environment, { direction: "push", stateDir });
            expectEqual(pushed.length, FILES + FILES / PER_FOLDER);
          },
          after: async () => {
            await environment?.stop();
          },
        },
        {
          before: async () => {
            theirRound += 1;
            await mkdir(join(folder.path, `theirs-${theirRound}`));
          },
          run: async () => {
            await run("sh", [
              "-c",
              'tar -C "$1" -cf - . | tar -C "$2" -xpf -',
              "sh",
              source,
              join(folder.path, `theirs-${theirRound}`),
            ]);
          },
        },
        9,
        2,
      );
    },
  },
  {
    name: "sync-10-changed-vs-rsync",
    goal: 1,
    unit: "ms",
    obstacle: needs("rsync"),
    measure: async () => {
      await using folder = await temporaryFolder();
      const source = await makeTree(folder, FILES);
      const stateDir = join(folder.path, "state");
      await using environment = await place(folder, "ours");
      // As a runtime that lives does it.
      const memory = new SyncMemory();
      const push = () => mirror(source, environment, { direction: "push", stateDir, memory });
      await push();
      await push();
      const theirs = join(folder.path, "theirs");
      await cp(source, theirs, { recursive: true, preserveTimestamps: true });
      let round = 0;
      const change = async () => {
        round += 1;
        for (let index = 0; index < CHANGED; index += 1)
          await writeFile(fileAt(source, index * 97), `changed ${round}`);
      };
      return await paired(
        { before: change, run: async () => expectEqual((await push()).pushed.length, CHANGED) },
        {
          before: change,
          run: async () => void (await run("rsync", ["-a", "--delete", `${source}/`, `${theirs}/`])),
        },
        7,
      );
    },
  },
  {
    name: "checkpoint-unchanged-vs-git",
    goal: 1,
    unit: "ms",
    obstacle: needs("git"),
    measure: async () => {
      await using folder = await temporaryFolder();
      const source = await makeTree(folder, FILES);
      const git = (...words: string[]) =>
        run("git", ["--git-dir", join(folder.path, "git"), "--work-tree", source, ...words]);
      await run("git", ["init", "-q", "--bare", join(folder.path, "git")]);
      await using environment = createLocalEnvironment({
        stateDir: join(folder.path, "state"),
        workspace: source,
      });
      await using checkpoints = new Checkpoints(join(folder.path, "state"));
      return await paired(
        { run: async () => expectEqual((await checkpoints.create(environment)).skipped.length, 0) },
        {
          run: async () => {
            await git("add", "-A");
            await git("write-tree");
          },
        },
        9,
        3,
      );
    },
  },
  {
    name: "checkpoint-before-write-10000-vs-10-files",
    // The same, but for the noise of doing the same twice.
    goal: 1.1,
    unit: "ms",
    measure: async () => {
      await using folder = await temporaryFolder();
      const large = await makeTree(folder, FILES);
      const small = await makeTree(folder, 10, "small");
      const stateDir = join(folder.path, "state");
      await using checkpoints = new Checkpoints(stateDir);
      await using there = createLocalEnvironment({ stateDir, workspace: large });
      await using here = createLocalEnvironment({ stateDir, workspace: small });
      const before = (environment: BaseEnvironment) => ({
        run: async () => {
          const call = { reason: "before write_file", callId: "bench", cwd: environment.workspace };
          expectEqual((await checkpoints.beforeFiles(environment, ["0/0"], call))?.note, null);
        },
      });
      return await paired(before(there), before(here), 60);
    },
  },
];

async function place(folder: TemporaryFolder, name: string): Promise<BaseEnvironment> {
  const workspace = join(folder.path, name);
  await mkdir(workspace, { recursive: true });
  const environment = createLocalEnvironment({ stateDir: join(folder.path, "state"), workspace });
  await environment.start();
  return environment;
}

function fileAt(root: string, index: number): string {
  return join(root, String(Math.floor(index / PER_FOLDER)), String(index % PER_FOLDER));
}

export async function makeTree(folder: TemporaryFolder, files: number, name = "tree"): Promise<string> {
  const root = join(folder.path, name);
  for (let index = 0; index < files; index += 1) {
    if (index % PER_FOLDER === 0) await mkdir(join(root, String(index / PER_FOLDER)), { recursive: true });
    await writeFile(fileAt(root, index), `file ${index}\n`.repeat(1 + (index % 40)));
  }
  return root;
}
