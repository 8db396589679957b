import { closeSync, existsSync, lstatSync, mkdtempSync, writeSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { makeFifos } from "../../../environments/local/bubblewrap/fifos.ts";
import { PipeStock } from "../../../environments/local/bubblewrap/pipes.ts";
import { burstReader, takePipes } from "../../../environments/local/pipes.ts";

it("a stock of pipes that is closed lets its folder go, also in the middle of making more", async () => {
  const folder = mkdtempSync(join(tmpdir(), "moorage-pipes-"));
  const stock = new PipeStock(folder, () => ({ shell: "/bin/sh", mkfifo: "mkfifo" }));
  const making = stock.fill();
  await stock.close();
  await rm(folder, { recursive: true });
  await making;
  expect(existsSync(folder)).toBe(false);
  await expect(stock.fill()).rejects.toMatchObject({ code: "ENVIRONMENT_UNAVAILABLE" });
});

it("a paused reader of bursts leaves in the pipe what comes after the first piece", async () => {
  const [pipe] = await takePipes(1);
  if (!pipe) throw new Error("there is no pipe");
  const reader = burstReader(pipe.readerFd);
  const pieces: string[] = [];
  reader.on("data", (chunk: Buffer) => pieces.push(chunk.toString()));
  reader.pause();
  writeSync(pipe.writerFd, "1\n");
  await expect.poll(() => reader.readableLength).toBe(2);
  for (const line of ["2\n", "3\n", "4\n"]) writeSync(pipe.writerFd, line);
  await new Promise((resolve) => setImmediate(resolve));
  expect([reader.bytesRead, pieces]).toEqual([2, []]);
  reader.resume();
  await expect.poll(() => pieces.join("")).toBe("1\n2\n3\n4\n");
  expect(pieces).toHaveLength(2);
  reader.destroy();
  closeSync(pipe.writerFd);
});

it("pipes that cannot be made are an error with the reason, and the next ones are made", async () => {
  const folder = mkdtempSync(join(tmpdir(), "moorage-fifos-"));
  const makers = { shell: "/bin/sh", mkfifo: "mkfifo" };
  const path = join(folder, "it's one");
  await makeFifos(makers, [path]);
  const [again, missing] = await Promise.allSettled([
    makeFifos(makers, [path]),
    makeFifos({ ...makers, mkfifo: "/nothing/mkfifo" }, [join(folder, "2")]),
  ]);
  for (const [settled, why] of [
    [again, /File exists/],
    [missing, /not found/],
  ] as const) {
    expect(settled).toMatchObject({
      reason: { code: "ENVIRONMENT_UNAVAILABLE", message: expect.stringMatching(why) },
    });
  }
  await makeFifos(makers, [join(folder, "2")]);
  expect([path, join(folder, "2")].map((name) => lstatSync(name).isFIFO())).toEqual([true, true]);
  await rm(folder, { recursive: true });
});
