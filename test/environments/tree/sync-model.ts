/**
 * Random edits on both sides of a mirror against a model in memory: what one side alone changed is on both afterwards,
 * what both changed stays as each left it and is reported, and nothing else happens.
 */
import { chmodSync, lstatSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import type { BaseEnvironment } from "../../../environments/base.ts";
import { quote } from "../../../environments/shell/quote.ts";
import { mirror, SyncMemory } from "../../../environments/sync/mirror.ts";
import { bytesOf, showName } from "../../../environments/tree/names.ts";
import { type Picture, pickerFrom, picture, pictureOf, randomFrom } from "./picture.ts";

const NAMES = ["a", "b c", "-ü", "e'$f"] as const;
const FOLDERS = ["", "d/ö/"] as const;
const MODES = ["644", "600", "755"] as const;
const COPY = /\.conflict-[0-9a-f]{8}$/;

/** @param operations in all, some between one mirror and the next */
export async function checkSyncModel(
  environment: BaseEnvironment,
  host: string,
  stateDir: string,
  { seed, operations }: { readonly seed: number; readonly operations: number },
): Promise<void> {
  const random = randomFrom(seed);
  const pick = pickerFrom(random);
  const somewhere = () => pick(FOLDERS) + pick(NAMES);
  mkdirSync(join(host, "d/ö"), { recursive: true });
  // A side that is empty would begin anew.
  writeFileSync(join(host, "anchor"), "");
  const memory = new SyncMemory();
  // Now and then as a process does that knows nothing of the runs before.
  const sync = () =>
    mirror(host, environment, { direction: "both", stateDir, ...(random(4) > 0 && { memory }) });
  await sync();
  const bits = 0o777;
  let agreed = picture(host, bits);
  let count = 0;
  let conflicts = 0;
  while (count < operations) {
    const script: string[] = [];
    for (let left = 2 + random(9); left > 0; left -= 1) {
      count += 1;
      const [path, other, content, mode] = [somewhere(), somewhere(), `content ${count}`, pick(MODES)];
      const kind = random(5);
      if (random(2) === 0) {
        const at = join(host, path);
        const isThere = lstatSync(at, { throwIfNoEntry: false }) !== undefined;
        if (kind === 0 || kind === 1) {
          rmSync(at, { force: true });
          writeFileSync(at, content);
        } else if (kind === 2) rmSync(at, { force: true });
        else if (kind === 3 && isThere) renameSync(at, join(host, other));
        else if (kind === 4 && isThere && lstatSync(at).isFile()) chmodSync(at, Number.parseInt(mode, 8));
        else if (!isThere) symlinkSync(content, at);
      } else {
        const [at, to] = [quote(`./${path}`), quote(`./${other}`)];
        if (kind === 0 || kind === 1) script.push(`rm -f ${at}; printf '%s' ${quote(content)} >${at}`);
        else if (kind === 2) script.push(`rm -f ${at}`);
        else if (kind === 3) script.push(`if [ -f ${at} ] && [ ${at} != ${to} ]; then mv -f ${at} ${to}; fi`);
        else script.push(`if [ -f ${at} ] && [ ! -L ${at} ]; then chmod ${mode} ${at}; fi`);
      }
    }
    const done = await environment.exec(script.join("\n") || ":", { output: "separate" });
    expect(done.stderr, `seed ${seed}, ${count} operations`).toBe("");
    const before = { here: picture(host, bits), there: await pictureOf(environment, bits) };
    const report = await sync();
    const after = { here: picture(host, bits), there: await pictureOf(environment, bits) };
    const title = `seed ${seed}, ${count} operations`;
    expect(report.skipped, title).toEqual([]);
    const expected = { here: { ...before.here }, there: { ...before.there } };
    const contested: string[] = [];
    for (const path of pathsOf(before.here, before.there, agreed)) {
      if (COPY.test(path)) continue;
      const [ours, theirs, was] = [before.here[path], before.there[path], agreed[path]];
      if (ours === theirs) continue;
      if (theirs === was) place(expected.there, path, ours);
      else if (ours === was) place(expected.here, path, theirs);
      else {
        contested.push(showName(path));
        const copy = report.conflicts.find((each) => each.path === showName(path))?.copy;
        const [, content] = /^file \d+ (.*)$/s.exec(theirs ?? "") ?? [];
        if (content !== undefined) expected.here[bytesOf(String(copy))] = `file 600 ${content}`;
      }
    }
    conflicts += contested.length;
    expect(report.conflicts.map(({ path }) => path).sort(), title).toEqual(contested.sort());
    expect(after, title).toEqual(expected);
    const next: Record<string, string> = {};
    for (const path of pathsOf(after.here, after.there, agreed)) {
      const state = after.here[path] === after.there[path] ? after.here[path] : agreed[path];
      if (state !== undefined && !COPY.test(path)) next[path] = state;
    }
    agreed = next;
  }
  expect(conflicts, "edits met").toBeGreaterThan(0);
}

function pathsOf(...pictures: readonly Picture[]): string[] {
  return [...new Set(pictures.flatMap((each) => Object.keys(each)))];
}

function place(picture: Record<string, string>, path: string, state: string | undefined): void {
  if (state === undefined) delete picture[path];
  else picture[path] = state;
}
