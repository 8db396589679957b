/** Deaths of a first mirror on this machine, while its threads copy and while what they did is put in place. */
import { mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, vi } from "vitest";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { reapLocal } from "../../../environments/local/reap.ts";
import { mirror } from "../../../environments/sync/mirror.ts";
import { OUR_PREFIX } from "../../../environments/tree/names.ts";
import { dieAfter } from "../tree/deaths.ts";
import { picture, write } from "../tree/picture.ts";

const FILES = 1_500;
const DEATHS = 16;
/** The last steps take some milliseconds in all. */
const SOON = { interval: 1, timeout: 60_000 };
const names = (folder: string) => readdirSync(folder).filter((name) => !name.startsWith(OUR_PREFIX));

it("SIGKILL at sixteen points of a first mirror leaves whole files, and the next one goes on (SY-11, SY-17)", async () => {
  const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-first-kill-")));
  const outcomes = { nothing: 0, something: 0 };
  try {
    const host = join(base, "host");
    for (let index = 0; index < FILES; index += 1)
      write(join(host, `d${index % 40}`, `f${index}`), `file ${index}\n`.repeat(index % 60));
    for (let death = 0; death < DEATHS; death += 1) {
      const [workspace, stateDir] = ["w", "s"].map((name) => join(base, `${name}${death}`)) as [
        string,
        string,
      ]; // two names, two paths
      for (const each of [workspace, stateDir]) mkdirSync(each);
      const isInPlace = () => vi.waitFor(() => expect(names(workspace)).not.toEqual([]), SOON);
      await dieAfter(["push", workspace, host, stateDir], death % 2 === 0 ? 12 * death : isInPlace);
      await reapLocal({ stateDir });
      const there = picture(workspace, 0o777);
      const here = picture(host, 0o777);
      const shown = Object.keys(there).filter((path) => !path.startsWith(OUR_PREFIX));
      // The worker itself writes its own files anew from round to round.
      for (const path of shown.filter((path) => path.startsWith("d")))
        expect([path, there[path]]).toEqual([path, here[path]]);
      outcomes[shown.length === 0 ? "nothing" : "something"] += 1;
      await using environment = createLocalEnvironment({ workspace, stateDir });
      const report = await mirror(host, environment, { direction: "push", stateDir });
      expect(report).toMatchObject({ conflicts: [], skipped: [] });
      expect(picture(workspace, 0o777)).toEqual(picture(host, 0o777));
      expect(readdirSync(workspace).filter((name) => name.startsWith(OUR_PREFIX))).toEqual([]);
      rmSync(workspace, { recursive: true });
    }
    expect(outcomes.nothing, JSON.stringify(outcomes)).toBeGreaterThan(0);
    expect(outcomes.something, JSON.stringify(outcomes)).toBeGreaterThanOrEqual(DEATHS / 2);
  } finally {
    rmSync(base, { recursive: true, force: true });
  }
});
