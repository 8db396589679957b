import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { makePrivateFolder } from "../../src/folders.ts";

it("makePrivateFolder() makes what several make at once, each with its parents", async () => {
  const root = await mkdtemp(join(tmpdir(), "moorage-folders-"));
  try {
    for (let round = 0; round < 50; round += 1) {
      const names = ["a/b", "a/c", "a/b/d", "a", "a/b/d/e"].map((name) => join(root, String(round), name));
      await Promise.all(names.map(makePrivateFolder));
      for (const name of names) expect((await stat(name)).mode & 0o777).toBe(0o700);
    }
  } finally {
    await rm(root, { recursive: true, force: true });
  }
});

it("makePrivateFolder() gives up where no folder can be made", async () => {
  await expect(makePrivateFolder("/proc/moorage/state")).rejects.toMatchObject({ code: "ENOENT" });
});
