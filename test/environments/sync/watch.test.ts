import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import type { SyncReport } from "../../../environments/sync/mirror.ts";
import { createMoorage } from "../../../src/moorage.ts";
import { ToolRegistry } from "../../../src/registry.ts";

const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-watch-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));

it("watchFolder() carries what both sides change, survives failures, and tells each thing once (SY-08)", async () => {
  const [host, workspace, stateDir] = [join(base, "host"), join(base, "remote"), join(base, "state")];
  for (const folder of [host, workspace]) mkdirSync(folder);
  writeFileSync(join(host, "a"), "1");
  const reports: SyncReport[] = [];
  const failures: unknown[] = [];
  const moorage = await createMoorage({
    environments: "local",
    workspace,
    stateDir,
    registry: new ToolRegistry(),
  });
  const watch = await moorage.watchFolder(host, {
    direction: "both",
    // Longer than the test: each run is one that the test asked for.
    intervalMs: 600_000,
    onReport: (report) => reports.push(report),
    onFailure: (error) => failures.push(error),
  });
  await watch.settled();
  expect(readFileSync(join(workspace, "a"), "utf8")).toBe("1");
  writeFileSync(join(host, "a"), "22");
  writeFileSync(join(workspace, "b"), "from there");
  await watch.settled();
  expect(readFileSync(join(workspace, "a"), "utf8")).toBe("22");
  expect(readFileSync(join(host, "b"), "utf8")).toBe("from there");
  renameSync(host, `${host}-away`);
  await watch.settled();
  await watch.settled();
  expect(failures).toMatchObject([{ code: "FILE_MISSING" }]);
  renameSync(`${host}-away`, host);
  writeFileSync(join(host, "a"), "333");
  await watch.settled();
  expect(readFileSync(join(workspace, "a"), "utf8")).toBe("333");
  writeFileSync(join(host, "a"), "host's");
  writeFileSync(join(workspace, "a"), "theirs");
  const told = reports.length;
  await watch.settled();
  await watch.settled();
  expect(reports.slice(told).map(({ conflicts }) => conflicts.map(({ path }) => path))).toEqual([["a"]]);
  await moorage.stop();
  // Nothing runs any more, and nobody waits for ever.
  await watch.settled();
  expect(failures).toHaveLength(1);
});
