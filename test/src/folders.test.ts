import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished, vi } from "vitest";
import { homeFolder, makePrivateFolder } from "../../src/folders.ts";

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

it.each(["", "relative"])("homeFolder() takes no HOME %j for a folder", (value) => {
  vi.stubEnv("HOME", value);
  onTestFinished(() => void vi.unstubAllEnvs());
  expect(homeFolder()).toBe(userInfo().homedir);
});
