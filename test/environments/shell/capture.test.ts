import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Capture } from "../../../environments/shell/capture.ts";
import { OutputStore, type Spill } from "../../../environments/shell/outputs.ts";

let folder: string;
let store: OutputStore;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "moorage-capture-"));
  store = new OutputStore(folder);
  await store.prepare();
});
afterAll(() => rm(folder, { recursive: true }));

async function capture(bytes: Buffer, captureBytes: number, chunkBytes: number) {
  let spill: Spill | null = null;
  const taken = new Capture({
    captureBytes,
    spill: () => {
      spill = store.create();
      return spill;
    },
  });
  for (let at = 0; at < bytes.length; at += chunkBytes) await taken.push(bytes.subarray(at, at + chunkBytes));
  const made = spill as Spill | null;
  await made?.close();
  return { ...taken.read(), full: made ? await store.read(made.id, { maxBytes: bytes.length }) : null };
}

describe("Capture", () => {
  it("keeps everything that fits, and makes no file then", async () => {
    expect(await capture(Buffer.from("hello\n"), 6, 2)).toEqual({
      text: "hello\n",
      truncated: null,
      full: null,
    });
    expect(await readdir(join(folder, "outputs"))).toEqual([]);
  });

  it.each([1, 3, 7, 1_000])(
    "keeps head and tail, counts what is between and spills the whole, in chunks of %i bytes",
    async (chunk) => {
      const bytes = Buffer.from(Array.from({ length: 500 }, (_, index) => `line ${index}\n`).join(""));
      const { text, truncated, full } = await capture(bytes, 300, chunk);
      expect(truncated).toEqual({ totalBytes: bytes.length, omittedBytes: bytes.length - 300 });
      expect(text.startsWith("line 0\nline 1\n")).toBe(true);
      expect(text.endsWith("line 498\nline 499\n")).toBe(true);
      expect(text).toContain(`[... ${bytes.length - 300} of ${bytes.length} bytes omitted ...]`);
      expect(full).toEqual({
        text: bytes.toString(),
        offset: 0,
        nextOffset: bytes.length,
        totalBytes: bytes.length,
      });
    },
  );

  it.each(["你", "😀", "é"])("cuts between characters only: %s", async (character) => {
    for (let captureBytes = 30; captureBytes < 38; captureBytes += 1) {
      const { text, truncated } = await capture(Buffer.from(`a${character.repeat(40)}`), captureBytes, 5);
      expect(text).not.toContain("\uFFFD");
      const kept = Buffer.byteLength(text.replace(/\n\[\.\.\..*\.\.\.\]\n/, ""));
      expect(truncated?.omittedBytes).toBe((truncated?.totalBytes ?? 0) - kept);
    }
  });
});

describe("OutputStore", () => {
  it("reads from the end, and never half a character", async () => {
    const spill = store.create();
    await spill.write(Buffer.from("a€b€c"));
    await spill.close();
    expect(await store.read(spill.id, { offset: -3 })).toEqual({
      text: "c",
      offset: 8,
      nextOffset: 9,
      totalBytes: 9,
    });
    expect(await store.read(spill.id, { offset: 0, maxBytes: 3 })).toEqual({
      text: "a",
      offset: 0,
      nextOffset: 1,
      totalBytes: 9,
    });
  });

  it("refuses an id that is a path, as one that is not there", async () => {
    for (const id of ["../../etc/passwd", "out_0123456789abcdef", ""]) {
      await expect(store.read(id)).rejects.toMatchObject({ code: "PROCESS_MISSING" });
    }
  });
});
