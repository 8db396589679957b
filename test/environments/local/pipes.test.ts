import { existsSync, mkdtempSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { PipeStock } from "../../../environments/local/bubblewrap/pipes.ts";

it("a stock of pipes that is closed lets its folder go, also in the middle of making more", async () => {
  const folder = mkdtempSync(join(tmpdir(), "moorage-pipes-"));
  const stock = new PipeStock(folder, { shell: "/bin/sh", mkfifo: "mkfifo" });
  const making = stock.fill();
  await stock.close();
  await rm(folder, { recursive: true });
  await making;
  expect(existsSync(folder)).toBe(false);
  await expect(stock.fill()).rejects.toMatchObject({ code: "ENVIRONMENT_UNAVAILABLE" });
});
