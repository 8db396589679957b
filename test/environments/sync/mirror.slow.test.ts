/** Mirrors of many files, cut off on their way. */
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { createLocalEnvironment } from "../../../environments/local/index.ts";
import { mirror, SyncMemory } from "../../../environments/sync/mirror.ts";
import { picture } from "../tree/picture.ts";

const FILES = 5_000;

it("mirror() of 5,000 files is whole or an error, whoever breaks off when (SY-17)", async () => {
  const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-many-")));
  try {
    const [host, back, workspace, stateDir] = ["host", "back", "workspace", "state"].map((name) => {
      const path = join(base, name);
      mkdirSync(path);
      return path;
    }) as [string, string, string, string]; // one of each name
    for (let index = 0; index < FILES; index += 1) {
      const folder = join(host, String(index % 50));
      if (index < 50) mkdirSync(folder);
      writeFileSync(join(folder, String(index)), `file ${index}\n`.repeat(index % 300));
    }
    await using environment = createLocalEnvironment({ workspace, stateDir });
    const memory = new SyncMemory();
    const sync = (folder: string, direction: "push" | "pull", breakOffAt = 2) => {
      const controller = new AbortController();
      return mirror(folder, environment, {
        direction,
        stateDir,
        memory,
        abortSignal: controller.signal,
        onProgress: ({ fraction }) => {
          if (fraction > breakOffAt) controller.abort();
        },
      });
    };
    await expect(sync(host, "push", 0.5)).rejects.toMatchObject({ code: "ABORTED" });
    expect((await sync(host, "push")).pushed.length).toBeGreaterThanOrEqual(FILES);
    const whole = picture(host, 0o777);
    expect(picture(workspace, 0o777)).toEqual(whole);
    // The reader of the environment's archive fails in the middle: its failure comes out, and nothing is left running.
    const paths = Object.keys(whole).filter((path) => path.includes("/"));
    let taken = 0;
    const fails = environment.tree.pack(workspace, paths, async () => {
      taken += 1;
      if (taken === FILES / 2) throw new RangeError("the reader has enough");
    });
    await expect(fails).rejects.toThrow(/the reader has enough/);
    const hashes = await environment.tree.hash(workspace, paths);
    let equal = 0;
    await environment.tree.pack(workspace, paths, async ({ path, content }) => {
      const sum = createHash("sha256");
      for await (const chunk of content) sum.update(chunk);
      if (sum.digest("hex") === hashes.get(path)) equal += 1;
    });
    expect(equal).toBe(FILES);
    await expect(sync(back, "pull", 0.5)).rejects.toMatchObject({ code: "ABORTED" });
    expect(readdirSync(back)).toEqual([]);
    expect((await sync(back, "pull")).pulled).toHaveLength(FILES + 50);
    expect(picture(back, 0o777)).toEqual(whole);
    expect(await sync(host, "push")).toEqual({ pushed: [], pulled: [], conflicts: [], skipped: [] });
  } finally {
    rmSync(base, { recursive: true, force: true });
  }
});
