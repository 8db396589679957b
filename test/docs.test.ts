import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { PAGES } from "../docs/generate.ts";

const ROOT = join(import.meta.dirname, "..");

describe("generated pages", () => {
  it.each(Object.entries(PAGES))("%s is what the sources say (npm run docs writes it)", (path, page) => {
    const text = readFileSync(join(ROOT, path), "utf8");
    // The formatter has its own mind about JSON.
    if (path.endsWith(".json")) expect(JSON.parse(text)).toEqual(JSON.parse(page()));
    else expect(text).toBe(page());
  });

  it("docs/limits.md explains every limit in words", () => {
    const rows = (PAGES["docs/limits.md"]?.() ?? "").split("\n").filter((line) => line.startsWith("| `"));
    expect(rows.length).toBeGreaterThan(30);
    for (const row of rows) expect(row).toMatch(/^\| `[a-zA-Z]+` \| [\d,]+ \| .{12,} \|$/);
  });
});
