import { execFileSync } from "node:child_process";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { FindReader, findExpression } from "../../../environments/tree/find.ts";
import { randomFrom } from "./picture.ts";

const base = mkdtempSync(join(tmpdir(), "moorage-find-"));
afterAll(() => rmSync(base, { recursive: true, force: true }));

const ask = (root: string) =>
  execFileSync("find", [".", ...findExpression(".moorage-")], { cwd: root, env: { LC_ALL: "C" } });
/** By when all that was made so far is settled. */
const later = { takenAt: Date.now() / 1000 + 3600, fineSeconds: 1 };

it("FindReader gives what a new one gives, whatever changed in between, and the same objects for what did not", () => {
  const random = randomFrom(7);
  const root = join(base, "random");
  mkdirSync(root);
  const known = new FindReader("/root");
  const path = () => join(root, ...Array.from({ length: 1 + random(3) }, () => "abcd"[random(4)] ?? "a"));
  const steps = [
    (at: string) => writeFileSync(at, "x".repeat(random(100))),
    (at: string) => mkdirSync(at),
    (at: string) => symlinkSync("a\nb", at),
    (at: string) => rmSync(at, { recursive: true }),
    (at: string) => renameSync(at, path()),
    (at: string) => chmodSync(at, 0o700 + random(8)),
    (at: string) => utimesSync(at, random(2_000_000_000), -random(1_000)),
  ];
  let before = known.read(ask(root), 0, later).entries;
  for (let round = 0; round < 60; round += 1) {
    for (let left = random(6); left > 0; left -= 1) {
      try {
        steps[random(steps.length)]?.(path());
      } catch (error) {
        // What cannot be done in the present tree is not done.
        if (!(error instanceof Error && "code" in error)) throw error;
      }
    }
    const answer = ask(root);
    const read = known.read(answer, 0, later);
    expect(read, `round ${round}`).toEqual(new FindReader("/root").read(answer, 0, later));
    const same = read.entries.filter((entry) => before.includes(entry));
    const alike = read.entries.filter((entry) =>
      before.some(
        ({ path, stamp, mode }) => path === entry.path && stamp === entry.stamp && mode === entry.mode,
      ),
    );
    expect(same, `round ${round}`).toEqual(alike);
    before = read.entries;
  }
  expect(known.read(ask(root), 0, later).entries).toBe(before);
});

it("FindReader proves nothing by an entry that changed within the clock's grain, until a later answer does", () => {
  const root = join(base, "grain");
  mkdirSync(root);
  writeFileSync(join(root, "f"), "");
  const reader = new FindReader("/root");
  const now = { takenAt: Date.now() / 1000, fineSeconds: 60 };
  const [first] = reader.read(ask(root), 0, now).entries;
  const [second] = reader.read(ask(root), 0, now).entries;
  expect([first?.settled, second?.settled]).toEqual([false, false]);
  const [third] = reader.read(ask(root), 0, later).entries;
  expect(third).toEqual({ ...first, settled: true });
  expect(reader.read(ask(root), 0, later).entries[0]).toBe(third);
});

it("FindReader survives answers that tell a path twice, or in two ways, as while it is renamed", () => {
  const record = (path: string, inode: number) => `f 644 0 0 1 1.5 1.5 7.${inode} ${path}\0\0`;
  const told = (...records: string[]) => Buffer.from(["d 755 0 0 1 1.5 1.5 7.1 \0\0", ...records].join(""));
  const reader = new FindReader("/root");
  const read = (answer: Buffer) =>
    reader.read(answer, 0, later).entries.map(({ path, stamp }) => `${path} ${stamp.split(".").at(-1)}`);
  expect(read(told(record("a", 2), record("b", 3)))).toEqual(["a 2", "b 3"]);
  expect(read(told(record("a", 2), record("b", 3), record("a", 2)))).toEqual(["a 2", "b 3"]);
  expect(read(told(record("a", 2), record("a", 4), record("b", 3)))).toEqual(["a 4", "b 3"]);
  expect(read(told(record("b", 3), record("a", 4)))).toEqual(["a 4", "b 3"]);
  expect(read(told(record("a", 2), record("b", 3)))).toEqual(["a 2", "b 3"]);
  expect(read(told())).toEqual([]);
  expect(() => read(told("f 644 0"))).toThrow(/ends early/);
  expect(() => read(told("f 644 0 0 1 1.5 1.5 7.2 a\0"))).toThrow(/ends early/);
  expect(() => read(Buffer.alloc(0))).toThrow(/missing/);
  expect(read(told(record("c", 5)))).toEqual(["c 5"]);
});
