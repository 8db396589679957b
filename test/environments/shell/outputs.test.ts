import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { Spill } from "../../../environments/shell/outputs.ts";
import { until } from "../../conformance/support.ts";

it("a spill that is closed lets go of whoever waits for room in it", async () => {
  const folder = await mkdtemp(join(tmpdir(), "moorage-outputs-"));
  try {
    const spill = new Spill(folder);
    const held = spill.write(Buffer.alloc(8 * 1024 * 1024));
    expect(held).toBeInstanceOf(Promise);
    await spill.close();
    await held;
    expect(spill.failure).toBeNull();
  } finally {
    await rm(folder, { recursive: true });
  }
});

it("what a spill takes can be read soon, also while it is open", async () => {
  const folder = await mkdtemp(join(tmpdir(), "moorage-outputs-"));
  try {
    const spill = new Spill(folder);
    await spill.opened;
    for (const piece of ["one ", "two"]) {
      spill.write(Buffer.from(piece));
      const path = join(folder, `${spill.id}.log`);
      await until(async () => (await readFile(path, "utf8")).endsWith(piece), `the file ends in "${piece}"`);
    }
    await spill.close();
  } finally {
    await rm(folder, { recursive: true });
  }
});

it("a spill keeps many pieces in their order, and takes none after its end", async () => {
  const folder = await mkdtemp(join(tmpdir(), "moorage-outputs-"));
  try {
    const spill = new Spill(folder);
    const pieces = Array.from({ length: 5_000 }, (_, index) => `${index} ${"x".repeat(index % 700)}\n`);
    for (const piece of pieces) await spill.write(Buffer.from(piece));
    await Promise.all([spill.close(), spill.close()]);
    expect(spill.write(Buffer.alloc(4 * 1024 * 1024))).toBeUndefined();
    expect(await readFile(join(folder, `${spill.id}.log`), "utf8")).toBe(pieces.join(""));
  } finally {
    await rm(folder, { recursive: true });
  }
});

it("a spill for which there is no folder holds nobody back, and says why", async () => {
  const spill = new Spill("/nowhere/at/all");
  await spill.write(Buffer.alloc(4 * 1024 * 1024));
  await spill.close();
  expect(spill.failure).toMatchObject({ code: "ENOENT" });
});

it("a spill that is limited keeps its beginning and tells that it was cut", async () => {
  const folder = await mkdtemp(join(tmpdir(), "moorage-outputs-"));
  try {
    const spill = new Spill(folder);
    spill.write(Buffer.from("before"));
    spill.limitTo(8);
    expect(spill.truncated).toBe(false);
    spill.write(Buffer.from("more"));
    spill.write(Buffer.from("again"));
    await spill.close();
    expect(await readFile(join(folder, `${spill.id}.log`), "utf8")).toBe("beforemo");
    expect({ bytes: spill.bytes, truncated: spill.truncated }).toEqual({ bytes: 8, truncated: true });
  } finally {
    await rm(folder, { recursive: true });
  }
});
