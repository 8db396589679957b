/** Random changes by calls and by a user, with checkpoints and restores between, against a model in memory. */
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { createMoorage } from "../../src/moorage.ts";
import { type Picture, picture, randomFrom } from "../environments/tree/picture.ts";

const OPERATIONS = 200;

/** Whether a folder on the way is a link. */
function leadsThroughLink(workspace: string, path: string): boolean {
  const parts = path.slice(workspace.length + 1).split("/");
  return parts.slice(1).some((_, index) => {
    const folder = join(workspace, ...parts.slice(0, index + 1));
    return lstatSync(folder, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;
  });
}

const NAMES = ["a", "b", "-c", "d e", "ü", "x\ny", ".h"] as const;
const MODES = [0o644, 0o600, 0o755, 0o4711] as const;
const FOLDER_MODES = [0o755, 0o700, 0o2775] as const;

it.each([1, 2, 3])("restores any earlier moment exactly, random changes of seed %i", async (seed) => {
  const base = realpathSync(mkdtempSync(join(tmpdir(), "moorage-model-")));
  const workspace = join(base, "w");
  mkdirSync(workspace);
  const random = randomFrom(seed);
  const pick = <Value>(values: readonly Value[]): Value => {
    const value = values[random(values.length)];
    if (value === undefined) throw new RangeError("There is nothing to pick from");
    return value;
  };
  const somewhere = () => Array.from({ length: 1 + random(3) }, () => pick(NAMES)).join("/");
  /** One change; what cannot be done in the present tree is not done. */
  const change = (): void => {
    const path = join(workspace, somewhere());
    const other = join(workspace, somewhere());
    const steps = [
      () => writeFileSync(path, `content ${random(1_000_000)}`),
      () => writeFileSync(path, Buffer.from([random(256), 0, random(256)])),
      () => mkdirSync(path, { recursive: true }),
      () => symlinkSync(pick(["a", "../b", "/nowhere/at/all", "nowhere"]), path),
      () => renameSync(path, other),
      () => rmSync(path, { recursive: true }),
      () => chmodSync(path, lstatSync(path).isDirectory() ? pick(FOLDER_MODES) : pick(MODES)),
    ];
    try {
      // A change through a link could leave the workspace.
      if (leadsThroughLink(workspace, path) || leadsThroughLink(workspace, other)) return;
      const step = random(steps.length);
      if (step !== 5 && lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink()) return;
      steps[step]?.();
    } catch (error) {
      if (!(error instanceof Error && "code" in error)) throw error;
    }
  };
  try {
    await using moorage = await createMoorage({
      environments: "local",
      workspace,
      stateDir: join(base, "s"),
    });
    const environment = moorage.environment();
    const moments: { readonly id: string; readonly was: Picture }[] = [];
    for (let step = 0; step < OPERATIONS; step += 1) {
      const kind = random(10);
      if (kind < 6) change();
      else if (kind < 8) {
        moments.push({ was: picture(workspace), id: (await moorage.checkpoints.create(environment)).id });
      } else if (kind < 9) {
        const was = picture(workspace);
        const path = `w${random(5)}/${random(3)}`;
        const { ok, text } = await moorage.call({
          name: "write_file",
          arguments: { path, content: String(step) },
        });
        const { checkpoint }: { checkpoint?: string } = JSON.parse(text);
        if (ok && checkpoint !== undefined) {
          // A checkpoint of files knows no more than them, until one of the tree follows.
          await moorage.checkpoints.restore(checkpoint, environment);
          expect(picture(workspace), `step ${step}: the call alone is undone`).toEqual(was);
        }
      } else if (moments.length > 0) {
        const { id, was } = pick(moments);
        const present = picture(workspace);
        const report = await moorage.checkpoints.restore(id, environment, { removeOthers: true });
        expect(report.failed, `step ${step}`).toEqual([]);
        expect(picture(workspace), `step ${step}`).toEqual(was);
        const undone = await moorage.checkpoints.restore(String(report.undo), environment, {
          removeOthers: true,
        });
        expect(undone.failed, `step ${step}: undo`).toEqual([]);
        expect(picture(workspace), `step ${step}: undo`).toEqual(present);
      }
    }
    expect(moments.length).toBeGreaterThan(10);
  } finally {
    rmSync(base, { recursive: true, force: true });
  }
});
