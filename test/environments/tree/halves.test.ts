import { execFileSync, spawn } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import type { TreeEntry } from "../../../environments/base.ts";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import type { SystemShell } from "../../../environments/shell/stream.ts";
import { createTree } from "../../../environments/shell/tree/tree.ts";
import { findExpression } from "../../../environments/tree/find.ts";
import { divide } from "../../../environments/tree/halves.ts";
import { ODD_NAMES } from "./cases.ts";
import { pickerFrom, randomFrom } from "./picture.ts";

const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-halves-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));

/** Entries of which nothing but the path counts. */
const entriesAt = (paths: readonly string[]): TreeEntry[] =>
  paths.map((path) => ({
    path,
    kind: "file",
    mode: 0,
    size: 0,
    uid: 0,
    gid: 0,
    modifiedAt: 0,
    stamp: "",
    settled: true,
  }));
const filesIn = (folder: string, count: number) => [
  folder,
  ...Array.from({ length: count }, (_, index) => `${folder}/${index}`),
];

/** What find tells of a folder, record by record. */
function ask(root: string, part?: Parameters<typeof findExpression>[1]): string[] {
  const answer = execFileSync("find", [".", ...findExpression(".moorage-", part)], {
    cwd: root,
    env: { LC_ALL: "C" },
    stdio: ["ignore", "pipe", "ignore"],
    encoding: "latin1",
  });
  return answer.match(/[^\0]*\0[^\0]*\0/g) ?? [];
}

it("divide() finds halves at the top, below folders that hold everything, and behind what all names begin with", () => {
  const two = (folder: string) => [...filesIn(`${folder}a`, 1_000), ...filesIn(`${folder}b`, 1_100)];
  expect(divide(entriesAt(two("")))).toEqual({ pattern: "./[b]*", way: [] });
  expect(divide(entriesAt(["x", "x/*y", ...two("x/*y/")]))).toEqual({
    pattern: "./x/\\*y/[b]*",
    way: ["./x", "./x/\\*y"],
  });
  expect(divide(entriesAt(two("pack[1]-")))).toEqual({ pattern: "./pack\\[1]-[b]*", way: [] });
  const many = Array.from({ length: 100 }, (_, index) => filesIn(String(index), 99)).flat();
  expect(divide(entriesAt(many))?.pattern).toMatch(/^\.\/\[\d{4,5}\]\*$/);
});

it("divide() gives nothing where two would not be sooner: little, one flat folder, one deep one, names that are no text", () => {
  expect(divide(entriesAt(filesIn("a", 700).concat(filesIn("b", 700))))).toBe(null);
  expect(divide(entriesAt(filesIn("a", 5_000)))).toBe(null);
  expect(divide(entriesAt(filesIn("a/b/c/d/e/f/g/h", 5_000)))).toBe(null);
  expect(divide(entriesAt([...filesIn("\xff/a", 1_000), ...filesIn("\xff/b", 1_000)]))).toBe(null);
  expect(divide(entriesAt([...filesIn("é", 1_000), ...filesIn("-", 1_000)]))).toBe(null);
});

it("two finds tell each entry once that one tells, whatever became of the tree that was divided", () => {
  const random = randomFrom(11);
  const pick = pickerFrom(random);
  const names = ["a", "b", "ab", "src", "sr[c]", "s*", "(", "!", ".git", "Z z", ...ODD_NAMES.slice(0, 15)];
  const bytes = (path: string) => Buffer.from(path, "latin1");
  let divided = 0;
  for (let round = 0; round < 40; round += 1) {
    const root = join(base, `random-${round}`);
    mkdirSync(root);
    const made: string[] = [""];
    for (let left = 30; left > 0; left -= 1) {
      const path = `${pick(made)}/${pick(names)}`;
      try {
        if (random(3) > 0) {
          mkdirSync(bytes(`${root}${path}`));
          made.push(path);
        } else if (random(2) > 0) writeFileSync(bytes(`${root}${path}`), "");
        else symlinkSync("a", bytes(`${root}${path}`));
      } catch (error) {
        // Something is there already, or the folder is none.
        if (!(error instanceof Error && "code" in error)) throw error;
      }
    }
    mkdirSync(join(root, ".moorage-stage-1"));
    const heavy = made.slice(1).flatMap((path) => filesIn(path.slice(1), random(3) * 300));
    const half = divide(entriesAt(heavy.sort()));
    if (!half) continue;
    divided += 1;
    for (let change = 0; change < 3; change += 1) {
      const parts = [ask(root, { half, isRest: true }), ask(root, { half, isRest: false })];
      expect(parts[0]?.[0], `round ${round}`).toMatch(/^d .* \0\0$/);
      expect(parts.flat().sort(), `round ${round}`).toEqual(ask(root).sort());
      try {
        const [from, to] = [pick(made), `${pick(made)}/${pick(names)}`];
        if (change === 0) renameSync(bytes(`${root}${from}`), bytes(`${root}${to}`));
        else {
          rmSync(bytes(`${root}${from}`), { recursive: true });
          symlinkSync(".", bytes(`${root}${from}`));
        }
      } catch (error) {
        // What cannot be moved or removed stays.
        if (!(error instanceof Error && "code" in error)) throw error;
      }
      mkdirSync(root, { recursive: true });
    }
  }
  expect(divided).toBeGreaterThan(10);
});

/** A tree that is worth two programs, long settled. */
function makeLarge(name: string): string {
  const root = join(base, name);
  for (const folder of ["in/a", "in/b", "in/c"]) {
    mkdirSync(join(root, folder), { recursive: true });
    for (let index = 0; index < 700; index += 1) writeFileSync(join(root, folder, String(index)), "");
  }
  return root;
}

it.each(["bash", "sh"] as const)(
  "scan() side by side gives what a usual one gives, in a local %s",
  async (shell) => {
    const root = makeLarge(`local-${shell}`);
    await using environment = createLocalEnvironment({ workspace: root, stateDir: `${root}-state`, shell });
    await using other = createLocalEnvironment({ workspace: root, stateDir: `${root}-state`, shell });
    const { tree } = environment;
    const both = async () => {
      const [one, two] = [await other.tree.scan(root), await tree.scan(root, { sideBySide: true })];
      const plain = ({ entries, ...rest }: typeof one) => ({
        ...rest,
        entries: entries.map(({ settled: _, ...entry }) => entry),
      });
      expect(plain(two)).toEqual(plain(one));
      return two.entries;
    };
    expect((await both()).length).toBe(2_104);
    await both();
    utimesSync(join(root, "in/b/5"), 1, 1);
    writeFileSync(join(root, "in/c/new\nline"), "");
    renameSync(join(root, "in/a"), join(root, "in/z"));
    expect((await both()).length).toBe(2_105);
    renameSync(join(root, "in"), join(root, "moved"));
    symlinkSync("moved", join(root, "in"));
    await both();
    rmSync(join(root, "moved"), { recursive: true });
    expect((await both()).map(({ path }) => path)).toEqual(["in"]);
  },
);

/** Starts a bash for each script, and hands both of its streams on. */
function shellOf(before = ""): SystemShell & { readonly heard: { stdout: number; stderr: number } } {
  const heard = { stdout: 0, stderr: 0 };
  return {
    heard,
    home: base,
    shell: "bash",
    hasTwoStreams: true,
    privateDir: async () => base,
    run: (script, { onStdout, onStderr } = {}) =>
      new Promise((resolve, reject) => {
        const child = spawn("bash", ["-c", `${before}\n${script}`], { stdio: ["ignore", "pipe", "pipe"] });
        child.stdout.on("data", (chunk: Buffer) => {
          heard.stdout += chunk.length;
          void onStdout?.(chunk);
        });
        child.stderr.on("data", (chunk: Buffer) => {
          heard.stderr += chunk.length;
          void onStderr?.(chunk);
        });
        child.once("error", reject);
        child.once("close", (exitCode) =>
          resolve({ exitCode: exitCode ?? -1, stdout: Buffer.alloc(0), stderr: "" }),
        );
      }),
  };
}

it("scan() side by side has about half of the answer on each stream, and nothing else on the second", async () => {
  const root = makeLarge("streams");
  const system = shellOf();
  const tree = createTree(system, { id: "halves", workspace: () => root });
  const first = await tree.scan(root, { sideBySide: true });
  Object.assign(system.heard, { stdout: 0, stderr: 0 });
  const second = await tree.scan(root, { sideBySide: true });
  expect(second.entries.map(({ path }) => path)).toEqual(first.entries.map(({ path }) => path));
  const { stdout, stderr } = system.heard;
  expect(stderr / (stdout + stderr)).toBeGreaterThan(0.2);
  expect(stderr / (stdout + stderr)).toBeLessThan(0.8);
});

it.each([1, 2])("scan() side by side fails when find number %i of them is killed", async (number) => {
  const root = makeLarge(`killed-${number}`);
  const isOther = `[ "$3" ${number === 1 ? "!=" : "="} -mindepth ]`;
  const kill = `find() { if ${isOther}; then command find "$@"; else sh -c 'kill -9 $$'; fi; }`;
  let before = "";
  const system: SystemShell = {
    ...shellOf(),
    run: (script, options) => shellOf(before).run(script, options),
  };
  const tree = createTree(system, { id: "halves", workspace: () => root });
  await tree.scan(root);
  before = kill;
  await expect(tree.scan(root, { sideBySide: true })).rejects.toMatchObject({ code: "INTERNAL" });
});
