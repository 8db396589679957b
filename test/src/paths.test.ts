import { chmod, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ensureStateDir, stateDir } from "../../src/paths.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "moorage-paths-"));
});
afterAll(() => rm(folder, { recursive: true }));

describe("stateDir()", () => {
  it("takes MOORAGE_HOME, then the XDG state folder, then the home's", () => {
    expect(stateDir({ MOORAGE_HOME: "/m", XDG_STATE_HOME: "/x" })).toBe("/m");
    expect(stateDir({ XDG_STATE_HOME: "/x" })).toBe("/x/moorage");
    expect(stateDir({ XDG_STATE_HOME: "relative" })).toMatch(/^\/.*\/\.local\/state\/moorage$/);
    expect(() => stateDir({ MOORAGE_HOME: "relative" })).toThrow(
      expect.objectContaining({ code: "INVALID_CONFIG" }),
    );
  });
});

describe("ensureStateDir()", () => {
  it("makes the folder for its user alone, and takes rights away from one that is there", async () => {
    const path = join(folder, "a", "b");
    expect(await ensureStateDir(path)).toBe(path);
    expect((await stat(path)).mode & 0o777).toBe(0o700);
    await chmod(path, 0o755);
    await ensureStateDir(path);
    expect((await stat(path)).mode & 0o777).toBe(0o700);
  });

  it("refuses a place that is no folder", async () => {
    const path = join(folder, "file");
    await writeFile(path, "");
    await expect(ensureStateDir(path)).rejects.toMatchObject({ code: "INVALID_CONFIG" });
  });

  it.runIf(process.getuid?.() === 0)("refuses a folder of another user", async () => {
    const path = await mkdtemp(join(folder, "other-"));
    const { chown } = await import("node:fs/promises");
    await chown(path, 12_345, 12_345);
    await expect(ensureStateDir(path)).rejects.toMatchObject({
      message: expect.stringContaining("another user"),
    });
  });
});
